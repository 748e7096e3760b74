package kernelcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewQueue returns the commands about messages that wait for their app.
func NewQueue(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.GroupAround(&cobra.Command{Use: "queue", Short: "list allowed messages that are not delivered yet, or drop them"}, newQueueList(s))
	c.AddCommand(newQueueDrop(s))
	return c
}

func newQueueList(s *command) *cobra.Command {
	var params api.QueueListParams
	var limit int
	var asJSON bool
	c := &cobra.Command{
		Use: "list",
		Example: "  ocipd queue list\n" +
			"  ocipd queue list --json",
		Short: "list messages that are not delivered yet",
		Long: `List the messages that were allowed and have not reached their apps, because the
app is not connected, is slow, or sending is paused. Each queue is in the order
of the decisions. --json prints one message a line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.Usagef("cannot read --limit %d: want at least 1", limit)
			}
			return s.listQueue(cmd.Context(), params, limit, asJSON)
		},
	}
	flags := c.Flags()
	flags.StringVar(&params.Queue, "queue", "", "the queue of this `NAME`, such as channel:telegram or agent:bob")
	flags.StringVar(&params.Agent, "agent", "", "what the agent of this `ID` sends or is sent")
	flags.StringVar(&params.Channel, "channel", "", "what goes through the channel of this `ID`")
	flags.IntVarP(&limit, "limit", "n", api.DefaultPage, "print at most `N` messages")
	flags.BoolVar(&asJSON, "json", false, "print JSON, one message a line")
	return c
}

func (s *command) listQueue(ctx context.Context, params api.QueueListParams, limit int, asJSON bool) error {
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	scr, now := s.Screen(), time.Now()
	t := &term.Table{Columns: []term.Column{{Title: "DISPATCH", Whole: true}, {Title: "TO", Whole: true, Below: true}, {Title: "FROM", Whole: true, Below: true}, {Title: "BYTES", Least: 5, Right: true}, {Title: "STATE", Whole: true}, {Title: "TEXT", Least: 20, Below: true}}}
	printed := 0
	var more bool
	for {
		size := min(limit-printed, api.MaxPage)
		params.Limit = &size
		var page struct {
			Messages []jsontext.Value `json:"messages"`
			Next     string           `json:"next"`
		}
		if err := s.AskPage(ctx, c.Call, "queue.list", &params, &page); err != nil {
			return fmt.Errorf("cannot list what waits: %w", err)
		}
		for _, raw := range page.Messages {
			if asJSON {
				if _, err := s.Stdout.Write(scr.JSONLine(raw)); err != nil {
					return err
				}
				continue
			}
			var m api.QueuedMessage
			if err := json.Unmarshal(raw, &m); err != nil {
				return fmt.Errorf("cannot read a message of the daemon: %w", err)
			}
			t.Add(queueRow(&m, now)...)
		}
		printed += len(page.Messages)
		if params.After, more = page.Next, page.Next != ""; !more || printed >= limit {
			break
		}
	}
	if err := t.Write(s.Stdout, scr); err != nil {
		return err
	}
	if printed == 0 {
		fmt.Fprintln(s.Stderr, "nothing waits")
	}
	if more {
		fmt.Fprintf(s.Stderr, "there are more: --limit takes a larger number than %d\n", limit)
	}
	return nil
}

func queueRow(m *api.QueuedMessage, now time.Time) []term.Cell {
	state := term.Plain("waits")
	switch {
	case m.Paused != "":
		state = term.Tinted("paused: "+m.Paused, term.Yellow)
	case m.Handed:
		state = term.Tinted("on its way", term.Dim)
	case !m.ExpiresAt.IsZero():
		state = term.Plain("waits, " + term.Age(m.ExpiresAt.Sub(now)) + " left")
	}
	text := m.Summary
	if text == "" {
		text = m.Event
	}
	return []term.Cell{term.Plain(m.DispatchID), term.AddressOf(cmp.Or(m.SessionKey, m.Queue)), term.Plain(cmp.Or(m.Sender, "outside")), term.Plain(fmt.Sprint(m.Bytes)), state, term.Plain(text)}
}

func newQueueDrop(s *command) *cobra.Command {
	var params api.QueueDropParams
	var key string
	var asJSON bool
	c := &cobra.Command{
		Use:     "drop DISPATCH...",
		Example: "  ocipd queue drop 01a1fdba-c941-7b42-b28b-d2b9d6bad93f --note 'no longer true'",
		Short:   "drop messages that are not delivered yet",
		Long: `Drop messages for good, by their dispatch ids. They are not delivered, and the
record names who dropped them. A message that is already on its way to its app
cannot be dropped; "ocipd pause" holds back the rest.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("no message is named: give dispatch ids, as ocipd queue list shows them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			params.DispatchIDs = args
			return s.dropQueued(cmd.Context(), key, &params, asJSON)
		},
	}
	flags := c.Flags()
	flags.StringVar(&params.Queue, "queue", "", "look only in the queue of this `NAME`")
	flags.StringVar(&params.Note, "note", "", "`TEXT` for the record")
	cli.KeyFlag(c, &key)
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (s *command) dropQueued(ctx context.Context, key string, params *api.QueueDropParams, asJSON bool) error {
	var result api.QueueDropResult
	if err := s.OperateSigned(ctx, key, "queue.drop", params, &result); err != nil {
		return fmt.Errorf("cannot drop what waits: %w", err)
	}
	if asJSON {
		if err := s.PrintJSON(&result); err != nil {
			return err
		}
	} else {
		for _, d := range result.Dropped {
			given := ""
			if d.Given {
				given = "; a reader that has gone was given it before"
			}
			fmt.Fprintf(s.Stdout, "dropped %s from %s (record %d)%s\n", term.Printable(d.DispatchID), term.Printable(d.Queue), d.AuditSeq, given)
		}
	}
	for _, k := range result.Kept {
		fmt.Fprintf(s.Stderr, "ocipd: cannot drop %s: %s\n", term.OneLine(k.DispatchID), term.OneLine(k.Reason))
	}
	if len(result.Kept) > 0 {
		return cli.ErrSaid
	}
	return nil
}
