package foldrows

import (
	"encoding/base64"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/fold"
)

// Task returns the row of a task; parts stand for the rows that belong to it.
func Task(tenant, phase string, seq int, parts *fold.Parts) fold.Row {
	return fold.Row{tenant, phase, fold.Int(seq), parts.String(), parts.Bound(), fold.Int(parts.Unsettled())}
}

// TaskGrant returns the row of an actor's grant, with the SHA-256 of its token and the stored body.
func TaskGrant(token []byte, task string, expires time.Time, body []byte) fold.Row {
	row := fold.Row{unreadable, unreadable, task, fold.Time(expires), noNumber, base64.RawURLEncoding.EncodeToString(token), unreadable}
	var g struct {
		Actor     string    `json:"actor"`
		Role      string    `json:"role"`
		RevokedAt time.Time `json:"revoked_at"`
		Holder    *struct {
			UID     int    `json:"uid"`
			Exe     string `json:"exe"`
			Process string `json:"process"`
		} `json:"holder"`
	}
	if json.Unmarshal(body, &g) != nil {
		return row
	}
	row[0], row[1], row[4], row[6] = g.Actor, g.Role, fold.Time(g.RevokedAt), ""
	if h := g.Holder; h != nil {
		row[6] = fold.Digest(fold.Int(h.UID), h.Exe, h.Process)
	}
	return row
}

// part is the part of an entry in a task's lists that decisions depend on.
type part struct {
	Approval     string    `json:"approval_id"`
	Request      string    `json:"request_digest"`
	Artifact     string    `json:"artifact_id"`
	Attempt      string    `json:"attempt_id"`
	Effect       string    `json:"effect_id"`
	Review       string    `json:"review_id"`
	Status       string    `json:"status"`
	State        string    `json:"state"`
	Verdict      string    `json:"verdict"`
	Used         bool      `json:"used"`
	Void         bool      `json:"void"`
	Current      bool      `json:"current"`
	Fence        int64     `json:"fence"`
	Version      int       `json:"version"`
	Kept         fold.Kept `json:"kept"`
	Compensation *struct{} `json:"compensation"`
	Runs         []struct {
		Number       int    `json:"run"`
		Compensation bool   `json:"compensation"`
		State        string `json:"state"`
		Approval     string `json:"approval_id"`
	} `json:"runs"`
}

// partsOf reads the lists of a task, entries of a kind and a body in the order of [fold.Parts], and
// the ids of its dependencies. It returns nil if they cannot be read.
func partsOf(text, dependencies []byte) *fold.Parts {
	var list [][2]jsontext.Value
	var ids []string
	if json.Unmarshal(text, &list) != nil || json.Unmarshal(dependencies, &ids) != nil {
		return nil
	}
	parts := new(fold.Parts)
	for _, entry := range list {
		var kind string
		var p part
		if json.Unmarshal(entry[0], &kind) != nil || json.Unmarshal(entry[1], &p) != nil {
			return nil
		}
		kept := p.Kept
		switch kind {
		case "approval":
			kept.Digest = p.Request
			parts.Approval(kept, p.Approval, p.Effect, p.Status, p.Used, p.Void)
		case "artifact":
			parts.Artifact(kept, p.Artifact, p.Attempt, p.Current)
		case "attempt":
			parts.Attempt(kept, p.Attempt, p.Status, p.Fence)
		case "effect":
			kept.Digest = p.Request
			parts.Effect(kept, p.Effect, p.State, p.Compensation != nil)
			for _, r := range p.Runs {
				parts.Run(r.Number, r.Compensation, r.State, r.Approval)
			}
		case "review":
			parts.Review(kept, p.Review, p.Verdict)
		case "spec":
			parts.Spec(kept, p.Version)
		}
	}
	parts.Dependencies(ids)
	return parts
}
