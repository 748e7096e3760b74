package registry

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// After a restoration, the apps that the replaced state knows do not operate. Where it knows nothing,
// a session from before the restored daemon's start does not, unless decisions are signed.
func TestRestoredProcessesDoNotOperate(t *testing.T) {
	start := func() string {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		name, err := peer.NameOf(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	own, err := peer.NameOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	app, other := start(), start()
	former := []store.AppProcess{{Boot: "boot", Name: app, App: "@acme/alice"}, {Boot: "earlier", Name: other, App: "@acme/bob"}}
	for name, tc := range map[string]struct {
		former     []store.AppProcess
		all, signs bool
		than       string
		app, other bool
		rows       int
	}{
		"known":                      {former, true, false, own, false, true, 1},
		"not all known, new ones":    {former, false, false, own, false, true, 2},
		"nothing known, older":       {nil, false, false, "1@99999999999999", false, false, 1},
		"nothing known, it restored": {[]store.AppProcess{{Boot: "boot", Name: other, App: store.RestoringSession}, {Boot: "earlier", Name: app, App: store.RestoringSession}}, false, false, "1@99999999999999", false, true, 2},
		"nothing known, signed":      {nil, false, true, "1@99999999999999", true, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := Processes{now: time.Now, terms: func() *Terms { return &Terms{} }, log: zap.NewNop(), boot: "boot", runs: peer.Runs, apps: make(map[string]appProcess), restorers: make(map[string]bool), full: someProcesses, signs: func() bool { return tc.signs }}
			if rows := p.TakeOver(tc.former, tc.all, tc.than); len(rows) != tc.rows {
				t.Errorf("the rows are %v", rows)
			}
			for process, may := range map[string]bool{app: tc.app, other: tc.other} {
				if err := p.MayOperateFrom([]string{process, own}); (err == nil) != may {
					t.Errorf("%s: %v", process, err)
				}
			}
		})
	}
}

// The store forgets ended processes, a few with each new one, and those of a change that was not written
// with a later one.
func TestEndedProcessesLeaveAFewAtATime(t *testing.T) {
	running := make(map[string]bool)
	p := Processes{boot: "boot", runs: func(name string) bool { return running[name] }, apps: make(map[string]appProcess), full: someProcesses}
	stored := map[store.EndedProcess]bool{}
	for i := range 100 {
		one := store.EndedProcess{Boot: "earlier", Name: fmt.Sprint(i)}
		p.stale, stored[one] = append(p.stale, one), true
	}
	most := 0
	for i := range 4 * someProcesses {
		name := fmt.Sprint("p", i)
		running[name] = i%512 == 0 // few go on
		fresh, ended, ok := p.add(name, "app")
		if !fresh || !ok || len(ended) > endTogether {
			t.Fatalf("%s: fresh %t, ok %t, %d ended", name, fresh, ok, len(ended))
		}
		if i%3 == 0 {
			continue // its change fails
		}
		p.written(name)
		stored[store.EndedProcess{Boot: "boot", Name: name}] = true
		for _, one := range ended {
			delete(stored, one)
		}
		p.gone(ended)
		p.gone(ended) // another change with the same ones
		most = max(most, len(stored))
	}
	if most > 2*someProcesses {
		t.Errorf("the store has %d rows", most)
	}
	for name := range running {
		if _, known := p.app(name); running[name] && !known {
			t.Errorf("%s runs, and is forgotten", name)
		}
	}
	for one := range stored {
		if _, known := p.app(one.Name); !known && !slices.Contains(p.stale, one) {
			t.Errorf("nobody forgets %v", one)
		}
	}
}
