package configcmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/sendcmd"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// foundPrograms returns the known programs on this machine.
func (s *command) foundPrograms() (found []directory.Program) {
	for _, p := range directory.Programs() {
		if integrate.OnPath(s.Getenv, p.Command) != "" {
			found = append(found, p)
		}
	}
	return found
}

// question is asked if no flag has answered it. take checks the answer; after an error, the
// question is asked again.
type question struct {
	wanted         func() bool
	text, proposed string
	take           func(answer string) error
}

// questions are the questions about the agent, in order.
func (s *command) questions(a *answers) []question {
	me := cmp.Or(s.Getenv("USER"), "me")
	first := "Which program runs your agent? Its app id or a short name, such as mybot (Enter: none yet)"
	found := s.foundPrograms()
	if len(found) > 0 {
		names := make([]string, len(found))
		for i, p := range found {
			names[i] = fmt.Sprintf("%d %s", i+1, p.Name)
		}
		first = "Found here: " + strings.Join(names, ", ") + ". Which program runs your agent? A number, an app id, or a short name such as mybot (Enter: none yet)"
	}
	agent := func() bool { return a.app != "" }
	channel := func() bool { return a.app != "" && a.channel != "" }
	return []question{
		{func() bool { return a.app == "" }, first, "", func(given string) error {
			a.app = given
			if n, err := strconv.Atoi(given); err == nil && n >= 1 && n <= len(found) {
				a.app = found[n-1].App
			}
			return checkApp(a.app)
		}},
		{func() bool { return agent() && a.user == "" }, "Whose agent is it? Your name", me, func(given string) error {
			a.user = given
			return CheckName("user", given)
		}},
		{func() bool { return agent() && a.tenant == "" }, "Your company or household? No message passes to agents of another one", cmp.Or(a.user, me), func(given string) error {
			a.tenant = given
			return CheckName("tenant", given)
		}},
		{func() bool { return agent() && a.channel == "" }, "Where does it write to people, such as telegram or irc? (Enter: nowhere yet)", "", func(given string) error {
			a.channel = given
			return a.checkChannel()
		}},
		{func() bool { return channel() && a.chat == "" }, "Your own chat there, by its number or name? (Enter: later)", "", func(given string) error {
			a.chat = strings.TrimPrefix(given, a.channel+":")
			return a.checkChannel()
		}},
		{func() bool { return channel() && len(a.known) == 0 }, "Whom else may it write to there? Chats, separated by commas (Enter: nobody yet)", "", func(given string) error {
			a.known = fields(given)
			for i := range a.known {
				a.known[i] = strings.TrimPrefix(a.known[i], a.channel+":")
			}
			return a.checkChannel()
		}},
		{func() bool { return agent() && a.strangers == "" }, "May it write first to anybody else? yes, no, or ask (you approve the first message)", "ask", func(given string) error {
			a.strangers = strings.ToLower(given)
			return a.checkStrangers()
		}},
		{func() bool { return agent() && len(a.media) == 0 }, "Folders that it may send files from, separated by commas? (Enter: none)", "", func(given string) error {
			a.media = fields(given)
			return a.checkMedia()
		}},
	}
}

