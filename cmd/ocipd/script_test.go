package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/test/buildtest"
	"github.com/rogpeppe/go-internal/testscript"
)

// asProgram makes the test binary the program.
const asProgram = "TEST_RUNS_AS_OCIPD"

// policyTimeout is the configuration key policy.timeout of every daemon that a test starts.
const policyTimeout = "OCIPD_POLICY_TIMEOUT"

func TestMain(m *testing.M) {
	// Under its own name it is the program, whatever its first word.
	if len(os.Args) > 2 && filepath.Base(os.Args[0]) != "ocipd" {
		switch os.Args[1] {
		case agentWord:
			scriptedAgent(os.Args[2])
			return
		case serverWord:
			scriptedServer(os.Args[2])
			return
		case lobsterWord:
			scriptedLobster(os.Args[2], os.Args[3:])
			return
		}
	}
	if os.Getenv(asProgram) != "" {
		// It is for the tests, and not a configuration key.
		_ = os.Unsetenv(sdkVariable)
		main()
	}
	if v := os.Getenv("TEST_VERSION"); v != "" {
		version = v
	}
	programs := map[string]func(){"ocipd": main}
	if filepath.Base(os.Args[0]) == "ocipd" {
		testscript.Main(m, programs)
	}
	isolated := buildtest.Isolated(m, sdkVariable, lobsterVariable, "UPDATE_SAMPLES", "TEST_MUTANT", seedsVariable, hostsVariable, timeVariable, quietVariable)
	// On a busy machine a policy exceeds its usual limit, and denies.
	if err := os.Setenv(policyTimeout, patience.String()); err != nil {
		panic(err)
	}
	testscript.Main(isolated, programs)
}

// TestScripts runs the commands like a person. Besides testscript's own, scripts have:
//
//	exits CODE ARGS...        run ocipd and want this exit code
//	records FILE COUNT        write an audit log
//	brought FILE APP SESSION  write one in which an app brought a message in
//	sends SOCKET APP KEY TEXT send a message as an app, and print the receipt of the other host
//	edit FILE OLD NEW         replace the first OLD in a file
//	capture NAME REGEXP       set NAME to the first group found in stdout
//
// fleet.txtar runs the commands of docs/guides/fleet.md.
func TestScripts(t *testing.T) {
	found, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(found) < 6 {
		t.Fatalf("found the scripts %q, %v", found, err)
	}
	scripts(t, "4", found...)
}

// TestTaskFailsOverKills kills the daemon before each step of a task that goes wrong in all ways.
// TestScripts does so before every fourth.
func TestTaskFailsOverKills(t *testing.T) {
	if buildtest.Raced {
		t.Skip("the race detector makes starts slow")
	}
	scripts(t, "1", "testdata/script/taskfail.txtar")
}

