package taskapi

import "github.com/openclawos/ocipd/internal/task"

// ImportParams makes a task from a task of another system (task.import), once for each origin.
// A further call answers with the existing task.
type ImportParams struct {
	Origin string `json:"origin" is:"required max=256" doc:"The task's name in the other system, such as v1:ID. A second call with it returns the existing task."`
	Title  string `json:"title" is:"required max=256" doc:"A short title."`
	// Phase is completed for finished tasks, circuit_open for stopped ones, and spec_draft for
	// all others, because they passed no gate here.
	Phase          task.Phase   `json:"phase" is:"required words=spec_draft|circuit_open|completed" doc:"The task's phase here."`
	Workspace      string       `json:"workspace" is:"required max=256" doc:"The absolute path of the working folder, or a name."`
	Spec           *task.Fields `json:"spec,omitzero" doc:"The specification as fields. They take precedence over the Markdown."`
	SpecMarkdown   string       `json:"spec_markdown,omitzero" doc:"The specification as Markdown."`
	Labels         []string     `json:"labels,omitzero" is:"max=32" each:"required max=64" doc:"Labels."`
	Priority       *int         `json:"priority,omitzero" is:"range=0..4" doc:"0 is the most urgent; 2 by default."`
	DependsOn      []string     `json:"depends_on,omitzero" is:"keeps=64" each:"required id=tsk_" doc:"Ids of tasks that must be completed first."`
	Artifacts      []Imported   `json:"artifacts,omitzero" is:"max=64" doc:"The task's artifacts. The daemon hashes files of the workspace."`
	TenantID       string       `json:"tenant_id,omitzero" is:"max=256" doc:"The task's tenant, if there are several."`
	Classification string       `json:"classification,omitzero" is:"words=public|internal|confidential|restricted" doc:"The level of the task's texts."`
	Status         string       `json:"status,omitzero" is:"max=64" doc:"The task's state in the other system, for the record."`
	Retries        int          `json:"retries,omitzero" is:"range=0.." doc:"The number of retries in the other system, for the record."`
	LastError      string       `json:"last_error,omitzero" is:"max=4096" doc:"The last error in the other system, for the record."`
}

// Imported is an artifact of an imported task: a file of the workspace, or anything else with
// its digest.
type Imported struct {
	URI    string `json:"uri" is:"required max=4096" doc:"The file's path in the workspace, or another address."`
	Digest string `json:"digest,omitzero" is:"form=digest" doc:"sha256: and the SHA-256 in hexadecimal digits. Required unless uri is a file in the workspace."`
}
