package config

import (
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/config/keypath"
)

// Tasks are the actors and rules of tasks.
type Tasks struct {
	Actors []TaskActor `yaml:"actors"`
	// Lease is how long an attempt lives without a heartbeat.
	Lease time.Duration `yaml:"lease"`
	// Retry bounds the attempts that fail in a row, and Rework those that reviewers or people
	// ask for after a success.
	Retry   TaskRetry   `yaml:"retry"`
	Rework  TaskRetry   `yaml:"rework"`
	Reviews TaskReviews `yaml:"reviews"`
	Effects TaskEffects `yaml:"effects"`
	// SelfApproval lets a person approve their own request.
	SelfApproval bool `yaml:"self_approval"`
	// SelfReview lets one process, or the holders of one actor's grants, do the work and
	// review it under different names.
	SelfReview bool `yaml:"self_review"`
	// Run names the actors whose agents ocipd task run starts.
	Run TaskRun `yaml:"run"`
}

// TaskRun names the actors of tasks that run without a model. Escalation, if set, makes the
// last attempt instead of the executor. Lobster runs the effects of workflows.
type TaskRun struct {
	Executor        string `yaml:"executor"`
	Escalation      string `yaml:"escalation"`
	SpecReviewer    string `yaml:"spec_reviewer"`
	QualityReviewer string `yaml:"quality_reviewer"`
	Lobster         string `yaml:"lobster"`
}

// TaskActor is a participant in tasks with one role. Its app or the token of a grant identifies it.
type TaskActor struct {
	Name string `yaml:"name"`
	Role string `yaml:"role"`
	// App is the actor's app id, empty if it attaches with a token.
	App      string   `yaml:"app"`
	ACP      *TaskACP `yaml:"acp,omitempty"`
	TenantID string   `yaml:"tenant_id"`
	// MaxClassification is the highest level that the actor works with, internal unless
	// set.
	MaxClassification string `yaml:"max_classification"`
	// UID and Exe, if set, narrow the actor to one user and one executable.
	UID *int   `yaml:"uid,omitempty"`
	Exe string `yaml:"exe,omitempty"`
}

// TaskACP says how to start an actor's agent that speaks the Agent Client Protocol.
type TaskACP struct {
	// Command is the program, by absolute path, with its arguments. Wrap is a command line
	// that starts it.
	Command []string `yaml:"command" show:"program"`
	Wrap    []string `yaml:"wrap" show:"program"`
	// Env names the variables that it gets.
	Env  []string `yaml:"env"`
	Mode string   `yaml:"mode"`
	// Timeout bounds an attempt, and Idle the time without output. Zero is 30 and 10 minutes.
	Timeout time.Duration `yaml:"timeout"`
	Idle    time.Duration `yaml:"idle"`
}

// TaskRetry is the number of attempts and the delay of the next one: Base at first, and Factor
// times as long for each further one.
type TaskRetry struct {
	Attempts int           `yaml:"attempts"`
	Base     time.Duration `yaml:"base"`
	Factor   int           `yaml:"factor"`
}

// maxTaskTries bounds the attempts of a kind. All attempts of a task have a limit of their own.
const maxTaskTries = 30

func (r *TaskRetry) check(p *problems, at keypath.Path) {
	p.between(at.Key("attempts"), r.Attempts, 1, maxTaskTries)
	p.between(at.Key("factor"), r.Factor, 1, 100)
	if r.Base < 0 {
		p.bad(at.Key("base"), "want a time of zero or more, got %s", r.Base)
	}
}

// TaskEffects are the rules of effects. Late says what happens if one is planned after the reviews:
// the work is reviewed again, or a person is asked at once.
type TaskEffects struct {
	Late string `yaml:"late"`
}

// The words of tasks.effects.late.
const (
	LateReview = "review"
	LateAsk    = "ask"
)

// TaskReviews is the number of approving reviews for each gate.
type TaskReviews struct {
	Spec    int `yaml:"spec"`
	Quality int `yaml:"quality"`
}

// taskRoles are the roles that an actor can have.
func taskRoles() []string {
	return []string{"orchestrator", "executor", "spec_reviewer", "quality_reviewer", "lobster"}
}

