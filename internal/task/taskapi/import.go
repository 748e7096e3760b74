package taskapi

import (
	"strconv"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// ImportParams makes a task of one that was kept elsewhere (task.import), once for each
// origin: a further call answers with the task that is there.
type ImportParams struct {
	// Origin names the task where it was, such as v1:ID.
	Origin string `json:"origin"`
	Title  string `json:"title"`
	// Phase is completed for what was done there, circuit_open for what had stopped, and
	// spec_draft for all else, since no gate was passed here.
	Phase          task.Phase   `json:"phase"`
	Workspace      string       `json:"workspace"`
	Spec           *task.Fields `json:"spec,omitzero"`
	SpecMarkdown   string       `json:"spec_markdown,omitzero"`
	Labels         []string     `json:"labels,omitzero"`
	Priority       *int         `json:"priority,omitzero"`
	DependsOn      []string     `json:"depends_on,omitzero"`
	Artifacts      []Imported   `json:"artifacts,omitzero"`
	TenantID       string       `json:"tenant_id,omitzero"`
	Classification string       `json:"classification,omitzero"`
	// Status, Retries and LastError are what was known of it there.
	Status    string `json:"status,omitzero"`
	Retries   int    `json:"retries,omitzero"`
	LastError string `json:"last_error,omitzero"`
}

// Imported is an artifact that an import brings along: a file of the workspace, which the
// daemon hashes, or anything else with its digest.
type Imported struct {
	URI    string `json:"uri"`
	Digest string `json:"digest,omitzero"`
}

// ImportedPhases are those that an import can put a task into.
func ImportedPhases() []string {
	return []string{string(task.SpecDraft), string(task.CircuitOpen), string(task.Completed)}
}

// Validate names the fields that are wrong.
func (p *ImportParams) Validate() []api.FieldError {
	var f fields
	f.Text("origin", p.Origin, api.MaxName)
	f.Text("title", p.Title, task.MaxTitle)
	f.OneOf("phase", string(p.Phase), ImportedPhases())
	f.Text("workspace", p.Workspace, api.MaxName)
	f.labels(p.Labels)
	f.priority(p.Priority)
	f.dependencies(p.DependsOn)
	if len(p.Artifacts) > task.MaxEntries {
		f.Add("artifacts", "more than %d", task.MaxEntries)
	} else {
		for i, a := range p.Artifacts {
			at := "artifacts[" + strconv.Itoa(i) + "]."
			f.Text(at+"uri", a.URI, task.MaxText)
			if a.Digest != "" && !task.Digests(a.Digest) {
				f.Add(at+"digest", "want sha256: and 64 digits")
			}
		}
	}
	f.UpTo("tenant_id", p.TenantID, api.MaxName)
	f.UpTo("status", p.Status, 64)
	f.UpTo("last_error", p.LastError, task.MaxText)
	if p.Retries < 0 {
		f.Add("retries", "%d is less than none", p.Retries)
	}
	return f.Fields
}
