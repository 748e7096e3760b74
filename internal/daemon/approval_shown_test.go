package daemon_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// withPat is a company with a person whom the tests turn into another counterparty.
const withPat = acme + `
ocip: {person: {commitments: hold}, unknown: {commitments: hold}}
`

const pat = `
  - {kind: person, user_id: pat, tenant_id: acme-corp, sessions: ["chat:pat"]}`

// listing is withPat with one more entry of the directory.
func listing(entry string) string {
	return strings.Replace(withPat, "\ndirectory:", "\ndirectory:"+entry, 1)
}

// fields lists the names of the changes under a request.
func fields(changed []api.ApprovalChange) (names []string) {
	for _, c := range changed {
		names = append(names, c.Field)
	}
	return names
}

// An approval is for the receiver that a person has seen. If the configuration turns the
// receiver into another counterparty, nothing is sent, the old digest is stale, and the
// person learns which member changed.
func TestApprovalIsForWhoWasShown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		was, now string
		field    string
		from, to string
		// more are the members that change with it.
		more    []string
		blocked string
	}{
		"another person": {was: pat, now: strings.Replace(pat, "user_id: pat", "user_id: eve", 1), field: "counterpartyUserId", from: "pat", to: "eve"},
		"another tenant": {
			was: pat, now: strings.Replace(pat, "acme-corp", "globex-inc", 1), field: "counterpartyTenantId", from: "acme-corp", to: "globex-inc",
			more: []string{"verdict", "sending"}, blocked: "globex-inc",
		},
		"a stranger, since the person moved": {
			was: pat, now: strings.Replace(pat, "chat:pat", "chat:pat-2", 1), field: "counterpartyKind", from: "person", to: "unknown", more: []string{"counterpartyUserId", "counterpartyTenantId"},
		},
		"a tenant":    {was: strings.Replace(pat, "tenant_id: acme-corp, ", "", 1), now: pat, field: "counterpartyTenantId", from: "", to: "acme-corp"},
		"the owner":   {was: pat, now: strings.Replace(pat, "user_id: pat", "user_id: alice", 1), field: "counterpartyKind", from: "person", to: "owner", more: []string{"counterpartyUserId"}},
		"a stranger":  {was: pat, now: "", field: "counterpartyKind", from: "person", to: "unknown", more: []string{"counterpartyUserId", "counterpartyTenantId"}},
		"not unknown": {was: "", now: pat, field: "counterpartyKind", from: "unknown", to: "person", more: []string{"counterpartyUserId", "counterpartyTenantId"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, listing(tc.was))
			chat, alice, person := h.channel("@openclawos/chat", "chat"), h.agent("@acme/alice"), h.operates()
			held := alice.held(ocip.CommitmentRequiresHuman, "chat:pat", promise, nil)
			saw := h.shown(held.ApprovalID)
			if got := saw.Address; got != (audit.Address{Channel: "chat", Target: "pat"}) || saw.Group {
				t.Errorf("it is shown to go to %+v, many: %v", got, saw.Group)
			}
			h.reloaded(listing(tc.now))

			for i, what := range []string{api.DecideApprove, api.DecideTakeover} {
				e := person.conflict("APPROVAL_STALE", decision(what, &saw))
				contains(t, e.Message, []string{"something changed", "what you saw"}[i])
			}
			now := h.shown(held.ApprovalID)
			c := changed(t, now.Changed, tc.field)
			if now.State != api.ApprovalPending || now.Digest == saw.Digest || c.Was != tc.from || c.Now != tc.to {
				t.Fatalf("asked anew it is %+v", now)
			}
			for _, field := range fields(now.Changed) {
				if field != tc.field && !slices.Contains(tc.more, field) {
					t.Errorf("%s changed as well", field)
				}
			}
			chat.silence(t, alice, "chat:somebody")
			r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID, ActionType: audit.ActionApproval}})
			if len(r) != 1 || r[0].Event != "asked_anew" {
				t.Fatalf("on record are %+v", r)
			}
			if tc.blocked != "" {
				contains(t, now.Blocked, tc.blocked)
				person.conflict("APPROVAL_BLOCKED", decision(api.DecideApprove, &now))
				return
			}
			person.must("approval.resolve", decision(api.DecideApprove, &now), nil)
			if m := chat.message("hook:message_sending"); m.DispatchID != held.DispatchID {
				t.Errorf("delivered is %s", m.DispatchID)
			}
		})
	}
}

// extract is the first shown part of a member's text.
func extract(t testing.TB, a *api.Approval, member string) api.Extract {
	t.Helper()
	for _, e := range a.Extracts {
		if e.Member == member {
			return e
		}
	}
	t.Fatalf("nothing of %s is shown, but %+v", member, a.Extracts)
	return api.Extract{}
}

// findings lists the findings in a member's text.
func findings(a *api.Approval, member, text string) (list []string) {
	for _, d := range a.Detections {
		if d.Member == member {
			list = append(list, text[d.Start:d.End])
		}
	}
	return list
}