// defaultTasks are the rules of the protocol.
func defaultTasks() Tasks {
	return Tasks{
		Lease: 90 * time.Second, Retry: TaskRetry{Attempts: 3, Base: 30 * time.Second, Factor: 4}, Rework: TaskRetry{Attempts: 3, Factor: 1},
		Reviews: TaskReviews{Spec: 1, Quality: 1}, Effects: TaskEffects{Late: LateReview},
	}
}

func (c *Config) checkTasks(p *problems) {
	at := keypath.Path{}.Key("tasks")
	p.positive(at.Key("lease"), c.Tasks.Lease)
	p.positive(at.Key("retry").Key("base"), c.Tasks.Retry.Base)
	c.Tasks.Retry.check(p, at.Key("retry"))
	c.Tasks.Rework.check(p, at.Key("rework"))
	p.between(at.Key("reviews").Key("spec"), c.Tasks.Reviews.Spec, 1, maxApprovers)
	p.word(at.Key("effects").Key("late"), "word", c.Tasks.Effects.Late, LateReview, LateAsk)
	p.between(at.Key("reviews").Key("quality"), c.Tasks.Reviews.Quality, 1, maxApprovers)
	names, apps := map[string]spot{}, map[string]spot{}
	for i := range c.Tasks.Actors {
		a, at := &c.Tasks.Actors[i], at.Key("actors").Index(i)
		p.required(at.Key("name"), a.Name)
		if len(a.Name) > maxSinkName || strings.ContainsFunc(a.Name, notWord) {
			p.bad(at.Key("name"), "want up to %d letters, digits, hyphens and underscores, got %q", maxSinkName, a.Name)
		}
		p.unique(at.Key("name"), a.Name, names, spot{"tasks.actors.name", i, -1})
		p.word(at.Key("role"), "role", a.Role, taskRoles()...)
		if a.App != "" {
			p.app(at.Key("app"), a.App)
			p.unique(at.Key("app"), a.App, apps, spot{"tasks.actors.app", i, -1})
		}
		p.required(at.Key("tenant_id"), a.TenantID)
		if a.MaxClassification != "" {
			p.word(at.Key("max_classification"), "level", a.MaxClassification, levels()...)
		}
		if a.UID != nil {
			p.atLeast(at.Key("uid"), *a.UID, 0)
		}
		p.absolute(at.Key("exe"), a.Exe)
		if a.ACP == nil {
			continue
		}
		if len(a.ACP.Command) == 0 {
			p.bad(at.Key("acp").Key("command"), "want the program that is started, by absolute path, and its arguments")
		} else {
			p.absolute(at.Key("acp").Key("command").Index(0), a.ACP.Command[0])
		}
		if len(a.ACP.Wrap) > 0 {
			p.absolute(at.Key("acp").Key("wrap").Index(0), a.ACP.Wrap[0])
		}
		if a.ACP.Timeout < 0 || a.ACP.Idle < 0 {
			p.bad(at.Key("acp"), "want times of zero or more")
		}
	}
	c.checkTaskRun(p)
}

// checkTaskRun checks that the actors of task runs exist and have their roles.
func (c *Config) checkTaskRun(p *problems) {
	at := keypath.Path{}.Key("tasks").Key("run")
	for _, r := range []struct{ key, name, role string }{
		{"executor", c.Tasks.Run.Executor, "executor"}, {"escalation", c.Tasks.Run.Escalation, "executor"},
		{"spec_reviewer", c.Tasks.Run.SpecReviewer, "spec_reviewer"}, {"quality_reviewer", c.Tasks.Run.QualityReviewer, "quality_reviewer"},
		{"lobster", c.Tasks.Run.Lobster, "lobster"},
	} {
		if r.name == "" {
			continue
		}
		i := slices.IndexFunc(c.Tasks.Actors, func(a TaskActor) bool { return a.Name == r.name })
		switch {
		case i < 0:
			p.bad(at.Key(r.key), "tasks.actors has no %q", r.name)
		case c.Tasks.Actors[i].Role != r.role:
			p.bad(at.Key(r.key), "want an actor whose role is %s, and %s is %s", r.role, r.name, c.Tasks.Actors[i].Role)
		}
	}
}
