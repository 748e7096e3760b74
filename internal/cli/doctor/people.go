package doctor

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
)

// people reports the rules for people that the directory does not know.
func (d *Examiner) people() (found []Diagnosis) {
	c := d.cfg
	if len(c.Agents) == 0 {
		return []Diagnosis{passed("looked at once an agent is configured")}
	}
	for _, who := range []struct {
		key, words string
		rules      *config.People
	}{{"unknown", "strangers", &c.OCIP.Unknown}, {"person", "people you declared", &c.OCIP.Person}} {
		at := "ocip." + who.key
		switch {
		case who.rules.Commitments != "hold":
			found = append(found, failed("PROMISES TO %s ARE NOT HELD: what an agent promises them goes out and is recorded alone (%s.commitments: %s)",
				strings.ToUpper(who.words), at, who.rules.Commitments).advise("have a person decide: %s.commitments: hold", at))
		case c.OCIP.Commitment.Enforcement != "enforce":
			found = append(found, failed("PROMISES TO %s ARE NOT HELD, nor are any others: ocip.commitment.enforcement is %s",
				strings.ToUpper(who.words), c.OCIP.Commitment.Enforcement).advise("have a person decide: ocip.commitment.enforcement: enforce"))
		}
		if !who.rules.Policy {
			found = append(found, warned("the policy is not asked about messages to %s (%s.policy: false)", who.words, at).advise("ask it: %s.policy: true", at))
		}
		found = append(found, passed("%s: promises %s, the policy %s, the first message %s, more than %s in %s are held",
			who.words, map[bool]string{true: "wait for a person", false: "are recorded"}[who.rules.Commitments == "hold"],
			map[bool]string{true: "is asked", false: "is not asked"}[who.rules.Policy],
			map[string]string{"allow": "goes", "hold": "is held", "deny": "is refused"}[who.rules.FirstContact],
			term.Count(who.rules.MaxMessages, "message"), who.rules.Window))
	}
	if c.OCIP.LookAlike == "allow" {
		found = append(found, warned("a message to somebody whose key only looks like a known one goes (ocip.look_alike: allow)").advise("hold it: ocip.look_alike: hold"))
	}
	return slices.Concat(found, weighed(c), judged(c), known(c))
}

// weighed says what the settings give up that weigh keywords.
func weighed(c *config.Config) []Diagnosis {
	var by []string
	add := func(name, value string) {
		if value == "weigh" {
			by = append(by, name)
		}
	}
	add("ocip.commitment.keywords", c.OCIP.Commitment.Keywords)
	add("ocip.unknown.keywords", c.OCIP.Unknown.Keywords)
	add("ocip.person.keywords", c.OCIP.Person.Keywords)
	for i := range c.Agents {
		add("the keywords of agent "+c.Agents[i].ID, c.Agents[i].Keywords)
	}
	if len(by) == 0 {
		return nil
	}
	return []Diagnosis{passed("keywords are weighed: a promise with one of the thirteen words that the rules misread is sent and no person is asked (%s)", strings.Join(by, ", ")).
		advise("to have each of them held: enforce")}
}

// judged says what a model may do to messages.
func judged(c *config.Config) []Diagnosis {
	switch j := &c.OCIP.Judge; {
	case j.URL == "":
		return nil
	case j.May == config.JudgeReleases:
		return []Diagnosis{passed("the model %s may release messages that only a guess holds: a promise in words alone that it misreads, or that talks it into a no, is sent and no person is asked", j.Model).
			advise("to have a person decide each of them: ocip.judge.may: annotate")}
	default:
		return []Diagnosis{passed("the model %s says its word about messages that only a guess holds; people decide", j.Model)}
	}
}

// known reports the owners whose own chat is unknown, and whether the directory knows anybody else.
func known(c *config.Config) (found []Diagnosis) {
	owners, entries := map[string]bool{}, 0
	for e := range c.Contacts {
		entries++
		if e.Kind == "person" && e.UserID != "" {
			owners[e.UserID] = true
		}
	}
	if entries == 0 {
		found = append(found, passed("nobody is declared: all but the agents here are strangers, and the tenant wall is between the agents here alone").
			advise("see with whom they spoke: ocipd contacts list; declare somebody: ocipd contacts add"))
	}
	var missing []string
	for i := range c.Agents {
		if user := c.Agents[i].UserID; !owners[user] && !slices.Contains(missing, user) {
			missing = append(missing, user)
		}
	}
	if len(missing) > 0 {
		found = append(found, passed("%s's own chat is not set, so it is treated as a stranger's", strings.Join(missing, "'s and ")).
			advise("write to the agent from there, and then: ocipd contacts bind --me"))
	}
	return found
}

// access reports what apps may do.
func (d *Examiner) access() []Diagnosis {
	lacks, err := kernelconfig.Undeclared(d.cfg, nil)
	switch {
	case err != nil:
		return []Diagnosis{failed("cannot tell what apps may do: %v", err).advise("ocipd config check")}
	case len(lacks) > 0:
		return []Diagnosis{failed("the configuration lacks %s of access.apps, and no daemon starts with it: %s", term.Count(len(lacks), "line"), lacks[0].Reason).
			advise("ocipd config migrate proposes them; ocipd config check prints them")}
	case len(d.cfg.Access.Apps) > 0:
		return []Diagnosis{passed("what %s may do is declared", term.Count(len(d.cfg.Access.Apps), "app"))}
	}
	if declared, err := kernelconfig.Declared(d.cfg); err == nil && declared {
		return []Diagnosis{passed("no app is given a channel, and the configuration names none; agents of several tenants, or apps of several users, have only what access.apps gives them")}
	}
	return []Diagnosis{passed("one tenant and one user: an app has the channels that it registers and sees its own agents' messages, and nothing need be declared")}
}

// operators reports how operators are identified.
func (d *Examiner) operators() (found []Diagnosis) {
	if d.cfg.IPC.AppsMayOperate {
		return []Diagnosis{failed("APPS DECIDE ABOUT THEIR OWN MESSAGES: their processes may use the operator socket (ipc.apps_may_operate)").advise("for anything but a test: ipc.apps_may_operate: false")}
	}
	file := d.cfg.Approvals.AllowedSigners
	if file == "" {
		return []Diagnosis{passed("decisions need no signature. The daemon refuses decisions of apps and of processes that an app has started. " +
			"It does not recognize a process that detached itself from an app, started the app, or was given an open connection").
			advise("to let only people decide, demand signatures by a key that waits for a touch: ssh-keygen -t ed25519-sk, and approvals.allowed_signers")}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // reported with the configuration
	}
	keys := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		keys++
		kind := slices.IndexFunc(fields, func(f string) bool {
			return strings.HasPrefix(f, "ssh-") || strings.HasPrefix(f, "ecdsa-") || strings.HasPrefix(f, "sk-")
		})
		switch {
		case kind < 0:
		case !strings.HasPrefix(fields[kind], "sk-"):
			found = append(found, warned("the key of %s in %s is a plain one (%s): while ssh-agent has it, it signs for every process of yours, and keeps no app out", fields[0], file, fields[kind]).
				advise("take one that waits for a touch: ssh-keygen -t ed25519-sk; or have the agent ask each time: ssh-add -c"))
		case strings.Contains(strings.Join(fields[:kind], " "), "no-touch-required"):
			found = append(found, warned("the key of %s in %s signs without a touch (no-touch-required), and keeps no app out", fields[0], file).advise("take the option out"))
		}
	}
	return orWell(found, passed("each decision is signed by %s that waits for a touch", map[bool]string{true: "a key", false: fmt.Sprintf("one of %d keys", keys)}[keys == 1]))
}
