package page_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json/jsontext"
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
		Clicks: func() bool { return false }, Signers: func() string { return "" },
	})
	fmt.Println(place.Origin())
	return process.Serve(ctx, pages, commands)
}

// readerVariable has this test's program follow a daemon, and drop what it gets: by the link of a console
// as a page does, or by the operator socket.
const readerVariable = "PAGE_TEST_READER"

// readStream follows until its input ends. It prints a line when the stream has begun.
func readStream(from string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	address, code, isLink := strings.Cut(from, "/#")
	if !isLink {
		c, err := client.Dial(ctx, from)
		if err == nil {
			fmt.Println("begun")
			err = c.Each(ctx, "audit.tail", &api.AuditTailParams{Follow: true}, func(jsontext.Value) error { return nil })
		}
		return over(err)
	}
	nonce := nonceOf()
	answer, err := proven(ctx, address, "/session", code, nonce)
	if err == nil {
		answer.Body.Close()
		answer, err = proven(ctx, address, "/stream", sum(code, "ocipd console session\x00"+nonce), nonceOf())
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	fmt.Println("begun")
	_, err = io.Copy(io.Discard, answer.Body)
	return over(err)
}

// over drops the error of what the end of the input ended.
func over(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// nonceOf is a new nonce, as the page makes it.
func nonceOf() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw)
}

// proven asks a console with a proof, as the page does.
func proven(ctx context.Context, address, path, key, nonce string) (*http.Response, error) {
	const body = "{}"
	in, err := http.NewRequestWithContext(ctx, http.MethodPost, address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	in.Header.Set("Origin", address)
	name := sha256.Sum256([]byte(key))
	in.Header.Set("Authorization", fmt.Sprintf("Proof %x.%s.%s", name, nonce, sum(key, "ocipd console request\x00POST\n"+path+"\n"+nonce+"\n"+body)))
	// No name server knows the console's name.
	of := http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+in.URL.Port())
	}}
	out, err := of.RoundTrip(in)
	if err == nil && out.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, out.Status)
	}
	return out, err
}

// program starts this test's program with a variable, and returns it when it has printed a line. stop
// ends it.
func (w *world) program(variable string) (cmd *exec.Cmd, said string, stop func()) {
	w.Helper()
	cmd = exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), variable), os.Stderr
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
	stop = sync.OnceFunc(func() { in.Close(); _ = cmd.Wait() })
	w.Cleanup(stop)
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		w.Fatalf("the program with %s has ended", variable)
	}
	return cmd, lines.Text(), stop
}

// served starts a console in a process of its own.
func (w *world) served() (pid int, origin string) {
	w.Helper()
	cmd, origin, _ := w.program(consoleVariable + "=" + w.dir)
	w.link = func() string {
		told, err := console.Link(w.Context(), w.path("run/console.sock"))
		if err != nil {
			w.Fatal(err)
		}
		return told.Link
	}
	return cmd.Process.Pid, origin
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

// watched compares dispatches while nobody looks on with those beside each kind of onlooker, in turns.
// What is held to the goal is the daemon's and the console's share: a reader takes the stream of a page
// and drops it. What the page in the browser adds is the browser's work on the same two processors.
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
	reader := func(from string) func() {
		_, _, stop := w.program(readerVariable + "=" + from)
		return stop
	}
	onlookers := []struct {
		name string
		// comes has the onlooker come, and returns how it leaves.
		comes func() (leaves func())
		took  []float64
		// The processor's time of the daemon with its apps, of the console, and of the onlooker.
		daemon, console, itself time.Duration
	}{
		{name: "alone", comes: func() func() { return func() {} }},
		{name: "tail", comes: func() func() { return reader(w.path("run/operator.sock")) }},
		{name: "stream", comes: func() func() { return reader(w.link()) }},
		{name: "page", comes: func() func() {
			w.do(chromedp.Navigate(origin + "/"))
			w.until(live + ` && document.querySelector(".figures") && document.querySelector(".changed ul")`)
			return func() { w.do(chromedp.Navigate("about:blank")) }
		}},
	}
	w.do(chromedp.Navigate("about:blank"))
	for range rounds {
		for i := range onlookers {
			o := &onlookers[i]
			leaves := o.comes()
			alice.paced(each/10, every)
			before := processorTime(b)
			o.took = append(o.took, alice.paced(each, every)...)
			for process, took := range processorTime(b) {
				switch took -= before[process]; process {
				case os.Getpid():
					o.daemon += took
				case pid:
					o.console += took
				default:
					o.itself += took
				}
			}
			leaves()
		}
	}
	p50 := make(map[string]float64)
	for _, o := range onlookers {
		slices.Sort(o.took)
		p50[o.name] = o.took[len(o.took)/2]
		b.ReportMetric(p50[o.name], "ms-dispatch-p50-"+o.name)
		of := func(spent time.Duration) float64 { return float64(spent.Microseconds()) / (rounds * each) }
		b.Logf("dispatch p50, %-8s %.3f ms, %+6.1f %%; processor: daemon %4.0f µs a message, console %4.0f, onlooker %5.0f", o.name, p50[o.name], 100*(p50[o.name]/p50["alone"]-1), of(o.daemon), of(o.console), of(o.itself))
	}
	goal(b, "percent-dispatch-p50-watched", max(0, 100*(p50["stream"]/p50["alone"]-1)), 3)
	w.do(chromedp.Navigate(origin + "/"))
	w.until(live)

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

// processorTime is the processor's time so far of this process and of those that it started, by their
// numbers.
func processorTime(b *testing.B) map[int]time.Duration {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	const tick = time.Second / 100 // USER_HZ
	parents, took := make(map[int]int), make(map[int]time.Duration)
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		var pid, user, system int
		_, _ = fmt.Sscanf(name, "/proc/%d/", &pid)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for i, n := range map[int]*int{11: &user, 12: &system} {
			*n, _ = strconv.Atoi(fields[i])
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		took[pid] = time.Duration(user+system) * tick
	}
	maps.DeleteFunc(took, func(pid int, _ time.Duration) bool {
		for pid > 1 && pid != os.Getpid() {
			pid = parents[pid]
		}
		return pid != os.Getpid()
	})
	return took
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