// scripts runs scripts. Those that kill the daemon before the steps that they make do so
// before every nth.
func scripts(t *testing.T, nth string, files ...string) {
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// Socket addresses are limited in length, and the work directory is deep.
			dir := t.TempDir()
			env.Setenv("SOCKET", filepath.Join(dir, "kernel.sock"))
			env.Setenv("HOME", env.WorkDir)
			// The state of an older daemon, at commit b5a7172: see upgrade.txtar.
			older, err := filepath.Abs("testdata/state-v6.tar.gz")
			if err != nil {
				return err
			}
			env.Setenv("OLDER", older)
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("XDG_RUNTIME_DIR", dir)
			env.Setenv("TZ", "UTC")
			env.Setenv(policyTimeout, os.Getenv(policyTimeout))
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("NTH", nth)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"records": records,
			"brought": brought,
			"writes":  writes,
			"sends":   sends,
			"edit":    edit,
			"capture": capture,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("ocipd", args[1:]...)
	got := 0
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("ocipd %s exits %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// record is the record with a number; every third is a denial.
func record(n int) *audit.Record {
	r := &audit.Record{
		ID: fmt.Sprintf("r%d", n), ActionType: audit.ActionExchange, Side: audit.SideSender, AgentID: "agent-alice-1",
		Counterparty: audit.Counterparty{Kind: "agent", InstanceID: "agent-bob-1"}, ExchangeType: "information_query",
		Classification: "internal", Round: n % 3, MaxRounds: 3, PolicyResult: audit.ResultAllow, ExchangeID: fmt.Sprintf("x%d", n/3),
	}
	if n%3 == 0 {
		r.PolicyResult, r.Code, r.PolicyReason = audit.ResultDeny, "POLICY_DENIED", "the \x1b[31mreason\u202e is hostile\u009b"
	}
	return r
}

func auditLog(t interface{ Fatal(...any) }, count int) []byte {
	list := make([]*audit.Record, count)
	for n := range list {
		list[n] = record(n + 1)
	}
	return sealed(t, list...)
}

// sealed is a log of records.
func sealed(t interface{ Fatal(...any) }, list ...*audit.Record) []byte {
	var text []byte
	var head audit.Head
	for i, r := range list {
		n := i + 1
		body, err := audit.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		text, head = head.Seal(text, time.Date(2026, 3, 1, 12, 0, n, 0, time.UTC), body)
		text = append(text, '\n')
	}
	return text
}

// fatal makes a script something that a test helper can fail.
type fatal struct{ *testscript.TestScript }

func (f fatal) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

func records(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: records FILE COUNT")
	}
	count, err := strconv.Atoi(args[1])
	ts.Check(err)
	file := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o700))
	ts.Check(os.WriteFile(file, auditLog(fatal{ts}, count), 0o600))
}

func brought(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: brought FILE APP SESSION")
	}
	r := record(1)
	r.Side, r.AppID, r.SessionKey = audit.SideReceiver, args[1], args[2]
	changed := record(2)
	changed.Details = map[string]any{"changedBy": []string{"@acme/filter", "kernel: metadata.to replaced"}}
	file := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o700))
	ts.Check(os.WriteFile(file, sealed(fatal{ts}, r, changed), 0o600))
}

// writes sends the agents a message from a session, through a temporary app with the session's channel.
func writes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: writes SESSION METADATA")
	}
	ctx := context.Background()
	app, err := client.Dial(ctx, ts.Getenv("SOCKET"))
	ts.Check(err)
	defer app.Close()
	channel, _, _ := strings.Cut(args[0], ":")
	_, err = app.Register(ctx, &api.Manifest{
		ID: "@script/channel", Name: "channel", Version: "1.0.0", Type: "app", Main: "m", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion},
		Capabilities: api.Capabilities{Channels: api.Provides{Provides: []string{channel}}},
	})
	ts.Check(err)
	ts.Check(app.Call(ctx, "capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": channel}}, nil))
	ts.Check(app.Call(ctx, "agent.queue", map[string]any{"sessionKey": args[0], "text": "hi", "metadata": jsontext.Value(args[1])}, nil))
}

// sends sends a message to an agent on another host, and waits for that host's receipt.
func sends(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: sends SOCKET APP KEY TEXT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	app, err := client.Dial(ctx, args[0])
	ts.Check(err)
	defer app.Close()
	_, err = app.Register(ctx, &api.Manifest{
		ID: args[1], Name: "agent", Version: "1.0.0", Type: "app", Main: "m", Protocol: api.ManifestProtocol{Version: api.ProtocolVersion},
	})
	ts.Check(err)
	ts.Check(app.Call(ctx, "app.ready", map[string]any{}, nil))
	var sent api.DispatchResult
	ts.Check(app.Call(ctx, "message.dispatch", map[string]any{"sessionKey": args[2], "content": args[3]}, &sent))
	for {
		in, err := app.Next(ctx)
		ts.Check(err)
		// An earlier message may have its receipt first.
		if in.Event == fleetapi.ReceiptEvent && strings.Contains(string(in.Payload), `"`+sent.DispatchID+`"`) {
			_, err = fmt.Fprintln(ts.Stdout(), string(in.Payload))
			ts.Check(err)
			return
		}
	}
}

func edit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, args[1], args[2], 1)), 0o600))
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	wanted, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := wanted.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) != 2 {
		ts.Fatalf("stdout does not match %s with one group", args[1])
	}
	ts.Setenv(args[0], found[1])
}