// fields splits an answer at commas.
func fields(given string) (parts []string) {
	for part := range strings.SplitSeq(given, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// answer asks the questions that no flag answers. If nobody can answer, it takes the proposals.
func (s *command) answer(in *bufio.Reader, a *answers, asks bool) error {
	ask := func(q *question) error {
		if !asks || !q.wanted() {
			return nil
		}
		for {
			given, err := s.Question(in, q.text, q.proposed)
			if err != nil {
				return err
			}
			if err = q.take(given); err == nil {
				return nil
			}
			if err := term.Line(s.Stderr, term.Printable(err.Error())); err != nil {
				return err
			}
		}
	}
	for i := range len(s.questions(a)) {
		q := s.questions(a)[i] // an answer may change the next proposal
		if err := ask(&q); err != nil {
			return err
		}
	}
	if a.app == "" && (a.user+a.tenant+a.channel+a.chat+a.strangers != "" || len(a.media)+len(a.known) > 0) {
		return cli.Usagef("--user, --tenant, --channel, --chat, --knows, --strangers and --media are about an agent, and --app names none")
	}
	if a.app != "" {
		a.user = strings.TrimSpace(cmp.Or(a.user, s.Getenv("USER"), "me"))
		a.tenant = strings.TrimSpace(cmp.Or(a.tenant, a.user))
		a.strangers = cmp.Or(a.strangers, "ask")
	}
	for _, key := range s.touchedKeys() {
		err := ask(&question{func() bool { return a.signer == "" }, "Must " + key.name + " sign each decision, by a touch? (y, or Enter: no)", "", func(given string) error {
			if strings.EqualFold(given, "y") || strings.EqualFold(given, "yes") {
				a.signer = key.path
			}
			return nil
		}})
		if err != nil {
			return err
		}
	}
	return a.check()
}

// next describes the next steps after a new configuration. If the daemon runs with it, next
// offers to send a first message.
func (s *command) next(ctx context.Context, in *bufio.Reader, file string, a *answers, asks bool) error {
	session := append(a.sessions(), cmp.Or(a.channel, "telegram")+":4711")[0]
	var live api.Status
	err := s.Operate(ctx, "kernel.status", nil, &live)
	running := err == nil
	if running && (live.ConfigFile == "" || fileowner.Same(live.ConfigFile, file)) {
		if err = s.Operate(ctx, "policy.reload", nil, nil); err == nil {
			fmt.Fprintln(s.Stdout, "the running daemon has taken it")
			if err = s.firstMessage(ctx, in, session, a, asks && len(a.sessions()) > 0); err != nil {
				return err
			}
		}
	}
	if err != nil && !errors.Is(err, client.ErrNotRunning) {
		cli.Complain(s.Stderr, err)
	}
	steps := [][2]string{
		{"ocipd doctor", "checks everything, and prints the fix"},
		{"ocipd check " + cli.Argument(a.somebodyElse()) + " 'I promise it by Friday.'", "what would be decided, and why"},
		{"ocipd send " + cli.Argument(session) + " 'Hello.'", a.outlook()},
		{"ocipd", "what happens, live; what waits for you"},
	}
	switch named := cli.Argument(file); {
	case !running && file == cli.Absolute(config.FilePath(s.Getenv)):
		steps = append([][2]string{{"ocipd serve", "the daemon, in a terminal of its own; as a service: ocipd service install"}}, steps...)
	case !running:
		steps = append([][2]string{{"ocipd serve --config " + named, "the daemon, in a terminal of its own"}}, steps...)
	case live.ConfigFile != "" && !fileowner.Same(live.ConfigFile, file):
		steps = append([][2]string{{"ocipd serve --config " + named, "the running daemon has another file: " + live.ConfigFile}}, steps...)
	}
	switch id := cli.Argument(agentID(a.user)); {
	case a.app == "":
		steps = steps[:len(steps)-3] // nobody can send yet
	case a.byToken():
		steps = append(steps, [2]string{"ocipd integrate " + a.app + " --agent " + id, "puts the runtime behind the daemon, and tries its gate"})
	}
	if a.app != "" {
		steps = append(steps, [2]string{"ocipd config add-agent ID", "another agent, such as one of another program"})
	}
	fmt.Fprintln(s.Stdout, "next:")
	for _, step := range steps {
		fmt.Fprintf(s.Stdout, "  %s\n      %s\n", term.Printable(step[0]), s.Screen().Colour.Paint(term.Dim, term.Printable(step[1])))
	}
	return nil
}

// outlook describes the treatment of a first message.
func (a *answers) outlook() string {
	switch {
	case len(a.sessions()) > 0 || a.strangers == "yes":
		return "a message that is sent"
	case a.strangers == "no":
		return "a message to somebody new, which is refused: ocipd contacts add makes them known"
	}
	return "a first message to somebody new, which waits for you in ocipd approvals"
}

// firstMessage offers to send a first message, and prints the result.
func (s *command) firstMessage(ctx context.Context, in *bufio.Reader, session string, a *answers, asks bool) error {
	if !asks {
		return nil
	}
	const text = "Hello! From now on ocipd decides what I may send."
	agreed, err := s.Question(in, fmt.Sprintf("Send a first message to %s now: %q? yes or no", session, text), "yes")
	if err != nil || !strings.EqualFold(agreed, "y") && !strings.EqualFold(agreed, "yes") {
		return err
	}
	err = sendcmd.Speak(ctx, s.Process, "sending.message", "", text, &api.SendParams{Agent: agentID(a.user), DispatchParams: api.DispatchParams{SessionKey: session}}, false)
	if verdict := new(cli.Verdict); errors.As(err, &verdict) {
		return nil // any decision is a success here
	}
	return err
}
