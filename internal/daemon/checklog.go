package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// checkShare is how long the check of the whole log rests after each piece of work, as a
// multiple of the work's time. The check may take long, but must not slow down messages.
const checkShare = 7

// checkLog starts the check of the whole log. The start itself checks only the newest
// records and the path to the newest checkpoint.
func (d *Daemon) checkLog(ctx context.Context) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		err := d.store.CheckLog(ctx, func(ctx context.Context) error {
			rest := time.NewTimer(min(checkShare*time.Since(began), time.Second))
			defer rest.Stop()
			select {
			case <-rest.C:
				began = time.Now()
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil && ctx.Err() == nil {
			d.logDamaged(err)
		}
	}()
	d.ends.add("the check of the log", func() error {
		stop()
		<-done
		return nil
	})
	return nil
}

// logCheck is the name under which a damaged log pauses sending, and logNotice the id of
// the notice about it.
const (
	logCheck  = "check of the log"
	logNotice = "log-damaged"
)

// logDamaged pauses all sending because the log was changed: nobody knows yet who changed
// it, and what else.
func (d *Daemon) logDamaged(found error) {
	fault, damaged := errors.AsType[*audit.Fault](found)
	if !damaged {
		d.log.Error("cannot check the whole log", zap.Error(found))
		return
	}
	problem := fault.Error()
	d.evidence.damaged.Store(&problem)
	details := map[string]any{}
	if fault.Seq > 0 {
		details["record"] = int(fault.Seq)
	}
	err := d.kernel.Sending.Halt(logCheck, &audit.Record{
		ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "log_damaged", PolicyReason: problem, Details: details,
	})
	if err != nil {
		d.log.Error("cannot record that the log is damaged", zap.Error(err))
	}
	d.log.Error("sending is paused: the audit log in the database is not what was written; ocipd audit verify says more", zap.Error(found))
	d.notices.Alarm(logNotice, "The audit log was changed", problem+"\nAll sending is paused.\nocipd audit verify")
}

// resume ends a pause, for a person who has looked into its cause.
func (d *Daemon) resume(ctx context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	result, err := d.kernel.Sending.Resume(ctx, who, p)
	if err == nil && result.Changed && p.Scope() == api.PausedAll {
		for _, notice := range append(d.witnesses.seenBy.resumed(), logNotice) {
			d.notices.Decided(notice)
		}
	}
	return result, err
}
