package mcpserver

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// schemaOf is the schema of a method's parameters, from the type that decodes them.
func schemaOf(params reflect.Type) (*jsonschema.Schema, error) {
	return jsonschema.ForType(params, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[jsontext.Value](): {Type: "object"},
		api.TextForm():                    {Type: "string"},
	}})
}

// describe is the tool's description for a client under a grant.
func (t *tool) describe(at *taskapi.Attached) (*mcp.Tool, error) {
	s, err := schemaOf(t.params)
	if err != nil {
		return nil, fmt.Errorf("cannot describe the tool %s: %w", t.name, err)
	}
	for _, member := range append(slices.Clone(t.said), t.hidden...) {
		drop(s, member)
	}
	if at.AttemptID != "" {
		drop(s, "fence")
	}
	optional := map[string]bool{"task_id": at.TaskID != "", "attempt_id": at.AttemptID != ""}
	s.Required = slices.DeleteFunc(s.Required, func(member string) bool { return optional[member] })
	plain(s)
	explain(s, t.name)
	no, yes := new(bool), new(bool)
	*yes = true
	hints := &mcp.ToolAnnotations{Title: t.title, ReadOnlyHint: t.effect == reads, IdempotentHint: t.effect != writes, DestructiveHint: no, OpenWorldHint: no}
	if t.effect == acts {
		hints.DestructiveHint, hints.OpenWorldHint = yes, yes
	}
	return &mcp.Tool{Name: t.name, Title: t.title, Description: t.about, InputSchema: s, Annotations: hints}, nil
}

func drop(s *jsonschema.Schema, member string) {
	delete(s.Properties, member)
	s.PropertyOrder = slices.DeleteFunc(s.PropertyOrder, func(name string) bool { return name == member })
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == member })
}

// plain removes null from the types, because optional members are left out.
func plain(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if kinds := slices.DeleteFunc(slices.Clone(s.Types), func(kind string) bool { return kind == "null" }); len(kinds) == 1 {
		s.Type, s.Types = kinds[0], nil
	}
	for _, member := range s.Properties {
		plain(member)
	}
	plain(s.Items)
	plain(s.AdditionalProperties)
}

// explain describes each member and its permitted words.
func explain(s *jsonschema.Schema, where string) {
	for name, member := range s.Properties {
		about, known := members()[where+"."+name]
		if !known {
			about = members()[name]
		}
		member.Description = about.text
		on := member
		if member.Items != nil {
			on = member.Items
		}
		for _, word := range about.words {
			on.Enum = append(on.Enum, word)
		}
		if about.most > 0 {
			least, most := float64(about.least), float64(about.most)
			member.Minimum, member.Maximum = &least, &most
		}
		explain(member, name)
		if member.Items != nil {
			explain(member.Items, name)
		}
	}
}

// member is the description of a member of parameters.
type member struct {
	text        string
	words       []string
	least, most int
}

func phases() (words []string) {
	for _, p := range task.Phases() {
		words = append(words, string(p))
	}
	return words
}

