package page_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/bridge/console"
)

// consoleVariable has this test's program be the console of the daemon in a folder.
const consoleVariable = "PAGE_TEST_CONSOLE"

// serveConsole serves the page until its input ends.
func serveConsole(dir string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	place, err := console.OpenPlace(ctx, filepath.Join(dir, "console.json"))
	if err != nil {
		return err
	}
	pages, err := place.Listen(ctx)
	if err != nil {
		return err
	}
	commands, err := console.ListenControl(ctx, filepath.Join(dir, "run/console.sock"))
	if err != nil {
		return err
	}
	process := console.New(console.Options{
		Place: place, Runtime: filepath.Join(dir, "run"), Passkeys: filepath.Join(dir, "passkeys.json"), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context) (*client.Client, error) {
			return client.Dial(ctx, filepath.Join(dir, "run/operator.sock"))
		},
		Health: func(context.Context) (any, error) { return []any{}, nil },
		Clicks: func() bool { return false },
	})
	fmt.Println(place.Origin())
	return process.Serve(ctx, pages, commands)
}

// served starts a console in a process of its own.
func (w *world) served() (pid int, origin string) {
	w.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), consoleVariable+"="+w.dir), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	said := bufio.NewScanner(out)
	if !said.Scan() {
		w.Fatal("the console has ended")
	}
	w.link = func() string {
		told, err := console.Link(w.Context(), w.path("run/console.sock"))
		if err != nil {
			w.Fatal(err)
		}
		return told.Link
	}
	return cmd.Process.Pid, said.Text()
}

// newest is the number of the log's newest record.
func (w *world) newest() uint64 {
	w.Helper()
	var page api.AuditQueryResult
	w.ask("audit.query", map[string]any{"limit": 1}, &page)
	record, err := audit.Parse(page.Records[0])
	if err != nil {
		w.Fatal(err)
	}
	return record.Seq
}

// paced sends n messages, one at each tick, and returns how long their answers took, in milliseconds.
func (a *app) paced(n int, every time.Duration) (took []float64) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		begun := time.Now()
		a.say("telegram:alice", fmt.Sprintf("The nightly run %d is green.", i))
		took = append(took, float64(time.Since(begun).Microseconds())/1000)
	}
	return took
}

const live = `document.querySelector("header.top .live:not(.gone)")?.textContent === "live"`

// BenchmarkWatched measures with the console in a process of its own: how much longer a message takes
// while a page looks on, and the memory of the process with three pages. `make bench` runs it.
func BenchmarkWatched(b *testing.B) {
	for b.Loop() {
		watched(b)
	}
}

func watched(b *testing.B) {
	b.Helper()
	const rounds, each, rate = 8, 100, 200
	w := begin(b, acme)
	alice := w.people()
	pid, origin := w.served()
	w.browse(1280, 800, "light", "")
	before := w.newest()
	alice.paced(10, time.Millisecond)
	records := float64(w.newest()-before) / 10 // of one message
	every := time.Duration(records / rate * float64(time.Second))
	var alone, looking []float64
	for range rounds {
		w.do(chromedp.Navigate("about:blank"))
		alone = append(alone, alice.paced(each, every)...)
		w.do(chromedp.Navigate(origin + "/"))
		w.until(live)
		looking = append(looking, alice.paced(each, every)...)
	}
	slices.Sort(alone)
	slices.Sort(looking)
	p50, watchedP50 := alone[len(alone)/2], looking[len(looking)/2]
	b.ReportMetric(p50, "ms-dispatch-p50-alone")
	b.ReportMetric(watchedP50, "ms-dispatch-p50-watched")
	b.Logf("dispatch p50: %.2f ms alone, %.2f ms while a page looks on", p50, watchedP50)
	goal(b, "percent-dispatch-p50-watched", max(0, 100*(watchedP50/p50-1)), 3)

	for range 2 {
		tab, stop := chromedp.NewContext(w.browser)
		b.Cleanup(stop)
		if err := chromedp.Do(tab, chromedp.Navigate(w.link())); err != nil {
			b.Fatal(err)
		}
		if _, err := chromedp.Run(tab, chromedp.Poll[bool](live)); err != nil {
			b.Fatal(err)
		}
	}
	before, begun := w.newest(), time.Now()
	alice.paced(int(10*rate/records), every)
	got := float64(w.newest()-before) / time.Since(begun).Seconds()
	b.ReportMetric(got, "records/s")
	b.Logf("%.0f records a second to three pages", got)
	goal(b, "MiB-console-3-pages", peak(b, pid), 60)
}

// peak is the most memory that a process has had, in MiB.
func peak(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
