// Package contactcmd has the commands about the address book.
package contactcmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/spf13/cobra"
)

// New returns the commands about the address book.
func New(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.GroupAround(&cobra.Command{Use: "contacts", Short: "list whom your agents spoke to, and name them"}, newContactsList(s))
	c.AddCommand(newContactsAdd(s), newContactsBind(s), newContactsForget(s))
	return c
}

func newContactsList(s *command) *cobra.Command {
	var params api.ContactListParams
	var limit int
	var asJSON, unknown, entries bool
	c := &cobra.Command{
		Use:   "list",
		Short: "list the sessions of your agents, and who is there",
		Long: `List the sessions of your agents, most recent first, and who is there: as the
configuration says, as an envelope has shown ("learned"), or unknown. With
--entries, list the entries of the directory file instead; that needs no daemon.`,
		Example: "  ocipd contacts list --unknown\n  ocipd contacts add telegram:4711 --user dave",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.Usagef("cannot read --limit %d: want at least 1", limit)
			}
			if entries {
				return s.listEntries(asJSON)
			}
			return s.listContacts(cmd.Context(), params, limit, unknown, asJSON)
		},
	}
	flags := c.Flags()
	flags.StringVar(&params.Agent, "agent", "", "those of the agent of this `ID`")
	flags.StringVar(&params.Channel, "channel", "", "those of the channel of this `ID`")
	flags.BoolVar(&unknown, "unknown", false, "those that nobody declared")
	flags.BoolVar(&entries, "entries", false, "the entries of the directory file, in the file's order")
	flags.IntVarP(&limit, "limit", "n", api.DefaultPage, "look at the `N` sessions that were used last")
	flags.BoolVar(&asJSON, "json", false, "print JSON, one contact a line")
	return c
}

func (s *command) listContacts(ctx context.Context, params api.ContactListParams, limit int, unknown, asJSON bool) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	scr, now := s.Screen(), time.Now()
	t := &term.Table{Columns: []term.Column{{Title: "SESSION", Whole: true}, {Title: "AGENT", Whole: true}, {Title: "WHO", Whole: true, Below: true}, {Title: "MESSAGES", Least: 8, Right: true}, {Title: "LAST", Least: 4, Right: true}}}
	var printed, total int
	var altered []string
	for {
		size := min(limit-params.Offset, api.MaxPage)
		params.Limit = &size
		var page struct {
			Contacts []jsontext.Value `json:"contacts"`
			Total    int              `json:"total"`
			Altered  []string         `json:"altered"`
		}
		if err := s.AskPage(ctx, c.Call, "contact.list", &params, &page); err != nil {
			return fmt.Errorf("cannot list contacts: %w", err)
		}
		for _, raw := range page.Contacts {
			var one api.Contact
			if err := json.Unmarshal(raw, &one); err != nil {
				return fmt.Errorf("cannot read a contact of the daemon: %w", err)
			}
			if unknown && one.Kind != kindUnknown {
				continue
			}
			printed++
			if asJSON {
				if _, err := s.Stdout.Write(scr.JSONLine(raw)); err != nil {
					return err
				}
				continue
			}
			t.Add(term.AddressOf(one.SessionKey), term.Plain(one.Agent), whoIs(&one), term.Plain(fmt.Sprint(one.MessageCount)), term.Plain(term.Age(now.Sub(one.LastActiveAt))))
		}
		altered = append(altered, page.Altered...)
		params.Offset += len(page.Contacts)
		if total = page.Total; len(page.Contacts) == 0 || params.Offset >= min(limit, total) {
			break
		}
	}
	if err := t.Write(s.Stdout, scr); err != nil {
		return err
	}
	s.NoteAltered(altered)
	if printed == 0 {
		fmt.Fprintln(s.Stderr, "nobody")
	}
	if total > params.Offset {
		fmt.Fprintf(s.Stderr, "looked at %d of %d sessions: --limit takes a larger number\n", params.Offset, total)
	}
	return nil
}

const kindUnknown = "unknown"

