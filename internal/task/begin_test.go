package task

import (
	"strings"
	"testing"
)

// One approval is one start. A run begins a second time only if the process that was let begin it has
// ended without its command; otherwise nobody knows its outcome, whatever the runner says.
func TestRunBeginsOnce(t *testing.T) {
	const run = 1
	begin := func(process string) Command {
		return BeginRun{Run: run, Process: process, Signed: true}
	}
	ends := func(state string) Command { return FinishRun{Run: run, State: state} }
	withdraw := func(process string) Command { return Spawned{Run: run, Withdrawn: process} }
	spawned := Spawned{Run: run, PID: 9}
	for _, tt := range []struct {
		name     string
		said     []Command
		state    string
		evidence string
	}{
		{"once", []Command{begin("7@1"), spawned, ends(EffectDone)}, EffectDone, ""},
		{"the same process, told again", []Command{begin("7@1"), begin("7@1")}, EffectStarted, ""},
		{"another process", []Command{begin("7@1"), begin("8@2")}, EffectUncertain, "as process 7@1 already, and left no result"},
		{"another process, of a spawned run", []Command{begin("7@1"), spawned, begin("8@2")}, EffectUncertain, "as process 7@1 already"},
		{"spawned by an earlier version", []Command{spawned, begin("8@2")}, EffectUncertain, "as process 9 already"},
		{"after a withdrawal", []Command{begin("7@1"), withdraw("7@1"), begin("8@2"), ends(EffectDone)}, EffectDone, ""},
		{"a third process, after a withdrawal", []Command{begin("7@1"), withdraw("7@1"), begin("8@2"), begin("9@3")}, EffectUncertain, "as process 8@2 already"},
		{"another one's withdrawal", []Command{begin("7@1"), withdraw("8@2"), begin("8@2")}, EffectUncertain, "as process 7@1 already"},
		{"a withdrawal told again", []Command{begin("7@1"), withdraw("7@1"), begin("8@2"), withdraw("7@1"), begin("9@3")}, EffectUncertain, "as process 8@2 already"},
		{"a withdrawal of a spawned run", []Command{begin("7@1"), spawned, withdraw("7@1"), begin("8@2")}, EffectUncertain, "as process 7@1 already"},
		{"done without a begin", []Command{ends(EffectDone)}, EffectUncertain, "the runner says that it is done, and the daemon has not let it begin"},
		{"failed without a begin", []Command{ends(EffectFailed)}, EffectUncertain, "the runner says that it is failed"},
		{"done after a withdrawal", []Command{begin("7@1"), withdraw("7@1"), ends(EffectDone)}, EffectUncertain, "says that it is done"},
		{"failed after a withdrawal", []Command{begin("7@1"), withdraw("7@1"), ends(EffectFailed)}, EffectFailed, ""},
		{"unknown without a begin", []Command{ends(EffectUncertain)}, EffectUncertain, ""},
	} {
		d := newDesk(t)
		d.to(ReadyToResume, deploy())
		id := d.task.Effects[0].ID
		d.do(gate, RunEffect{EffectID: id, Digest: zero})
		for _, c := range tt.said {
			switch c := c.(type) {
			case BeginRun:
				c.EffectID = id
				d.do(daemon, c)
			case Spawned:
				c.EffectID = id
				d.do(daemon, c)
			case FinishRun:
				c.EffectID = id
				d.do(daemon, c)
			}
		}
		if r := d.task.Effect(id).Run(run); r.State != tt.state || !strings.Contains(r.Evidence, tt.evidence) {
			t.Errorf("%s: the run is %s: %s", tt.name, r.State, r.Evidence)
		}
	}
}
