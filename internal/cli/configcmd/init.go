package configcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
	"github.com/openclawos/ocipd/internal/config/yamltext"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
)

// answers are the values of a first configuration. Without an app it has no agent, without
// a channel no session, and without a chat no session of the owner.
type answers struct {
	app, user, tenant, channel string
	// chat is the owner's own chat, as the channel names it. known are the chats of people
	// to whom the agent may write.
	chat  string
	known []string
	// strangers is the treatment of the first message to anybody else, a word of strangerRules.
	strangers string
	// media are the folders from which the agent may send files.
	media []string
	// signer is the file of a public key that signs decisions.
	signer string
}

func newConfigInit(s *command) *cobra.Command {
	var a answers
	var yes bool
	c := &cobra.Command{
		Use:   "init [FILE]",
		Short: "create a first configuration interactively",
		Long: `Create a first configuration: which program runs your agent, whose agent it is,
where it writes, and to whom. At a terminal, the programs found on this machine
are offered, a wrong answer is asked for again at once, and Enter takes the
proposed answer; at the end a first message is sent if a daemon is running. Flags
answer questions beforehand, and --yes takes every proposal. Without a program the
file names no agent and holds only defaults. Every key is there with a comment,
and contacts.jsonl beside it is for the people and agents you know. An existing
file is never overwritten.

Decisions can be made to need a signature. Only keys that wait for a touch are
offered (ssh-keygen -t ed25519-sk), because a plain key in ssh-agent signs for
every process of yours, your agents' included.`,
		Example: "  ocipd config init\n" +
			"  ocipd config init --app @acme/alice-runtime --user alice --tenant acme-corp --channel telegram --knows 4711,4712",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := s.configArg(args)
			if err != nil {
				return err
			}
			if file == "" {
				file = config.FilePath(s.Getenv)
			}
			if file == "" {
				return errors.New("cannot tell where the configuration belongs: HOME is not set; name a file")
			}
			if _, err := os.Lstat(file); err == nil {
				return thereAlready(file) // before anybody answers questions for nothing
			}
			in := bufio.NewReader(s.Stdin)
			asks := !yes && s.Asks()
			if err := s.answer(in, &a, asks); err != nil {
				return err
			}
			if err := s.begin(file, &a); err != nil {
				return err
			}
			return s.next(cmd.Context(), in, cli.Absolute(file), &a, asks)
		},
	}
	flags := c.Flags()
	flags.StringVar(&a.app, "app", "", "app `ID` of the program that runs the agent, such as @acme/alice-runtime")
	flags.StringVar(&a.user, "user", "", "`NAME` of whose agent it is")
	flags.StringVar(&a.tenant, "tenant", "", "`NAME` of the company or household that the user belongs to")
	flags.StringVar(&a.channel, "channel", "", "`ID` of the channel that reaches the agent, such as telegram")
	flags.StringVar(&a.chat, "chat", "", "`ID` of the user's own chat in that channel")
	flags.StringSliceVar(&a.known, "knows", nil, "`IDS` of other people's chats in that channel whom the agent may write to")
	flags.StringVar(&a.strangers, "strangers", "", "whether it may write first to anybody else: `ANSWER` yes, ask or no (default ask)")
	cli.Choices(c, "strangers", []string{"yes", "ask", "no"})
	flags.StringArrayVar(&a.media, "media", nil, "`FOLDER` out of which the agent may send files; repeatable")
	flags.StringVar(&a.signer, "signer", "", "`FILE` of the public key, one that waits for a touch, that signs decisions")
	flags.BoolVar(&yes, "yes", false, "ask nothing, and take what is proposed")
	return c
}

// begin writes the files for the answers. It writes the configuration last, because a
// daemon may be waiting for it.
func (s *command) begin(file string, a *answers) error {
	signers := ""
	if a.signer != "" {
		// Absolute, because the daemon runs in another folder.
		signers = filepath.Join(filepath.Dir(cli.Absolute(file)), "allowed_signers")
	}
	text, err := a.config(signers)
	if err != nil {
		return err
	}
	contacts := filepath.Join(filepath.Dir(file), configfile.DirectoryName)
	wrote := []string{}
	put := func(path, content string) error {
		if content == "" || cli.Exists(path) {
			return nil
		}
		wrote = append(wrote, path)
		return WriteNew(path, []byte(content))
	}
	line, err := a.signerLine()
	if err != nil {
		return err
	}
	if signers != "" && cli.Exists(signers) {
		return thereAlready(signers)
	}
	err = errors.Join(put(contacts, configfile.DirectoryHead+a.contacts()), put(signers, line))
	if err == nil {
		err = WriteNew(file, text)
	}
	if err != nil {
		for _, path := range wrote {
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}
	said := "wrote " + file
	if len(wrote) > 0 {
		said += " and beside it " + strings.Join(bases(wrote), " and ")
	}
	fmt.Fprintln(s.Stdout, term.Printable(said))
	switch {
	case a.app == "":
		fmt.Fprintln(s.Stdout, "it names no agent yet, so nobody can send: ocipd config add-agent ID adds one")
	case a.channel != "" && a.chat == "":
		fmt.Fprintln(s.Stdout, "your own chat is a stranger's until you say so: write to your agent, then ocipd contacts bind --me")
	case a.chat != "" && !slices.Contains(wrote, contacts):
		fmt.Fprintf(s.Stdout, "%s was there already: ocipd contacts bind %s --me\n", term.Printable(contacts), term.Printable(a.channel+":"+a.chat))
	}
	return nil
}

func bases(paths []string) []string {
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = filepath.Base(path)
	}
	return names
}

