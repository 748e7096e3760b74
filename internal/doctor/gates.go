package doctor

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/integrate"
	"github.com/openclawos/ocipd/internal/term"
)

// gates checks the agent runtimes that were put behind the daemon: through the gate of each
// a canary is sent, which the daemon has to refuse and to have on record.
func (d *Examiner) gates() (found []Diagnosis) {
	if d.live != nil {
		for i := range d.live.Ungated {
			u := &d.live.Ungated[i]
			found = append(found, failed("%s runs (process %d) and its plugin has not been connected for %s: nobody decides about what its agents send", u.Title, u.PID, term.Age(d.now().Sub(u.Since))).
				advise("ocipd integrate openclaw; where that was done: openclaw plugins reload ocip, or start the Gateway again"))
		}
	}
	tried := 0
	for _, r := range integrate.Runtimes() {
		if d.Gates == nil || !r.Integrated(d.Gates) {
			continue
		}
		tried++
		found = append(found, d.gate(r))
	}
	if tried == 0 && len(found) == 0 {
		if d.Gates == nil {
			return []Diagnosis{passed("not tried")}
		}
		return []Diagnosis{passed("no agent runtime was put behind the daemon: ocipd integrate lists those that are here")}
	}
	return found
}

// gate tries the gate of one runtime.
func (d *Examiner) gate(r *integrate.Runtime) Diagnosis {
	if d.live == nil {
		return warned("%s: not tried, since the daemon does not run; its agents send nothing meanwhile", r.Title)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return failed("%s: %v", r.Title, err)
	}
	record, err := r.Try(d.ctx, d.Gates, integrate.NewCanary(id.String()), integrate.Records(d.ask))
	switch {
	case errors.Is(err, integrate.ErrNotSent):
		return warned("%v", err).advise("try it again: ocipd doctor; whether its gate holds is not known until then")
	case err != nil:
		return failed("%v", err).advise("ocipd integrate %s", r.Name)
	}
	return passed("%s: a canary was refused, see record %d", r.Title, record.Seq)
}

// ask asks the daemon that is looked at.
func (d *Examiner) ask(ctx context.Context, method string, params, result any) error {
	c, err := client.Dial(ctx, d.places.operator)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, method, params, result)
}
