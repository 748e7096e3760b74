// Package notices words notices about approval requests, and sends them in the configured ways.
package notices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/notices/notify"
	"github.com/openclawos/ocipd/internal/ocip"
	"go.uber.org/zap"
)

// notifyDrain bounds the delivery of the last notices when the daemon stops or the ways change.
const notifyDrain = time.Second

// Notices words notices for people. They never contain the message itself, because they may
// be shown on a locked screen, or mailed.
type Notices struct {
	getenv func(string) string
	log    *zap.Logger
	// ways are the notifiers, or nil. wanted is their configuration, and is used only by
	// Prepare's callers, one at a time.
	ways    atomic.Pointer[notify.Fanout]
	wanted  config.Notify
	drain   time.Duration
	closing sync.WaitGroup
}

// New returns notices without a way to send them yet.
func New(getenv func(string) string, log *zap.Logger) *Notices {
	return &Notices{getenv: getenv, log: log, drain: notifyDrain}
}

// Close waits until pending notices are sent.
func (n *Notices) Close() error {
	n.put(nil)
	n.closing.Wait()
	return nil
}

// Prepare makes the notifiers of a configuration, and returns the function that replaces
// the old ones by them. The old ones still send their pending notices.
func (n *Notices) Prepare(c config.Notify) (begin func(), err error) {
	if n.ways.Load() != nil && reflect.DeepEqual(c, n.wanted) {
		return func() {}, nil
	}
	var ways []notify.Notifier
	if c.Desktop {
		ways = append(ways, notify.NewDesktop(notify.DesktopOptions{Getenv: n.getenv, Log: n.log}))
	}
	if len(c.Command) > 0 {
		command, err := notify.NewCommand(notify.CommandOptions{Argv: c.Command, Getenv: n.getenv, Log: n.log})
		if err != nil {
			return nil, fmt.Errorf("cannot use approvals.notify.command: %w", err)
		}
		ways = append(ways, command)
	}
	return func() {
		n.wanted = c
		if len(ways) == 0 {
			n.put(nil)
			return
		}
		n.put(notify.NewFanout(notify.FanoutOptions{Notifiers: ways, Drain: n.drain, Log: n.log}))
	}, nil
}

// put replaces the ways; nil means none.
func (n *Notices) put(ways *notify.Fanout) {
	if old := n.ways.Swap(ways); old != nil {
		n.closing.Go(old.Close)
	}
}

// tell passes something to the current ways. If they were just replaced and take nothing
// more, it uses the new ones.
func (n *Notices) tell(what func(*notify.Fanout) error) error {
	for {
		ways := n.ways.Load()
		if ways == nil {
			return nil
		}
		if err := what(ways); !errors.Is(err, notify.ErrClosed) || n.ways.Load() == ways {
			return err
		}
	}
}

// title describes a request in one line.
func title(a *api.ApprovalSummary) string {
	switch a.Kind {
	case api.ApprovalOfEscalation:
		return fmt.Sprintf("%s and %s need you", a.AgentID, to(a))
	case api.ApprovalOfEffect:
		return fmt.Sprintf("%s asks to do something for task %s", a.AgentID, cmp.Or(taskTitle(a), a.TaskID))
	case api.ApprovalOfPermission:
		return fmt.Sprintf("%s asks to use a tool", a.AgentID)
	case api.ApprovalOfDelivery:
		return fmt.Sprintf("Was the message of %s to %s sent?", a.AgentID, to(a))
	}
	return fmt.Sprintf("%s wants to send to %s", a.AgentID, to(a))
}

// known reports whether the configuration or a person has named who the message is for. The session
// of anybody else is a name of the sender's choice.
func known(a *api.ApprovalSummary) bool { return a.Counterparty != "" || a.CounterpartyUserID != "" }

// to names who a message is for, or the channel of somebody who is not known.
func to(a *api.ApprovalSummary) string {
	if known(a) {
		return a.To()
	}
	channel, _, _ := strings.Cut(a.SessionKey, ":")
	return "somebody on " + channel
}