// A person sees everything that accompanies a message: each file and inline part with its
// hash and its text, and each finding in its own text. If a file changes, the person is
// asked again, learns of the change, and sees the new content.
func TestPersonIsShownWhatGoesAlong(t *testing.T) {
	t.Parallel()
	h := plot(t, "")
	if err := os.Mkdir(h.path("out"), 0o700); err != nil {
		t.Fatal(err)
	}
	report := h.path("out/report.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(report, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	filler := strings.Repeat("All is well.\n", 100<<10/13)
	before, after := filler+"I promise to pay by Friday.\n", filler+"I guarantee to pay 100000000 EUR by Friday.\n"
	write(before)
	h.configure(strings.Replace(acme, "max_rounds: 3}", "max_rounds: 3, media: ["+h.path("out")+"]}", 1))
	h.start()
	t.Cleanup(h.stop)
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	metadata := fresh(nil)
	metadata["mediaUrls"] = []string{report}
	metadata["note"] = "Well, now I promise it by Monday"
	metadata["icon"] = "data:,we%20agree%20to%20it%20all"
	const text = "Dear Dave, we cannot foresee a date at all, sorry.\nMEDIA:"
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", text+report, metadata)
	saw := h.shown(held.ApprovalID)

	items := make(map[string]api.MediaItem)
	for _, item := range saw.Media {
		items[item.Member] = item
	}
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	for _, member := range []string{"metadata.mediaUrls[0]", "content"} {
		if got := items[member]; got.Path != report || got.SHA256 != sum(before) || got.Bytes != int64(len(before)) {
			t.Errorf("of %s is shown %+v", member, got)
		}
		e := extract(t, &saw, "file "+member)
		if e.At != 0 || e.Of != len(before) || !strings.HasPrefix(before, e.Text) || len(e.Text) < 4<<10 {
			t.Errorf("of the file of %s are shown %d bytes from %d of %d on", member, len(e.Text), e.At, e.Of)
		}
		if got := findings(&saw, "file "+member, before); !slices.Contains(got, "promise") {
			t.Errorf("in the file of %s is found %q", member, got)
		}
		shows := func(e api.Extract) bool {
			return e.Member == "file "+member && strings.Contains(e.Text, "I promise to pay by Friday.")
		}
		if !slices.ContainsFunc(saw.Extracts, shows) {
			t.Errorf("the promise in the file of %s is not shown: %+v", member, saw.Extracts)
		}
	}
	if got := items["metadata.icon"]; got.SHA256 != sum("we agree to it all") || extract(t, &saw, "file metadata.icon").Text != "we agree to it all" {
		t.Errorf("of the inline part is shown %+v", got)
	}
	note := extract(t, &saw, "metadata.note")
	if got := findings(&saw, "metadata.note", note.Text); note.Text != metadata["note"] || !slices.Contains(got, "promise") {
		t.Errorf("of the note is shown %+v, found is %q", note, got)
	}
	if got := findings(&saw, "", saw.Content); len(got) != 0 {
		t.Errorf("found in the text is %q", got)
	}
	// The app that asked cannot read files in this way.
	var its api.Approval
	alice.must("approval.get", map[string]any{"approvalId": held.ApprovalID}, &its)
	if len(its.Extracts) > 0 {
		t.Errorf("its app is shown %+v", its.Extracts)
	}

	write(after)
	person.conflict("APPROVAL_STALE", decision(api.DecideApprove, &saw))
	now := h.shown(held.ApprovalID)
	c := changed(t, now.Changed, "media")
	contains(t, c.Was, report, sum(before))
	contains(t, c.Now, report, sum(after))
	if len(now.Changed) != 1 || now.Exchange != nil || now.NoExchange == "" {
		t.Errorf("changed are %q, and the exchange may be approved: %+v", fields(now.Changed), now.Exchange)
	}
	if got := findings(&now, "file content", after); slices.Contains(got, "promise") || !slices.Contains(got, "guarantee") {
		t.Errorf("in the changed file is found %q", got)
	}
	for _, e := range now.Extracts {
		if strings.HasPrefix(e.Member, "file content") && e.Text != after[e.At:e.At+len(e.Text)] {
			t.Errorf("of the changed file is shown %+v", e)
		}
	}
	telegram.silence(t, alice, "telegram:dave")
	person.must("approval.resolve", decision(api.DecideApprove, &now), nil)
	telegram.message("hook:message_sending")
	// The content of the files is dropped with the message's text.
	if gone := h.shown(held.ApprovalID); len(gone.Extracts) > 0 || len(gone.Media) != len(saw.Media) {
		t.Errorf("decided it is %+v", gone)
	}
}

// The text of a takeover is sent without files and inline parts that the person has not
// seen with the message.
func TestTakeOverSendsOnlyWhatWasShown(t *testing.T) {
	t.Parallel()
	h := plot(t, "")
	if err := os.Mkdir(h.path("out"), 0o700); err != nil {
		t.Fatal(err)
	}
	report, other := h.path("out/report.txt"), h.path("out/other.txt")
	for _, path := range []string{report, other} {
		if err := os.WriteFile(path, []byte("The plan of "+path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.configure(strings.Replace(acme, "max_rounds: 3}", "max_rounds: 3, media: ["+h.path("out")+"]}", 1))
	h.start()
	t.Cleanup(h.stop)
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+"\nMEDIA:"+report, fresh(nil))
	saw := h.shown(held.ApprovalID)
	own := decision(api.DecideTakeover, &saw)
	for unseen, words := range map[string]string{other: "As you asked:\nMEDIA:" + other, "the inline part of content": "Look: ![plan](data:,all%20of%20it)"} {
		own["content"] = words
		e := person.conflict("APPROVAL_BLOCKED", own)
		contains(t, e.Message, unseen, "nobody was shown")
	}
	if now := h.shown(held.ApprovalID); now.State != api.ApprovalPending || now.Digest != saw.Digest {
		t.Errorf("it is %+v", now.ApprovalSummary)
	}
	telegram.silence(t, alice, "telegram:dave")
	own["content"] = "This is the plan, and https://acme.example/more.png\nMEDIA:" + report
	person.must("approval.resolve", own, nil)
	if m := telegram.message("hook:message_sending"); m.Content != own["content"] {
		t.Errorf("delivered is %q", m.Content)
	}
}