// channelID matches the channel ids that init writes into session keys.
var channelID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// check returns an error if an answer is impossible.
func (a *answers) check() error {
	if a.app == "" {
		_, err := a.signerLine()
		return err
	}
	for _, check := range []func() error{func() error { return checkApp(a.app) }, a.checkNames, a.checkChannel, a.checkStrangers, a.checkMedia} {
		if err := check(); err != nil {
			return err
		}
	}
	_, err := a.signerLine()
	return err
}

func checkApp(id string) error {
	if id != "" && !api.ValidAppID(id) {
		return fmt.Errorf("cannot use the app %q: want its id, which is a package name such as @acme/alice-runtime", id)
	}
	return nil
}

func (a *answers) checkNames() error {
	return cmp.Or(CheckName("user", a.user), CheckName("tenant", a.tenant))
}

// CheckName returns an error if a user or a tenant cannot have the name. The first argument is "user"
// or "tenant", for the error.
func CheckName(what, name string) error {
	first, _ := utf8.DecodeRuneInString(name)
	if !unicode.IsLetter(first) && !unicode.IsDigit(first) || strings.ContainsFunc(name, func(r rune) bool { return r == '/' || !unicode.IsPrint(r) }) {
		return fmt.Errorf("cannot use the %s %q: want a name that begins with a letter or a digit and has no slash", what, name)
	}
	return nil
}

func (a *answers) checkChannel() error {
	switch {
	case a.channel != "" && !channelID.MatchString(a.channel):
		return fmt.Errorf("cannot use the channel %q: want an id such as telegram, of letters, digits, dots, hyphens and underscores", a.channel)
	case a.channel == "" && (a.chat != "" || len(a.known) > 0):
		return cli.Usagef("--chat and --knows are chats of a channel, and --channel names none")
	}
	for _, session := range a.sessions() {
		if _, err := config.Parse("", []byte("directory: [{kind: person, sessions: ["+yamltext.Quote(session)+"]}]")); err != nil || text.IsPattern(session) {
			return fmt.Errorf("cannot use the chat %q: want what the channel's app calls it, such as 4711", strings.TrimPrefix(session, a.channel+":"))
		}
	}
	return nil
}

// sessions are the named chats, the owner's first.
func (a *answers) sessions() (keys []string) {
	for _, chat := range append([]string{a.chat}, a.known...) {
		if chat != "" {
			keys = append(keys, a.channel+":"+chat)
		}
	}
	return keys
}

// somebodyElse returns a session of another person than the owner, to whom an agent may promise
// anything: of one whom the owner named, or else of a stranger.
func (a *answers) somebodyElse() string {
	chat := "4711"
	switch {
	case len(a.known) > 0:
		chat = a.known[0]
	case a.chat == chat:
		chat = "4712"
	}
	return cmp.Or(a.channel, "telegram") + ":" + chat
}

// strangerRules maps the answers about strangers to values of the configuration.
func strangerRules() map[string]string {
	return map[string]string{"yes": "allow", "ask": "hold", "no": "deny"}
}

func (a *answers) checkStrangers() error {
	if strangerRules()[a.strangers] == "" {
		return fmt.Errorf("cannot use the answer %q about strangers: want yes, ask or no", a.strangers)
	}
	return nil
}

func (a *answers) checkMedia() error {
	for _, folder := range a.media {
		info, err := os.Stat(folder)
		switch {
		case !filepath.IsAbs(folder) || filepath.Clean(folder) != folder || folder == "/":
			return fmt.Errorf("cannot use the folder %q: want an absolute path, such as /home/me/pictures", folder)
		case err != nil || !info.IsDir():
			return fmt.Errorf("cannot use the folder %q: there is none", folder)
		}
	}
	return nil
}

// touchedKey is a public key in ~/.ssh whose private key needs a touch.
type touchedKey struct{ path, name string }

// touchedKeys are the keys to propose.
func (s *command) touchedKeys() (keys []touchedKey) {
	found, _ := filepath.Glob(filepath.Join(s.Getenv("HOME"), ".ssh", "*.pub")) // the pattern is well-formed
	for _, path := range found {
		if _, err := touched(path); err == nil {
			keys = append(keys, touchedKey{path, "the key " + filepath.Base(path)})
		}
	}
	return keys
}

// touched reads a public key, if it needs a touch for each use.
func touched(path string) (ssh.PublicKey, error) {
	text, err := cli.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key: %w", err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use the key %s: want the file of a public key, such as ~/.ssh/id_ed25519_sk.pub", path)
	}
	if key.Type() != ssh.KeyAlgoSKED25519 && key.Type() != ssh.KeyAlgoSKECDSA256 {
		return nil, fmt.Errorf("cannot use the key %s: it waits for no touch, so that it signs for every process of yours once ssh-agent has it; "+
			"ssh-keygen -t ed25519-sk makes one that does. To rely on ssh-add -c instead, write approvals.allowed_signers yourself", path)
	}
	return key, nil
}

