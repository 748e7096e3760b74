package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/spf13/cobra"
)

// answers are what a first configuration is made from. An empty app names no
// agent, and an empty channel no session.
type answers struct{ app, user, tenant, channel string }

func newConfigInit(s *shell) *cobra.Command {
	var a answers
	var yes bool
	c := &cobra.Command{
		Use:   "init [FILE]",
		Short: "write a first configuration, commented, by asking three questions",
		Long: "Write a first configuration: which app speaks for your agent, whose agent it is, and which\n" +
			"channel reaches it. Questions are asked at a terminal; flags answer them beforehand, and\n" +
			"--yes takes what was not answered as it is proposed. Without an app the file names no agent\n" +
			"and is all defaults. Every key is there, with a comment. A file that is there is never\n" +
			"overwritten.",
		Example: "  ocipd config init\n  ocipd config init --app @acme/alice-runtime --user alice --tenant acme-corp --channel telegram",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := s.configArg(args)
			if err != nil {
				return err
			}
			if file == "" {
				file = config.FilePath(s.getenv)
			}
			if file == "" {
				return errors.New("cannot tell where the configuration belongs: HOME is not set; name a file")
			}
			if _, err := os.Lstat(file); err == nil {
				return thereAlready(file) // before anybody answers questions for nothing
			}
			if err := s.answer(&a, yes); err != nil {
				return err
			}
			text, err := a.config()
			if err != nil {
				return err
			}
			if err := writeConfig(file, text); err != nil {
				return err
			}
			fmt.Fprintf(s.stdout, "wrote %s; check changes to it with: ocipd config check\n", printable(file))
			if a.app == "" {
				fmt.Fprintln(s.stdout, "it names no agent yet, so nobody can send: add one to agents in it")
			}
			return nil
		},
	}
	c.Flags().StringVar(&a.app, "app", "", "`ID` of the app that speaks for the agent, such as @acme/alice-runtime")
	c.Flags().StringVar(&a.user, "user", "", "`NAME` of whose agent it is")
	c.Flags().StringVar(&a.tenant, "tenant", "", "`NAME` of the company or household that the user belongs to")
	c.Flags().StringVar(&a.channel, "channel", "", "`ID` of the channel that reaches the agent, such as telegram")
	c.Flags().BoolVar(&yes, "yes", false, "ask nothing, and take what is proposed")
	return c
}

// answer asks for what no flag said, where somebody is there to be asked.
func (s *shell) answer(a *answers, yes bool) error {
	me := orElse(s.getenv("USER"), "me")
	if !yes && s.asks() {
		in := bufio.NewReader(s.stdin)
		whose := ""
		for _, q := range []struct {
			ask      bool
			into     *string
			text     string
			proposed string
		}{
			{a.app == "", &a.app, "Which app speaks for your agent, by its id (@acme/alice-runtime)? Empty: none yet", ""},
			{a.user == "" && a.tenant == "", &whose, "Whose agent is it, as user/tenant", me + "/" + me},
			{a.channel == "", &a.channel, "Which channel reaches it (telegram, irc)? Empty: none", ""},
		} {
			if !q.ask || q.into != &a.app && a.app == "" {
				continue
			}
			given, err := s.question(in, q.text, q.proposed)
			if err != nil {
				return err
			}
			*q.into = given
		}
		if whose != "" {
			a.user, a.tenant, _ = strings.Cut(whose, "/")
		}
	}
	if a.app == "" {
		if a.user+a.tenant+a.channel != "" {
			return usagef("--user, --tenant and --channel are about an agent, and --app names none")
		}
		return nil
	}
	a.user = strings.TrimSpace(orElse(a.user, me))
	a.tenant = strings.TrimSpace(orElse(a.tenant, a.user))
	return a.check()
}