// members are the descriptions, by name, or by parent and name.
func members() map[string]member {
	return map[string]member{
		"task_id":              {text: "The task's id, tsk_…"},
		"attempt_id":           {text: "The attempt's id, att_…"},
		"latest_attempt_id":    {text: "The id of the last attempt, att_…"},
		"approval_id":          {text: "The approval's id."},
		"effect_id":            {text: "The effect's id, eff_…"},
		"grant_id":             {text: "The grant's id, grt_…"},
		"request_key":          {text: "A name of your own for this call. Give the same one when you repeat a call that got no answer: it is then done once."},
		"fence":                {text: "The attempt's fence, as task_start_attempt answered it."},
		"expected_revision":    {text: "The revision that you read: the call is refused where the task has changed since."},
		"title":                {text: "A short title."},
		"spec_markdown":        {text: "The specification as Markdown, with the headings Goal, Scope, Non-goals, Inputs, Outputs, Acceptance criteria and Risks."},
		"spec_ref":             {text: "A file in the workspace that holds the specification."},
		"spec_ref.uri":         {text: "The file's path in the workspace."},
		"spec_ref.digest":      {text: "sha256: and the file's SHA-256 in hexadecimal digits."},
		"spec":                 {text: "The specification as fields, which win over the Markdown."},
		"goal":                 {text: "What is to be reached, in a sentence."},
		"scope_in":             {text: "What belongs to the task."},
		"scope_out":            {text: "What does not."},
		"inputs":               {text: "What it starts from. For a command: artifacts that it takes, by id or path."},
		"outputs":              {text: "What it is to produce."},
		"acceptance_criteria":  {text: "How it is told that the task is done, each so that it can be checked."},
		"risks":                {text: "What can go wrong."},
		"workspace":            {text: "The absolute path of the folder to work in, or a name."},
		"initial_phase":        {text: "Where the task begins. spec_review needs a complete specification.", words: []string{string(task.SpecDraft), string(task.SpecReview)}},
		"labels":               {text: "Labels."},
		"priority":             {text: "0 is the most urgent; 2 unless said.", least: 0, most: task.MaxPriority},
		"depends_on":           {text: "Ids of tasks that have to be completed first."},
		"effects":              {text: "What the task is to do in the world at its end, each once a person has approved it."},
		"idempotency_key":      {text: "A name of this effect within the task. What is asked under it again is not done twice."},
		"side_effect_kind":     {text: "What kind of effect it is, in a word: deployment, merge, notification, …"},
		"requested_action":     {text: "What is to be done, in a sentence that a person can decide about."},
		"command":              {text: "The program to run. It is run as approved: program, arguments, environment and inputs are bound by their digests."},
		"compensation":         {text: "A command that undoes it, approved together with it."},
		"argv":                 {text: "The program and its arguments."},
		"cwd":                  {text: "The folder to run in, within the workspace."},
		"env":                  {text: "Variables."},
		"env_from":             {text: "Names of variables that the runner gives it, such as credentials."},
		"stdin":                {text: "Its standard input."},
		"timeout_s":            {text: "After how many seconds it is ended.", least: 0, most: 24 * 60 * 60},
		"params":               {text: "What somebody else needs to do it, where it is no command."},
		"classification":       {text: "The level of the text. It can be raised by what the text holds.", words: []string{"public", "internal", "confidential", "restricted"}},
		"not_before":           {text: "When the task may begin at the earliest, RFC 3339."},
		"include_events_limit": {text: "How many of the newest events to give; 20 unless said.", least: 0, most: 200},
		"part":                 {text: "Gives one list alone, where the answer's more names it.", words: taskapi.Parts()},
		"after":                {text: "With part: from which entry on, by its id."},
		"from_phase":           {text: "The phase that the task is in.", words: phases()},
		"to_phase":             {text: "The phase to move it to.", words: phases()},
		"phase":                {text: "executing.", words: []string{string(task.Executing)}},
		"reason":               {text: "Why, for the record."},
		"runtime":              {text: "What runs the attempt.", words: task.Runtimes()},
		"executor_kind":        {text: "Who makes the attempt.", words: task.ExecutorKinds()},
		"worker_ref":           {text: "The name of the executor that makes the attempt; yourself where it is left out."},
		"external_session_ref": {text: "The session elsewhere that makes it."},
		"checkpoint_type":      {text: "heartbeat renews the lease; any other word is kept as a checkpoint, such as progress."},
		"payload":              {text: "What to keep of it. Empty for a mere heartbeat."},
		"kind":                 {text: "What it is.", words: task.ArtifactKinds()},
		"uri":                  {text: "The file's path in the workspace, or where else it is."},
		"digest":               {text: "sha256: and the SHA-256 in hexadecimal digits: needed for what is no file in the workspace."},
		"summary":              {text: "A sentence about it."},
		"review_type":          {text: "What is reviewed: your own type.", words: task.ReviewTypes()},
		"verdict":              {text: "Your verdict. It passes where it is approved.", words: task.Verdicts()},
		"findings":             {text: "What you found; an empty list for nothing."},
		"severity":             {text: "How bad it is.", words: task.Severities()},
		"message":              {text: "What is wrong, and what would mend it."},
		"file":                 {text: "The file."},
		"line":                 {text: "The line.", least: 0, most: 1 << 30},
		"artifact_uri":         {text: "The artifact."},
		"subject_revision":     {text: "The revision that you reviewed; the one that you last read unless said."},
		"resolution":           {text: "The decision.", words: task.Resolutions()},
		"note":                 {text: "Why."},
		"signature":            {text: "A person's armored SSH signature, to pass it on."},
		"limit":                {text: "How many to give at most.", least: 1, most: api.MaxPage},
		"lease_s":              {text: "For how many seconds; 0 gives it back.", least: 0, most: 3600},
		"outcome":              {text: "How it ended.", words: task.Outcomes()},
		"failure_code":         {text: "Why it failed; only with failed.", words: task.Failures()},
		"error_summary":        {text: "What happened, in a sentence."},
		"request_digest":       {text: "The digest that task_request_approval answered."},
		"wait_s":               {text: "For how many seconds to wait.", least: 0, most: 20},
		"run":                  {text: "The run's number.", least: 1, most: 1 << 30},
		"run_token":            {text: "The run's token, as task_run_effect gave it."},
		"receipt":              {text: "What shows that it was done."},
		"actor":                {text: "The actor's name."},
		"tools":                {text: "The tools that the grant has; those of the role unless said."},
		"expires_s":            {text: "After how many seconds the grant ends.", least: 1, most: 366 * 24 * 60 * 60},
		"to":                   {text: "The session to send to, as contacts_list or reply_to has it, or the id of an agent here."},
		"text":                 {text: "The message."},
		"exchange_id":          {text: "The exchange. For a message: the one that it continues; usually left out."},
		"new_exchange":         {text: "Begins another exchange instead of going on with the present one."},
		"exchange_type":        {text: "What the exchange is about.", words: []string{"information_query", "commitment_request", "meeting_scheduling"}},
		"reply_policy":         {text: "Who may answer.", words: []string{"agent-ok", "human-only", "no-reply-needed"}},
		"cursor":               {text: "The cursor of the page before: its messages leave the inbox."},

		"task_run_effect.compensation": {text: "Undoes the effect instead, once, by the compensation that was approved with it."}, "task_request_approval.undo": {text: "Asks whether the effect, which was run, may be undone: where the approval of its run does not allow that any more."},
		"task_finish_effect.outcome":   {text: "How it ended.", words: []string{task.EffectDone, task.EffectFailed}},
		"messages_read.limit":          {text: "How many messages to give at most; 20 unless said.", least: 1, most: 100},
		"messages_read.wait_s":         {text: "For how many seconds to wait for a message where there is none.", least: 0, most: 20},
		"message_send.task_id":         {text: "The task that the message is about. It then goes to nobody outside the task's organisation."},
		"task_resolve_approval.digest": {text: "The digest of what the person saw, to approve."},
	}
}