// taskTitle is the title of an effect's task, in quotes, "" for a title that not everybody who sees a
// notice may read.
func taskTitle(a *api.ApprovalSummary) string {
	if a.Kind != api.ApprovalOfEffect || a.Target == "" || a.Classification != ocip.Public.String() && a.Classification != ocip.Internal.String() {
		return ""
	}
	return strconv.Quote(a.Target)
}

// found lists each finding with its part of the message, once: "commitment.promise in the
// text, commitment.money in a file". The words are the daemon's, because the sender chooses
// the names of members and files.
func found(a *api.Approval) string {
	var list []string
	for _, d := range a.Detections {
		if d.Shadow {
			continue
		}
		if one := d.Rule + " in " + part(a, d.Member); !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return strings.Join(list, ", ")
}

// part names the part of the message that a member is.
func part(a *api.Approval, member string) string {
	in, file := strings.CutPrefix(member, api.FileMember)
	switch {
	case file && slices.ContainsFunc(a.Media, func(m api.MediaItem) bool { return m.Member == in && m.Path == "" }):
		return "an inline part"
	case file:
		return "a file"
	case member == "":
		return "the text"
	case member == "sessionKey", member == "accountId":
		return "the address"
	}
	return "the metadata"
}

// Held sends a notice about a pending request.
func (n *Notices) Held(a *api.Approval) {
	found := found(a)
	var reasons, codes []string
	for _, g := range a.Grounds() {
		reasons, codes = append(reasons, g.Reason), append(codes, string(g.Code))
	}
	body := strings.Join(reasons, "\n")
	if found != "" {
		body += "\nfound: " + found
	}
	var session string
	if known(&a.ApprovalSummary) {
		session = a.SessionKey
	}
	err := n.tell(func(f *notify.Fanout) error {
		return f.Notify(context.Background(), notify.Notice{
			ID: a.ApprovalID, Urgency: notify.Normal,
			Title: title(&a.ApprovalSummary),
			Body:  body + "\nocipd approvals show " + a.ApprovalID,
			Fields: map[string]string{
				"approval": a.ApprovalID, "kind": a.Kind, "task": a.TaskID, "title": taskTitle(&a.ApprovalSummary), "agent": a.AgentID, "counterparty": a.Counterparty, "code": a.Code, "reason": a.Reason, "codes": strings.Join(codes, " "),
				"classification": a.Classification, "session": session, "exchange": a.ExchangeID,
				"found": found,
			},
		})
	})
	if err != nil {
		n.log.Warn("cannot tell a person what waits", zap.String("approval", a.ApprovalID), zap.Error(err))
	}
}

// Alarm sends a notice about something that needs no decision, but that people must know.
func (n *Notices) Alarm(id, title, body string) {
	err := n.tell(func(f *notify.Fanout) error {
		return f.Notify(context.Background(), notify.Notice{ID: id, Urgency: notify.Critical, Title: title, Body: body})
	})
	if err != nil {
		n.log.Warn("cannot tell a person", zap.String("what", title), zap.Error(err))
	}
}

// Last sends a notice, in the ways of a configuration, about a failed start. It returns
// when the notice is sent, at the latest after the limit.
func Last(getenv func(string) string, log *zap.Logger, c config.Notify, limit time.Duration, title, body string) error {
	n := New(getenv, log)
	n.drain = limit
	begin, err := n.Prepare(c)
	if err != nil {
		return err
	}
	begin()
	n.Alarm("start", title, body)
	return n.Close()
}

// Decided withdraws a notice.
func (n *Notices) Decided(id string) {
	err := n.tell(func(f *notify.Fanout) error { return f.Withdraw(context.Background(), id) })
	if err != nil {
		n.log.Debug("cannot take a notice back", zap.String("approval", id), zap.Error(err))
	}
}