// whoIs describes a counterparty of an agent.
func whoIs(c *api.Contact) term.Cell {
	name := cmp.Or(c.InstanceID, c.UserID)
	if c.TenantID != "" && c.Kind == "agent" {
		name += " of " + c.TenantID
	}
	learned := ", learned"
	if len(c.SeenBy) > 0 {
		learned += " by " + strings.Join(c.SeenBy, ", ")
	}
	switch {
	case c.Kind == kindUnknown && len(c.SeenBy) > 0:
		return term.Tinted("nobody knows"+learned, term.Yellow)
	case c.Kind == kindUnknown:
		return term.Tinted("nobody knows", term.Yellow)
	case c.Kind == "owner":
		return term.Plain("its owner, " + name)
	case c.Learned:
		return term.Tinted(name+learned, term.Yellow)
	}
	return term.Plain(strings.TrimSpace(c.Kind + " " + name))
}

func (s *command) listEntries(asJSON bool) error {
	cfg, err := s.Load(nil)
	if err != nil {
		return err
	}
	scr := s.Screen()
	t := &term.Table{Columns: []term.Column{{Title: "LINE", Least: 4, Right: true}, {Title: "KIND", Least: 6}, {Title: "WHO", Whole: true}, {Title: "ACCEPTS", Least: 7}, {Title: "SESSIONS", Whole: true, Below: true}}}
	for i := range cfg.Listed.Len() {
		e := config.Contact(cfg.Listed.At(i)).Shown()
		if asJSON {
			if _, err := s.Stdout.Write(scr.JSONLine(e.Line())); err != nil {
				return err
			}
			continue
		}
		_, line, _ := cutLast(cfg.SourceAt(keypath.Path{}.Key("directory_file").Index(i)), ":")
		who := cmp.Or(e.InstanceID, e.UserID)
		if e.Kind == "group" {
			who = term.Count(len(e.Members), "member")
		}
		t.Add(term.Plain(line), term.Plain(e.Kind), term.Plain(who), term.Plain(strings.Join(e.Accepts, ", ")), term.Plain(strings.Join(e.Sessions, ", ")))
	}
	if cfg.Listed.Len() == 0 {
		fmt.Fprintln(s.Stderr, "nobody")
	}
	return t.Write(s.Stdout, scr)
}

func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

const afterwards = "A running daemon reloads the file by itself; this\ncommand waits until it has."

func newContactsAdd(s *command) *cobra.Command {
	entry := config.Contact{Accepts: []string{"public", "internal"}}
	var noReload, pattern bool
	c := &cobra.Command{
		Use:   "add SESSION...",
		Short: "add a person, agent or group to the directory file",
		Long: `Add an entry to the directory file: a person with these sessions, unless --kind
or --instance says otherwise. If the configuration names no such file,
contacts.jsonl beside it becomes that file. ` + afterwards,
		Example: `  ocipd contacts add telegram:4711 --user dave
  ocipd contacts add irc:direct:carol --instance agent-carol-1 --user carol --org-unit marketing --tenant acme-corp
  ocipd contacts add 'irc:#team' --kind group --member agent-carol-1 --member telegram:4711`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if entry.Kind == "" {
				entry.Kind = "person"
				if entry.InstanceID != "" {
					entry.Kind = "agent"
				}
			}
			if len(args) == 0 && entry.Kind != "agent" {
				return cli.Usagef("name the sessions that reach the contact, such as telegram:4711")
			}
			if err := oneSession(pattern, args...); err != nil {
				return err
			}
			entry.Sessions = args
			f, err := s.openContacts(cmd.Context())
			if err != nil {
				return err
			}
			defer f.Close()
			f.Add(&entry)
			return s.keepContacts(cmd.Context(), f, noReload, "added "+contactName(&entry))
		},
	}
	flags := c.Flags()
	flags.StringVar(&entry.Kind, "kind", "", "`KIND`: person, agent or group")
	flags.StringVar(&entry.UserID, "user", "", "`NAME` of the person, or of whose agent it is")
	flags.StringVar(&entry.InstanceID, "instance", "", "`ID` of an agent elsewhere")
	flags.StringVar(&entry.OrgUnit, "org-unit", "", "`NAME` of the unit of an agent")
	flags.StringVar(&entry.TenantID, "tenant", "", "`NAME` of the company or household")
	flags.StringSliceVar(&entry.Accepts, "accepts", entry.Accepts, "`LEVELS` that may go there")
	flags.StringArrayVar(&entry.Members, "member", nil, "`ID` of an agent in a group, or a person's session; repeatable")
	flags.BoolVar(&pattern, "pattern", false, "a session that ends in * stands for all that begin so")
	flags.BoolVar(&noReload, "no-reload", false, "do not wait for a running daemon")
	return c
}

