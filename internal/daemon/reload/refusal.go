package reload

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"go.uber.org/zap"
)

// refusal is why a plan is impossible, because of the configuration or the policy.
type refusal struct {
	cause error
	// policy is the source of the refused policy, or nil if the configuration is refused.
	// digest is of the policy's text.
	policy *config.Policy
	digest string
}

// refusal is the answer about a refused plan.
func (r *Engine) refusal(why *refusal) *api.Error {
	faults, stays := r.faults(why), r.o.Policy.Load().Revision()
	return &api.Error{
		Code: api.Conflict, Message: fmt.Sprintf("%s; what is in force stays (policy %s)", reasonOf(why.cause), stays),
		Details: api.PolicyRefusal{Revision: stays, FaultCount: len(faults), Faults: faults[:min(len(faults), maxFaults)]},
	}
}

func (r *Engine) faults(why *refusal) []api.PolicyFault {
	if why.policy != nil {
		return faultsOf(why.cause, sourceName(why.policy))
	}
	return faultsOf(why.cause, r.started.File)
}

// refuse records a refusal, and returns the error for it. It records a fault in files once,
// and a refused request each time.
func (r *Engine) refuse(who asker, why *refusal) error {
	if r.closing.Err() != nil {
		return api.Errorf(api.InternalError, "cannot reload: the daemon is stopping")
	}
	faults, reason, ofPolicy := r.faults(why), reasonOf(why.cause), why.policy != nil
	stays := r.o.Policy.Load().Revision()
	refused := r.refusal(why)
	what := "config\n" + why.cause.Error()
	if ofPolicy {
		// With another configuration it is another refusal, because that configuration is
		// not loaded either.
		what = r.read.Sum() + sourceName(why.policy) + "\n" + cmp.Or(why.digest, why.cause.Error())
	}
	if who.by == byFile && what == r.refused {
		return refused
	}
	r.refused = ""
	r.refusedFor(ofPolicy, reason, faults[:min(len(faults), maxFaults)])
	d := who.details()
	d["faultCount"], d["faults"] = len(faults), faults[:min(len(faults), maxFaults)]
	record := &audit.Record{ID: r.o.NewID(), ActionType: audit.ActionConfigChange, Event: "refused", PolicyRevision: stays, PolicyReason: reason, Details: d}
	if ofPolicy {
		r.o.Log.Error("a policy is refused, the one in force stays", zap.String("reason", reason), zap.String("revision", stays), zap.String("by", who.by))
		record.ActionType, d["source"] = audit.ActionPolicyChange, sourceName(why.policy)
		if why.digest != "" {
			d["digest"] = why.digest
		}
	} else {
		r.o.Log.Error("the configuration is refused, what is in force stays", zap.String("reason", reason), zap.String("by", who.by))
		d["file"] = Recorded(r.started.File)
	}
	if _, err := r.o.Commit(&store.Change{Drains: true, Records: []*audit.Record{record}}); err != nil {
		r.o.Log.Error("cannot record the refusal of a policy or configuration", zap.Error(err))
		return refused
	}
	r.refused = what
	return refused
}

// unrecorded reports that a valid plan is not in force because its record could not be written.
func (r *Engine) unrecorded(p *plan, cause error) error {
	r.o.Log.Error("cannot record a reload: what is in force stays", zap.Error(cause))
	what := "the configuration"
	if p.policyAnew {
		what = "the policy"
	}
	told := storeerror.NotRecorded("cannot record "+what+", so it is not in force", cause)
	r.refused = ""
	r.refusedFor(p.policyAnew, told.Message, nil)
	return told
}

// faultsOf lists the faults, at least one. A fault without a place counts for the source.
func faultsOf(cause error, source string) []api.PolicyFault {
	var faults []api.PolicyFault
	add := func(file string, line int, message string) {
		faults = append(faults, api.PolicyFault{File: text.Clip(file, maxFaultBytes), Line: line, Message: text.Clip(message, maxFaultBytes)})
	}
	compiled, inText := errors.AsType[policy.CompileError](cause)
	problems, inConfig := errors.AsType[config.Errors](cause)
	switch {
	case inText:
		for _, f := range compiled {
			add(f.File, f.Line, f.Message)
		}
	case inConfig:
		for _, p := range problems {
			message := p.Message
			if p.Nearest != "" {
				message += fmt.Sprintf(": did you mean %q?", p.Nearest)
			}
			add(p.File, p.Line, message)
		}
	default:
		add(source, 0, cause.Error())
	}
	return faults
}

// reasonOf gives the reason of a refusal in one line.
func reasonOf(cause error) string {
	reason := strings.ReplaceAll(cause.Error(), "\n", "; ")
	if _, ok := errors.AsType[policy.CompileError](cause); ok {
		reason = "cannot compile the policy: " + reason
	}
	if _, ok := errors.AsType[config.Errors](cause); ok && !strings.HasPrefix(reason, "cannot ") {
		reason = "cannot use the configuration: " + reason
	}
	return text.Clip(reason, maxRefusal)
}