// signerLine is the file of signers, or "" if there is no signer.
func (a *answers) signerLine() (string, error) {
	if a.signer == "" {
		return "", nil
	}
	key, err := touched(a.signer)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s namespaces=%q %s", cmp.Or(agentID(a.user), "owner"), api.ApprovalNamespace, ssh.MarshalAuthorizedKey(key)), nil
}

// contacts are the lines of the directory file for the named people.
func (a *answers) contacts() string {
	var b strings.Builder
	for _, session := range a.sessions() {
		c := config.Contact{Kind: "person", Accepts: []string{"public", "internal"}, Sessions: []string{session}}
		if session == a.channel+":"+a.chat {
			c.UserID = a.user
		}
		b.Write(append(c.Line(), '\n'))
	}
	return b.String()
}

// config returns the default configuration with the answers in it. signers is the file of
// signers. An impossible answer is an error.
func (a *answers) config(signers string) ([]byte, error) {
	text, id := configs.Default(), agentID(a.user)
	const contact = "    # The first message to somebody: allow, hold or deny.\n    first_contact: "
	// An agent that is added later is held too.
	strangers := strangerRules()[cmp.Or(a.strangers, "ask")]
	replace := []struct{ was, is string }{{"directory_file: \"\"\n", "directory_file: " + configfile.DirectoryName + "\n"}, {contact + "allow\n", contact + strangers + "\n"}}
	if signers != "" {
		replace = append(replace, struct{ was, is string }{"  allowed_signers: \"\"\n", "  allowed_signers: " + yamltext.Quote(signers) + "\n"})
	}
	if a.app == "" {
		return a.filled(text, replace)
	}
	speaks := "app: " + yamltext.Quote(a.app) + "                           # the app that speaks for it"
	if a.byToken() {
		speaks = "# No app: it speaks by the token that ocipd integrate " + a.app + " makes."
	}
	agent := fmt.Sprintf(`agents:
  - id: %s                            # the agentId of session keys
    %s
    instance_id: %s
    user_id: %s
    # Between units the policy asks more: policy.data.cross_org.
    org_unit: general
    tenant_id: %s
`, yamltext.Quote(id), speaks, yamltext.Quote("agent-"+id+"-1"), yamltext.Quote(a.user), yamltext.Quote(a.tenant))
	if len(a.media) > 0 {
		folders := make([]string, len(a.media))
		for i, folder := range a.media {
			folders[i] = "      - " + yamltext.Quote(folder) + "\n"
		}
		agent += "    media:                           # folders out of which files may be sent\n" + strings.Join(folders, "")
	}
	replace = append(replace, []struct{ was, is string }{{"agents: []\n", agent}, {"default_agent: \"\"\n", "default_agent: " + yamltext.Quote(id) + "\n"}}...)
	if a.channel != "" {
		replace = append(replace, []struct{ was, is string }{
			{"routes: []\n", fmt.Sprintf("routes:\n  - session: %s\n    agent: %s\n", yamltext.Quote(a.channel+":*"), yamltext.Quote(id))},
			{"channels: {}\n", fmt.Sprintf("channels:\n  %s: {}\n", yamltext.Quote(a.channel))},
		}...)
	}
	return a.filled(text, replace)
}

// byToken reports whether the agent's runtime speaks by a token, and has no app.
func (a *answers) byToken() bool { return slices.Contains(gatedRuntimes(), a.app) }

// filled is the default configuration with lines replaced.
func (a *answers) filled(text []byte, replace []struct{ was, is string }) ([]byte, error) {
	for _, r := range replace {
		if bytes.Count(text, []byte("\n"+r.was)) != 1 {
			return nil, fmt.Errorf("cannot write a configuration: the default one has no line %q", strings.TrimSpace(r.was))
		}
		text = bytes.Replace(text, []byte("\n"+r.was), []byte("\n"+r.is), 1)
	}
	if _, err := config.Parse("the configuration", text); err != nil {
		// Its positions mean nothing to the person, who has not seen the file.
		return nil, errors.New("cannot use these answers: " + err.Error())
	}
	return text, nil
}

// agentID derives an agent's id from the user's name, in the characters of session keys.
func agentID(user string) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune("-_.", r):
			return unicode.ToLower(r)
		}
		return '-'
	}, user)
	return cmp.Or(strings.Trim(id, "-"), "agent")
}

func thereAlready(file string) error {
	return fmt.Errorf("cannot write %s: it is there already; edit it, or name another file. Another agent: ocipd config add-agent ID", file)
}

// WriteNew writes a new file for its owner alone, and fails if it exists.
func WriteNew(file string, text []byte) (err error) {
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
		// Do not leave a partial configuration.
		return errors.Join(fmt.Errorf("cannot write the configuration: %w", err), os.Remove(file))
	}
	return nil
}
