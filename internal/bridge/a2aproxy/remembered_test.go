package a2aproxy

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"time"
)

// However much a session brings, the proxy forgets nothing of another that brings less, and keeps the
// newest of each.
func TestNobodyIsForgottenForAnother(t *testing.T) {
	p := newMemory()
	const few = 3
	others := []string{"a2a:ann.example", "a2a:ben.example"}
	add := func(session string, i int) {
		id := strconv.Itoa(i)
		q := &request{session: session, given: sha256.Sum256([]byte(session + id)), exchange: "e" + id}
		p.remember(session, [][32]byte{q.given})
		p.belongsTo(q, textNode(id))
		p.ids.put(session, idKey{session, id}, true)
		p.keep(q, &late{}, time.Unix(0, 0))
		p.addHook(&hook{session: session, id: id})
	}
	for i := range few {
		add(others[0], i)
	}
	// Many sessions with all the webhooks that each may have.
	for many := range maxKnown / maxHooks {
		for i := range maxHooks + 1 {
			add("a2a:flood"+strconv.Itoa(many), i)
		}
	}
	for i := range maxKnown + 1 {
		add("a2a:flood", i)
	}
	for i := range few {
		add(others[1], i)
	}
	for _, session := range others {
		for i := range few {
			id := strconv.Itoa(i)
			sum := sha256.Sum256([]byte(session + id))
			switch {
			case !p.decidedBefore(session)(sum), p.exchanges.get(idKey{session, id}) != "e"+id, !p.ids.get(idKey{session, id}), p.late.get(sum) == nil, len(p.hooks.of[session]) != few:
				t.Errorf("%s: number %d is forgotten", session, i)
			}
		}
	}
	for name, n := range map[string][2]int{
		"seen": {len(p.seen.values), maxKnown}, "ids": {len(p.ids.values), maxKnown}, "exchanges": {len(p.exchanges.values), maxKnown}, "late": {len(p.late.values), maxLate}, "hooks": {len(p.hooks.values), maxKnown},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d are remembered, want %d", name, n[0], n[1])
		}
	}
	if newest := (idKey{"a2a:flood", strconv.Itoa(maxKnown)}); !p.ids.get(newest) || p.exchanges.get(newest) == "" {
		t.Error("the newest is forgotten")
	}
}

// What a session no longer needs makes room, and a session without anything leaves nothing behind.
func TestForgotten(t *testing.T) {
	p := newMemory()
	for _, id := range []string{"a", "b", "c"} {
		p.addHook(&hook{session: "s", id: id, task: "t"})
	}
	for _, id := range []string{"b", "a", "x", "c"} {
		params := objectNode()
		params.set("pushNotificationConfigId", textNode(id))
		params.set("taskId", textNode("t"))
		p.forgetHook(&request{method: named("DeleteTaskPushNotificationConfig"), session: "s", params: params})
	}
	q := &request{session: "s", given: [32]byte{1}}
	p.keep(q, &late{approval: "a"}, time.Unix(0, 0))
	p.keep(&request{session: "r"}, &late{}, time.Unix(0, 0).Add(lateTime+1))
	if len(p.hooks.values)+len(p.hooks.of) > 0 || len(p.late.values) != 1 || len(p.late.of) != 1 || p.lateOf("a") != nil {
		t.Errorf("left are %+v, %+v", p.hooks, p.late)
	}
}