// channelID is what a channel's id looks like that init writes into session keys.
var channelID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// check says which answer cannot be.
func (a *answers) check() error {
	named := func(text string) bool {
		first, _ := utf8.DecodeRuneInString(text)
		return (unicode.IsLetter(first) || unicode.IsDigit(first)) && !strings.ContainsFunc(text, func(r rune) bool { return r == '/' || !unicode.IsPrint(r) })
	}
	switch {
	case !api.ValidAppID(a.app):
		return fmt.Errorf("cannot use the app %q: want its id, which is a package name such as @acme/alice-runtime", a.app)
	case !named(a.user):
		return fmt.Errorf("cannot use the user %q: want a name that begins with a letter or a digit and has no slash", a.user)
	case !named(a.tenant):
		return fmt.Errorf("cannot use the tenant %q: want a name that begins with a letter or a digit and has no slash", a.tenant)
	case a.channel != "" && !channelID.MatchString(a.channel):
		return fmt.Errorf("cannot use the channel %q: want an id such as telegram, of letters, digits, dots, hyphens and underscores", a.channel)
	}
	return nil
}

// asks reports whether somebody is there who can answer.
func (s *shell) asks() bool { return isTerminal(s.stdin) && isTerminal(s.stderr) }

// question asks on stderr, and returns what is proposed where nothing is said.
func (s *shell) question(in *bufio.Reader, text, proposed string) (string, error) {
	if proposed != "" {
		text += " [" + proposed + "]"
	}
	if _, err := fmt.Fprintf(s.stderr, "%s: ", printable(text)); err != nil {
		return "", err
	}
	line, err := in.ReadString('\n')
	if err != nil && line == "" {
		return "", fmt.Errorf("cannot read the answer: %w; nothing was written", err)
	}
	return orElse(strings.TrimSpace(line), proposed), nil
}

// config is the default configuration with the answers in it. An answer that
// cannot be is an error.
func (a *answers) config() ([]byte, error) {
	text := configs.Default()
	if a.app == "" {
		return text, nil
	}
	id := agentID(a.user)
	agent := fmt.Sprintf(`agents:
  - id: %s                            # the agentId of session keys
    app: %s                           # the app that speaks for it
    instance_id: %s
    user_id: %s
    # Between units the policy asks more: policy.data.cross_org.
    org_unit: general
    tenant_id: %s
`, quoted(id), quoted(a.app), quoted("agent-"+id+"-1"), quoted(a.user), quoted(a.tenant))
	replace := []struct{ was, is string }{{"agents: []\n", agent}, {"default_agent: \"\"\n", "default_agent: " + quoted(id) + "\n"}}
	if a.channel != "" {
		replace = append(replace, []struct{ was, is string }{
			{"routes: []\n", fmt.Sprintf("routes:\n  - session: %s\n    agent: %s\n", quoted(a.channel+":*"), quoted(id))},
			{"channels: {}\n", fmt.Sprintf("channels:\n  %s: {}\n", quoted(a.channel))},
		}...)
	}
	for _, r := range replace {
		if bytes.Count(text, []byte("\n"+r.was)) != 1 {
			return nil, fmt.Errorf("cannot write a configuration: the default one has no line %q", strings.TrimSpace(r.was))
		}
		text = bytes.Replace(text, []byte("\n"+r.was), []byte("\n"+r.is), 1)
	}
	if _, err := config.Parse("the configuration", text); err != nil {
		// The places in it are of no interest: nobody has the file.
		return nil, errors.New("cannot use these answers: " + err.Error())
	}
	return text, nil
}

// agentID is the id of a user's agent: what session keys can hold of the name.
func agentID(user string) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune("-_.", r):
			return unicode.ToLower(r)
		}
		return '-'
	}, user)
	return orElse(strings.Trim(id, "-"), "agent")
}

// quoted is a text as YAML has it whatever it holds.
func quoted(text string) string { return string(appendQuoted(nil, text)) }

func appendQuoted(out []byte, text string) []byte {
	out, err := jsontext.AppendQuote(out, strings.ToValidUTF8(text, "\ufffd"))
	if err != nil {
		panic("ocipd: valid text cannot fail to be quoted: " + err.Error())
	}
	return out
}

func thereAlready(file string) error {
	return fmt.Errorf("cannot write %s: it is there already", file)
}

// writeConfig writes a file for its owner alone, and none that is there.
func writeConfig(file string, text []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("cannot make the configuration's directory: %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return thereAlready(file)
	}
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		// Half a configuration is none.
		return errors.Join(fmt.Errorf("cannot write the configuration: %w", err), os.Remove(file))
	}
	return nil
}
