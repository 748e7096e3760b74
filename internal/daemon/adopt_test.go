package daemon

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/openclawos/ocipd/internal/kernel"
)

// eachKey visits the elementary values of a configuration, with their tag reload.
func eachKey(v reflect.Value, at, how string, visit func(key, how string, value reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		of := cmp.Or(f.Tag.Get("reload"), how)
		if f.Type.Kind() == reflect.Struct {
			eachKey(v.Field(i), at+key+".", of, visit)
		} else {
			visit(at+key, of, v.Field(i))
		}
	}
}

// Every live key reaches its destination: the terms of decisions, or one of those named
// here, to which [Daemon.prepare] passes it.
func TestLiveKeysReachTheirRooms(t *testing.T) {
	elsewhere := []string{
		"channels", "apps", // settings
		"directory_file",                                                                                // read with the configuration
		"policy.path", "policy.watch", "policy.timeout", "policy.data.enabled", "policy.data.cross_org", // the policy
		"policy.data.allowed_exchange_types", "policy.data.max_classification_shared", "policy.data.*",
		"log.level",                                                                          // the logger
		"audit.keep",                                                                         // retention
		"audit.redact.members", "audit.redact.patterns", "audit.content", "audit.recipients", // the redactor, the terms' seal
		"approvals.allowed_signers", "approvals.origins", "approvals.notify.desktop", "approvals.notify.command", // the terms' signers, notices
		"ipc.max_line_bytes", "ipc.max_queue_bytes", "ipc.max_in_flight", "ipc.max_connections", // the server's limits
		"ipc.max_total_queue_bytes", "ipc.max_connections_per_process",
		"tasks.actors", "tasks.lease", "tasks.retry.base", "tasks.retry.factor", "tasks.reviews.spec", "tasks.reviews.quality", // the tasks
		"tasks.retry.attempts", "tasks.rework.attempts", "tasks.rework.base", "tasks.rework.factor", "tasks.effects.late", "tasks.self_approval", "tasks.self_review",
		"tasks.run.executor", "tasks.run.escalation", "tasks.run.spec_reviewer", "tasks.run.quality_reviewer", "tasks.run.lobster", // clients
		"ocip.judge.model", "ocip.judge.timeout", "ocip.judge.may", "ocip.judge.elsewhere", // nothing without a url, and those of ocipd judge
		"fleet.roster", "fleet.host", "fleet.operators", "fleet.max_queued", // the fleet, read with the configuration
		"tools", "ocip.disclosure_text", // each agent's, where it is used
	}
	// Compiled rules cannot be compared; their sources are checked, and the other value
	// below is one that does not compile.
	typed := func(c *config.Config) (kernel.Config, error) {
		k, err := kernelconfig.New(c)
		if err == nil {
			r := *k.Rules
			r.Content, r.Commitments = nil, nil
			k.Rules = &r
		}
		return k, err
	}
	plain, err := typed(config.Default())
	if err != nil {
		t.Fatal(err)
	}
	live := 0
	eachKey(reflect.ValueOf(config.Default()).Elem(), "", "", func(key, how string, _ reflect.Value) {
		if how != "live" {
			return
		}
		live++
		edited := config.Default()
		eachKey(reflect.ValueOf(edited).Elem(), "", "", func(other, _ string, value reflect.Value) {
			switch {
			case other == key && key == "ocip.same_owner":
				value.SetString("record")
			case other == key && key == "console.decide":
				value.SetString(config.DecideSession)
			case other == key:
				alter(t, value)
			}
		})
		// The kernel has received everything that it does not take as it is.
		now, err := typed(edited)
		reaches := err != nil || !reflect.DeepEqual(now, plain)
		if handed := slices.Contains(elsewhere, key); reaches == handed {
			t.Errorf("%s changes the kernel's terms: %t; it is taken elsewhere: %t", key, reaches, handed)
		}
	})
	if live < 40 {
		t.Errorf("%d keys were looked at", live)
	}
}

func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(v.Int() + int64(time.Minute))
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.Int:
		v.SetInt(v.Int() + 1)
	case v.Kind() == reflect.String && v.String() == "enforce":
		v.SetString("monitor")
	case v.Kind() == reflect.String:
		v.SetString("public")
	case v.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	case v.Kind() == reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("changed"), reflect.Zero(v.Type().Elem()))
		v.Set(m)
	default:
		t.Fatalf("cannot change a %s", v.Type())
	}
}

// Both limits of attempts reach the tasks as they are configured.
func TestTriesReachTheTasks(t *testing.T) {
	c := config.Default()
	c.Tasks.Retry = config.TaskRetry{Attempts: 5, Base: time.Second, Factor: 2}
	c.Tasks.Rework = config.TaskRetry{Attempts: 7, Base: time.Minute, Factor: 3}
	r := tasksConfig(c, nil, false).Rules
	if got := fmt.Sprint(r.Retry, r.Rework); got != "{5 1s 2} {7 1m0s 3}" {
		t.Errorf("the tasks have %s", got)
	}
}
