package foldrows

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit/fold"
)

// Task is the row of a task; parts is that of [fold.Parts].
func Task(tenant, phase string, seq int, parts string) fold.Row {
	return fold.Row{tenant, phase, fold.Int(seq), parts}
}

// TaskGrant is the row of a grant of an actor, of which the body is as it is stored.
func TaskGrant(task string, expires time.Time, body []byte) fold.Row {
	row := fold.Row{unreadable, unreadable, task, fold.Time(expires), noNumber}
	var g struct {
		Actor     string    `json:"actor"`
		Role      string    `json:"role"`
		RevokedAt time.Time `json:"revoked_at"`
	}
	if json.Unmarshal(body, &g) == nil {
		row[0], row[1], row[4] = g.Actor, g.Role, fold.Time(g.RevokedAt)
	}
	return row
}

// part is what of an entry of one of a task's lists decides anything.
type part struct {
	Approval string `json:"approval_id"`
	Artifact string `json:"artifact_id"`
	Attempt  string `json:"attempt_id"`
	Effect   string `json:"effect_id"`
	Review   string `json:"review_id"`
	Status   string `json:"status"`
	State    string `json:"state"`
	Verdict  string `json:"verdict"`
	Used     bool   `json:"used"`
	Void     bool   `json:"void"`
	Current  bool   `json:"current"`
	Fence    int64  `json:"fence"`
	Version  int    `json:"version"`
	Runs     []struct {
		Number       int    `json:"run"`
		Compensation bool   `json:"compensation"`
		State        string `json:"state"`
		Approval     string `json:"approval_id"`
	} `json:"runs"`
}

// partsOf reads the lists of a task, entries of a kind and a body in the order of [fold.Parts].
func partsOf(text []byte) string {
	var list [][2]jsontext.Value
	if json.Unmarshal(text, &list) != nil {
		return unreadable
	}
	var parts fold.Parts
	for _, entry := range list {
		var kind string
		var p part
		if json.Unmarshal(entry[0], &kind) != nil || json.Unmarshal(entry[1], &p) != nil {
			return unreadable
		}
		switch kind {
		case "approval":
			parts.Approval(p.Approval, p.Effect, p.Status, p.Used, p.Void)
		case "artifact":
			parts.Artifact(p.Artifact, p.Attempt, p.Current)
		case "attempt":
			parts.Attempt(p.Attempt, p.Status, p.Fence)
		case "effect":
			parts.Effect(p.Effect, p.State)
			for _, r := range p.Runs {
				parts.Run(r.Number, r.Compensation, r.State, r.Approval)
			}
		case "review":
			parts.Review(p.Review, p.Verdict)
		case "spec":
			parts.Spec(p.Version)
		}
	}
	return parts.String()
}