// oneSession refuses a pattern of sessions, unless the command permits it explicitly: an
// agent chooses the names of sessions, and a person copies them.
func oneSession(pattern bool, sessions ...string) error {
	for _, session := range sessions {
		if !pattern && text.IsPattern(session) {
			return cli.Usagef("%q stands for every session that begins so: if that is meant, ocipd contacts add --pattern", session)
		}
	}
	return nil
}

// contactName describes an entry in a message.
func contactName(c *config.Contact) string {
	name := c.Kind
	if who := cmp.Or(c.InstanceID, c.UserID); who != "" {
		name += " " + who
	}
	if len(c.Sessions) > 0 {
		name += " at " + strings.Join(c.Sessions, ", ")
	}
	return name
}

func newContactsBind(s *command) *cobra.Command {
	var me, yes, noReload bool
	var to, agent string
	c := &cobra.Command{
		Use:   "bind [SESSION]",
		Short: "mark a session as your own, or as somebody's of the directory file",
		Long: `Name the owner of a session: with --me the owner of your agent, who is no
stranger to it; with --to the entry of the directory file with this user or instance id.
Without a session, --me proposes unknown sessions with incoming messages, the newest
first, and no rooms: so first write to your agent. --yes takes the first of them that
the app of a channel reported; a report by the agent's own app is not enough.
` + afterwards,
		Example: "  ocipd contacts bind --me\n  ocipd contacts bind telegram:4711 --me\n  ocipd contacts bind signal:dave --to dave",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if me == (to != "") {
				return cli.Usagef("say whose the session is: --me, or --to with an id")
			}
			session := ""
			if len(args) > 0 {
				session = args[0]
			}
			return s.bindContact(cmd.Context(), session, to, agent, yes, noReload)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&me, "me", false, "it is that of the agent's owner")
	flags.StringVar(&to, "to", "", "it is that of the entry with this user or instance `ID`")
	flags.StringVar(&agent, "agent", "", "`ID` of the agent whose owner is meant, where there are several")
	flags.BoolVar(&yes, "yes", false, "take the session that is proposed")
	flags.BoolVar(&noReload, "no-reload", false, "do not wait for a running daemon")
	return c
}

func (s *command) bindContact(ctx context.Context, session, to, agent string, yes, noReload bool) error {
	f, err := s.openContacts(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := oneSession(false, session); err != nil {
		return err
	}
	if session == "" {
		if to != "" {
			return cli.Usagef("name the session that is to be bound, such as telegram:4711")
		}
		found, err := s.proposeOwner(ctx, f.Config, agent, yes)
		if err != nil {
			return err
		}
		session, agent = found.SessionKey, found.Agent
	}
	if to == "" {
		owner, err := ownerOf(f.Config, agent)
		if err != nil {
			return err
		}
		if f.Attach(session, func(c *config.Contact) bool { return c.Kind == "person" && c.UserID == owner }) == nil {
			mine := config.Contact{Kind: "person", UserID: owner, Accepts: []string{"public", "internal"}, Sessions: []string{session}}
			f.Add(&mine)
		}
		return s.keepContacts(ctx, f, noReload, session+" is that of "+owner+", the agent's owner")
	}
	known := f.Attach(session, func(c *config.Contact) bool { return c.InstanceID == to || c.UserID == to })
	if known == nil {
		return fmt.Errorf("cannot bind %s: %s has no entry with the user or instance id %q; make one: ocipd contacts add %[1]s --user %[3]s", session, f.Path, to)
	}
	return s.keepContacts(ctx, f, noReload, "bound "+contactName(known))
}

// ownerOf is the user of an agent. With several users, the agent must be named.
func ownerOf(cfg *config.Config, agent string) (string, error) {
	owner := ""
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		switch {
		case agent != "" && a.ID != agent:
		case owner != "" && owner != a.UserID:
			return "", cli.Usagef("there are agents of several users: say with --agent whose session it is")
		default:
			owner = a.UserID
		}
	}
	switch {
	case owner != "":
		return owner, nil
	case agent != "":
		return "", fmt.Errorf("there is no agent %q in %s", agent, cfg.File)
	}
	return "", fmt.Errorf("there is no agent in %s, so there is no owner of one: ocipd config init", cfg.File)
}

