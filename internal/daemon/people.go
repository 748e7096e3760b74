package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/notify"
	"github.com/openclawos/ocipd/internal/sshsig"
	"go.uber.org/zap"
)

// people is how the kernel knows and reaches those who decide.
type people struct {
	signers kernel.Signers
	notify  kernel.Notifier
}

// people sets up who may sign and how a person is told. A file of signers that
// cannot be read keeps the daemon down: without it nobody could decide.
func (d *Daemon) people() (p people, err error) {
	if file := d.cfg.Approvals.AllowedSigners; file != "" {
		s := signers{file}
		if _, err := s.load(); err != nil {
			return p, err
		}
		p.signers = s
	}
	p.notify, err = d.notifier()
	return p, err
}

// signers reads the file of allowed signers anew for each decision, so that
// whoever is taken out of it decides nothing more.
type signers struct{ file string }

func (s signers) load() (*sshsig.Signers, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, fmt.Errorf("cannot read approvals.allowed_signers: %w", err)
	}
	defer f.Close()
	list, err := sshsig.ParseAllowedSigners(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use approvals.allowed_signers %s: %w", s.file, err)
	}
	return list, nil
}

// Verify checks a signature over a decision.
func (s signers) Verify(armored, text []byte, at time.Time) (principal, fingerprint string, err error) {
	list, err := s.load()
	if err != nil {
		return "", "", err
	}
	signature, err := list.Verify(armored, text, api.ApprovalNamespace, at)
	return signature.Principal, signature.Fingerprint, err
}

// notifyDrain bounds how long the last notices may take when the daemon stops.
const notifyDrain = time.Second

// notifier tells people by what is configured, nil where nothing is.
func (d *Daemon) notifier() (kernel.Notifier, error) {
	var ways []notify.Notifier
	log := d.log.Named("notify")
	if d.cfg.Approvals.Notify.Desktop {
		ways = append(ways, notify.NewDesktop(notify.DesktopOptions{Getenv: d.getenv, Log: log}))
	}
	if argv := d.cfg.Approvals.Notify.Command; len(argv) > 0 {
		command, err := notify.NewCommand(notify.CommandOptions{Argv: argv, Getenv: d.getenv, Log: log})
		if err != nil {
			return nil, fmt.Errorf("cannot use approvals.notify.command: %w", err)
		}
		ways = append(ways, command)
	}
	if len(ways) == 0 {
		return nil, nil
	}
	fanout := notify.NewFanout(notify.FanoutOptions{Notifiers: ways, Drain: notifyDrain, Log: log})
	d.onStop(func() error {
		fanout.Close()
		return nil
	})
	return notices{fanout, log}, nil
}

// notices words what people are told. The message itself is no part of it: it
// may be shown on a locked screen, or mailed.
type notices struct {
	*notify.Fanout
	log *zap.Logger
}

// Held tells that a message waits.
func (n notices) Held(a api.ApprovalSummary) {
	err := n.Notify(context.Background(), notify.Notice{
		ID: a.ApprovalID, Urgency: notify.Normal,
		Title: fmt.Sprintf("%s wants to send to %s", a.AgentID, a.Counterparty),
		Body:  fmt.Sprintf("%s\nocipd approvals show %s", a.Reason, a.ApprovalID),
		Fields: map[string]string{
			"approval": a.ApprovalID, "agent": a.AgentID, "counterparty": a.Counterparty, "code": a.Code, "reason": a.Reason,
			"classification": a.Classification, "session": a.SessionKey, "exchange": a.ExchangeID,
		},
	})
	if err != nil {
		n.log.Warn("cannot tell a person what waits", zap.String("approval", a.ApprovalID), zap.Error(err))
	}
}

// Decided takes the notice back.
func (n notices) Decided(id string) {
	if err := n.Withdraw(context.Background(), id); err != nil {
		n.log.Debug("cannot take a notice back", zap.String("approval", id), zap.Error(err))
	}
}