// proposeOwner asks whether an unknown session belongs to the owner. It proposes only
// sessions from which somebody wrote, because an agent can write to any session.
func (s *command) proposeOwner(ctx context.Context, cfg *config.Config, agent string, yes bool) (*api.Contact, error) {
	if !yes && !s.Asks() {
		return nil, cli.Usagef("name your session, such as telegram:4711, or take with --yes the one that nobody knows and that somebody wrote from last")
	}
	c, err := s.DialOperator(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	size := api.MaxPage
	var page api.ContactListResult
	if err := s.AskPage(ctx, c.Call, "contact.list", &api.ContactListParams{Agent: agent, Limit: &size}, &page); err != nil {
		return nil, err
	}
	in := bufio.NewReader(s.Stdin)
	for i := range page.Contacts {
		one := &page.Contacts[i]
		if one.Kind != kindUnknown || one.Group || text.IsPattern(one.SessionKey) || strings.HasPrefix(one.SessionKey, "agent:") {
			continue
		}
		wrote, reporter, err := s.wroteFrom(ctx, c, cfg, one)
		switch {
		case err != nil:
			return nil, err
		case !wrote || yes && reporter != "":
			continue
		case yes:
			return one, nil
		case reporter != "":
			reporter = ", as " + reporter + " reports"
		}
		mine, err := s.Consents(in, fmt.Sprintf("%s wrote to %s%s, %s in all, the last one %s ago. Is that you? [y/N]",
			one.SessionKey, one.Agent, reporter, term.Count(int(one.MessageCount), "message"), term.Age(time.Since(one.LastActiveAt))))
		if mine || err != nil {
			return one, err
		}
	}
	return nil, errors.New("there is no other session that nobody knows and that somebody wrote from: write to your agent from your own chat, and try again")
}

// wroteFrom reports whether somebody wrote to an agent from a session, by the newest
// records. reporter is the agent's own app if no other app has reported it.
func (s *command) wroteFrom(ctx context.Context, c *client.Client, cfg *config.Config, from *api.Contact) (wrote bool, reporter string, err error) {
	i := slices.IndexFunc(cfg.Agents, func(a config.Agent) bool { return a.ID == from.Agent })
	if i < 0 {
		return false, "", nil
	}
	a := &cfg.Agents[i]
	params := api.AuditQueryParams{Filter: audit.Filter{Like: audit.Record{SessionKey: from.SessionKey, AgentID: a.InstanceID, Event: "human_message"}}}
	var page api.AuditQueryResult
	if err := s.AskPage(ctx, c.Call, "audit.query", &params, &page); err != nil {
		return false, "", fmt.Errorf("cannot read who wrote from %s: %w", from.SessionKey, err)
	}
	for _, line := range page.Records {
		r, err := audit.Parse(line)
		if err != nil {
			return false, "", fmt.Errorf("cannot read a record of the daemon: %w", err)
		}
		if r.AppID != a.App {
			return true, "", nil
		}
	}
	return len(page.Records) > 0, a.App, nil
}

func newContactsForget(s *command) *cobra.Command {
	var params api.ContactForgetParams
	var key string
	var entry, asJSON, noReload bool
	c := &cobra.Command{
		Use: "forget SESSION",
		Example: "  ocipd contacts forget telegram:4711\n" +
			"  ocipd contacts forget 'irc:#team' --entry --note 'left the company'",
		Short: "forget what messages have shown about a session",
		Long: `Have the daemon forget what messages have shown about a session: which agent is
there, and where its answers go. Your own entries stay. With --entry, the session
is also removed from the directory file, and its entry with its last session.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			params.SessionKey = args[0]
			return s.forgetContact(cmd.Context(), key, &params, entry, asJSON, noReload)
		},
	}
	flags := c.Flags()
	cli.KeyFlag(c, &key)
	flags.StringVar(&params.Note, "note", "", "`TEXT` for the record")
	flags.BoolVar(&entry, "entry", false, "take the session out of the directory file too")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.BoolVar(&noReload, "no-reload", false, "do not wait for a running daemon")
	return c
}

func (s *command) forgetContact(ctx context.Context, key string, params *api.ContactForgetParams, entry, asJSON, noReload bool) error {
	if entry {
		f, err := s.openContacts(ctx)
		if err != nil {
			return err
		}
		defer f.Close()
		if f.Detach(params.SessionKey) {
			if err := s.keepContacts(ctx, f, noReload, "took "+params.SessionKey+" out"); err != nil {
				return err
			}
		} else {
			fmt.Fprintln(s.Stderr, term.Printable(f.Path+" has no entry with "+params.SessionKey))
		}
	}
	var result api.ContactForgetResult
	if err := s.OperateSigned(ctx, key, "contact.forget", params, &result); err != nil {
		if entry && errors.Is(err, client.ErrNotRunning) {
			fmt.Fprintln(s.Stderr, "no daemon is running, so that what it learned stays")
			return nil
		}
		return err
	}
	switch {
	case asJSON:
		return s.PrintJSON(result)
	case !result.Changed:
		_, err := fmt.Fprintln(s.Stdout, "nothing was learned of it")
		return err
	}
	what := "where answers go"
	if result.InstanceID != "" {
		what = "the agent " + result.InstanceID
		if result.TenantID != "" {
			what += " of " + result.TenantID
		}
	}
	_, err := fmt.Fprintf(s.Stdout, "forgot %s (record %d)\n", term.Printable(what), result.AuditSeq)
	return err
}

// openContacts reads the directory file that the running daemon uses, or would use.
func (s *command) openContacts(ctx context.Context) (*configfile.Directory, error) {
	cfg, err := s.Load(nil)
	if err != nil {
		return nil, err
	}
	if cfg.File == "" {
		return nil, errors.New("cannot tell where contacts belong: there is no configuration; ocipd config init writes one")
	}
	var live api.Status
	switch err := s.Operate(ctx, "kernel.status", nil, &live); {
	case errors.Is(err, client.ErrNotRunning):
	case err != nil:
		return nil, err
	case live.ConfigFile != "" && !fileowner.Same(live.ConfigFile, cfg.File):
		return nil, fmt.Errorf("cannot tell whose contacts are meant: the daemon reads %s, and this is %s; name it with --config", live.ConfigFile, cfg.File)
	}
	return configfile.OpenDirectory(cfg)
}

// keepContacts writes the file, and has a running daemon reload it.
func (s *command) keepContacts(ctx context.Context, f *configfile.Directory, noReload bool, did string) error {
	if err := f.Write(s.LoadFile); err != nil {
		return err
	}
	where := f.Path
	if f.Unnamed {
		where += ", which " + f.Config.File + " names from now on"
	}
	if _, err := fmt.Fprintf(s.Stdout, "%s (%s)\n", term.Printable(did), term.Printable(where)); err != nil || noReload {
		return err
	}
	return s.taken(ctx)
}

// taken waits until a running daemon has loaded the changes.
func (s *command) taken(ctx context.Context) error {
	var result api.PolicyReloadResult
	switch err := s.Operate(ctx, "policy.reload", nil, &result); {
	case errors.Is(err, client.ErrNotRunning):
		_, err := fmt.Fprintln(s.Stdout, "no daemon is running: the next one takes it")
		return err
	case err != nil:
		return fmt.Errorf("it is written, and the running daemon does not take it: %w", err)
	}
	_, err := fmt.Fprintln(s.Stdout, "the running daemon has taken it")
	return err
}
