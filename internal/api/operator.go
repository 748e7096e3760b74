package api

import (
	"reflect"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
)

// Status is the state of the running daemon for operators (kernel.status).
type Status struct {
	Version         string    `json:"version"`
	ProtocolVersion string    `json:"protocolVersion"`
	PID             int       `json:"pid"`
	StartedAt       time.Time `json:"startedAt"`
	Socket          string    `json:"socket"`
	OperatorSocket  string    `json:"operatorSocket"`
	ConfigFile      string    `json:"configFile"`
	Database        string    `json:"database"`
	Mirror          string    `json:"mirror"`
	// UnusedSocket is a socket that the service manager passed and that is not used, since another
	// one is configured; absent if there is none.
	UnusedSocket string `json:"unusedSocket,omitzero" doc:"A socket that was passed while another one is configured."`
	// Connections are those of both sockets, without the one that asks.
	Connections int           `json:"connections"`
	Apps        []AppStatus   `json:"apps"`
	Agents      []AgentStatus `json:"agents"`
	// Ungated are processes of agent runtimes whose gate does not hold: nobody decides about the
	// messages and calls of their agents.
	Ungated []UngatedProcess `json:"ungated,omitzero"`
	Queues  []QueueStatus    `json:"queues"`
	// Exchanges counts exchanges by outcome: one between two agents of this daemon is one. If there
	// are very many, the numbers may be some seconds old.
	Exchanges map[string]int `json:"exchanges"`
	// Held is how many messages wait for a person.
	Held int `json:"held"`
	// OldestHeld is since when the oldest of them waits, absent if none does.
	OldestHeld time.Time `json:"oldestHeld,omitzero"`
	// Paused lists the pauses in force (sending.pause).
	Paused []PausedScope `json:"paused"`
	// Sessions is how many sessions were used lately (sessions.active_window).
	Sessions int `json:"sessions"`
	// Latency is the durations of decisions and commits.
	Latency LatencyStatus `json:"latency"`
	Policy  PolicyStatus  `json:"policy"`
	Config  ConfigStatus  `json:"config"`
	// PendingRestart are the keys of the configuration file that have other values
	// there, which take effect at the next start.
	PendingRestart []string    `json:"pendingRestart"`
	Audit          AuditStatus `json:"audit"`
	// Sinks are the other systems that the log is handed to.
	Sinks []SinkStatus `json:"sinks"`
	// Witnesses are those that the daemon has shown the log to since it started.
	Witnesses []WitnessStatus `json:"witnesses,omitempty"`
	Store     StoreStatus     `json:"store"`
}

// UngatedProcess is a process of an agent runtime without its gate.
type UngatedProcess struct {
	// App is the app of the runtime's plugin, or the runtime's name where it has none.
	App   string    `json:"app"`
	Title string    `json:"title"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	// Why describes the entry in the runtime's files that replaced the daemon's, "" where its
	// plugin is not connected.
	Why string `json:"why,omitzero"`
}

// AppStatus is one registered app.
type AppStatus struct {
	ID           string         `json:"id"`
	Version      string         `json:"version"`
	Type         string         `json:"type"`
	Health       string         `json:"health"`
	Ready        bool           `json:"ready"`
	PID          int32          `json:"pid"`
	UID          uint32         `json:"uid"`
	LastSeenAt   time.Time      `json:"lastSeenAt"`
	Capabilities []string       `json:"capabilities"`
	Hooks        []string       `json:"hooks"`
	Status       jsontext.Value `json:"status,omitzero"`
}

// AgentStatus is one configured agent.
type AgentStatus struct {
	ID string `json:"id"`
	// InstanceID is the agent's name in filters and records.
	InstanceID string `json:"instanceId"`
	App        string `json:"app"`
	Connected  bool   `json:"connected"`
}

// QueueStatus is how much waits for one receiver.
type QueueStatus struct {
	Name    string `json:"name"`
	Waiting int    `json:"waiting"`
}

// PolicyStatus is the policy in force.
type PolicyStatus struct {
	Source   string `json:"source"`
	Revision string `json:"revision"`
	// RefusedAt is when a policy that should have replaced it was refused, and
	// Refusal why. Both are absent until that happens, and again from the next
	// policy on that is taken.
	RefusedAt time.Time `json:"refusedAt,omitzero"`
	Refusal   string    `json:"refusal,omitzero"`
	// Faults are the first 20 faults that Refusal has in one line.
	Faults []PolicyFault `json:"faults,omitempty"`
}

// ConfigStatus compares the configuration file with the configuration in force.
type ConfigStatus struct {
	// RefusedAt is when the file was refused, and Refusal why. Both are absent
	// until that happens, and again from the next one on that is taken.
	RefusedAt time.Time `json:"refusedAt,omitzero"`
	Refusal   string    `json:"refusal,omitzero"`
	// Faults are the first 20 faults that Refusal has in one line.
	Faults []PolicyFault `json:"faults,omitempty"`
}

// ConfigDifference is a value of the configuration that is another one than before. Was and Now are
// null if there is none, and secrets are masked. Of entries of a list, Key has the name in place of
// the index.
type ConfigDifference struct {
	Key string `json:"key"`
	Was any    `json:"was"`
	Now any    `json:"now"`
}

// ConfigReload is the effect of policy.reload on the configuration.
type ConfigReload struct {
	// ChangeCount is how many values took effect, and Changes are the first 64.
	ChangeCount int                `json:"changeCount"`
	Changes     []ConfigDifference `json:"changes" doc:"The first 64 values that differ, secrets as ***. List entries have their names as keys (agents.alice.max_rounds), so a moved entry is no change."`
	// PendingRestart are the keys that keep their values until the next start.
	PendingRestart []string `json:"pendingRestart" doc:"Changed keys that take a restart."`
	// InForceSince is when the last changes since the start took effect, if there were any. By is
	// file, operator or signal, and Last are the first 64 of these changes.
	InForceSince time.Time          `json:"inForceSince,omitzero"`
	By           string             `json:"by,omitzero"`
	Last         []ConfigDifference `json:"last,omitempty"`
}

// ConfigOverride is a key of a variable or a flag, which replaces the file's value.
type ConfigOverride struct {
	Key string `json:"key"`
	// By is the variable's name, or "flag" and the key.
	By string `json:"by"`
}

// ConfigDiffResult is the effect of policy.reload now (operator, config.diff).
type ConfigDiffResult struct {
	// File is the daemon's configuration file, empty if the defaults serve.
	File string `json:"file"`
	// ChangeCount is how many values would take effect, and Changes are the first
	// 64; PendingRestart are those that would wait for the next start.
	ChangeCount    int                `json:"changeCount"`
	Changes        []ConfigDifference `json:"changes"`
	PendingRestart []ConfigDifference `json:"pendingRestart"`
	// Overridden are the keys of the file that a variable or a flag replaces.
	Overridden []ConfigOverride `json:"overridden"`
	// PolicyRevision is the policy that would be in force, and PolicyChanged says
	// whether it is another one.
	PolicyRevision string `json:"policyRevision"`
	PolicyChanged  bool   `json:"policyChanged"`
}

// PolicyReloadResult is the policy and configuration in force after policy.reload (operator), which
// takes the whole configuration.
type PolicyReloadResult struct {
	Revision string `json:"revision" doc:"sha256: and the first 12 digits of digest."`
	Digest   string `json:"digest" doc:"Covers names and texts of the policy's files and policy.data."`
	// Changed is false if the policy was in force before.
	Changed bool         `json:"changed" doc:"false if the policy was already in force."`
	Files   []string     `json:"files"`
	Config  ConfigReload `json:"config"`
}

// PolicyRefusal is the details of the CONFLICT that policy.reload answers where
// the policy, or the configuration that names it, cannot be used.
type PolicyRefusal struct {
	// Revision is the policy that stays in force.
	Revision string `json:"revision"`
	// FaultCount is how many faults there are, and Faults are the first of
	// them, at most 20.
	FaultCount int           `json:"faultCount"`
	Faults     []PolicyFault `json:"faults"`
}

// PolicyFault is one thing wrong with a policy or its configuration. Line counts
// from 1; 0 is unknown, or no line's fault.
type PolicyFault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// AuditForgetParams destroys a tenant's digest key (audit.forget, operator): nobody can then match
// a digest with its text. "" is for records without a tenant.
type AuditForgetParams struct {
	Tenant *string `json:"tenant" is:"required max=256" doc:"The tenant; an empty text is what belongs to none."`
}

// AuditForgetResult names the tenant of the destroyed key, and the record of that.
type AuditForgetResult struct {
	Tenant   string `json:"tenant"`
	AuditSeq uint64 `json:"auditSeq"`
}

// AuditRotateKeyResult is the key that signs the log after audit.rotate_key
// (operator), as NAME+HASH+KEY, and the record in which the one before signed
// it.
type AuditRotateKeyResult struct {
	Verifier string `json:"verifier"`
	Previous string `json:"previous"`
	AuditSeq uint64 `json:"auditSeq"`
}

// AuditRetireParams removes old records for good (audit.retire, operator): those
// of whole segments of the mirror whose last record is before a time.
type AuditRetireParams struct {
	Before time.Time `json:"before" is:"required" doc:"Segments that end before this time go."`
}

// AuditRetireResult is the records that audit.retire removed: the records up to Retired, and how
// many segments. Nothing was where both are zero.
type AuditRetireResult struct {
	Retired  uint64 `json:"retired"`
	Segments int    `json:"segments"`
	AuditSeq uint64 `json:"auditSeq"`
}

// AuditVerifyResult is the result of audit.verify (operator).
type AuditVerifyResult struct {
	OK bool `json:"ok"`
	// Log is its name, and Verifier the public key it was checked with.
	Log      string `json:"log"`
	Verifier string `json:"verifier"`
	// Seq and Hash are the last good record; Retired those before the first.
	Seq     uint64 `json:"seq"`
	Hash    string `json:"hash"`
	Retired uint64 `json:"retired"`
	// Signed is the number of records that the newest checkpoint covers. Held is the number of
	// checkpoints in the daemon's files beside the log that a key of the log signed and that fit the log, and HeldUpTo
	// the number of records of the largest of them.
	Signed      uint64 `json:"signed"`
	Checkpoints int    `json:"checkpoints"`
	Held        int    `json:"held"`
	HeldUpTo    uint64 `json:"heldUpTo,omitzero"`
	// Late counts the times that records were signed long after they were written,
	// and Gaps those that one followed another for long without a checkpoint, as
	// older versions let it.
	Late  int         `json:"late,omitzero"`
	Gaps  int         `json:"gaps,omitzero"`
	Fault *AuditFault `json:"fault,omitzero"`
}

// AuditFault is the first bad record.
type AuditFault struct {
	Seq     uint64 `json:"seq"`
	Problem string `json:"problem"`
}

// AuditStatus is the end of the audit log.
type AuditStatus struct {
	Seq      uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Hash     string    `json:"hash"`
	Mirrored uint64    `json:"mirrored"`
	// Log is the log's name, Signed how many records its newest checkpoint
	// covers, and Retired how many were removed.
	Log     string `json:"log"`
	Signed  uint64 `json:"signed"`
	Retired uint64 `json:"retired"`
	// Indexed is the last record that audit.query finds without reading the
	// records after it.
	Indexed uint64 `json:"indexed"`
	// Unsigned are the records that the start found without a checkpoint, if they were more than a
	// daemon leaves behind.
	Unsigned *UnsignedRecords `json:"unsigned,omitempty"`
	// Damaged names the altered records that the check of the whole log has found so far.
	Damaged string `json:"damaged,omitzero"`
	// Fault is why nothing more is recorded or let through, empty while all is
	// well.
	Fault  string       `json:"fault,omitzero"`
	Mirror MirrorStatus `json:"mirror"`
}

// UnsignedRecords are records that nobody had signed when the daemon started: anybody with write
// access to the database can have put them there.
type UnsignedRecords struct {
	First uint64    `json:"first"`
	Last  uint64    `json:"last"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// MirrorStatus is how the files are doing that hold a copy of the log.
type MirrorStatus struct {
	// Segments counts the files besides the newest, which take SegmentBytes,
	// and Pending those that are not compressed yet.
	Segments     int   `json:"segments"`
	Pending      int   `json:"pending"`
	SegmentBytes int64 `json:"segmentBytes"`
	// Problems are the faults of the mirror and of its segments, absent if there are none.
	Problems []string `json:"problems,omitzero"`
}

// StoreStatus is how the disk of the database is.
type StoreStatus struct {
	// Disk is ok, warn, refuse (nothing new is taken up) or full.
	Disk string `json:"disk"`
	// FreeBytes is the free space at the last measurement.
	FreeBytes int64 `json:"freeBytes"`
	// Reserve is true while the space for the last records is kept.
	Reserve bool `json:"reserve"`
}

// WitnessStatus is how far one witness of the log is.
type WitnessStatus struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Signed is how many records the checkpoint covers that it signed last, 0 if it has signed none
	// since the daemon started.
	Signed uint64 `json:"signed"`
	// Refused says that it has signed other records of this log, or more, and that no person
	// has resumed sending since: sending was paused for it.
	Refused bool `json:"refused,omitzero"`
	// Error is why it signs nothing, and FailingSince since when; absent while all is well.
	Error        string    `json:"error,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
}

// SinkStatus is how far one sink is (audit.sinks).
type SinkStatus struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Seq is the last record it has taken over, and Lag how many the log has
	// after it.
	Seq uint64 `json:"seq"`
	Lag uint64 `json:"lag"`
	// OldestUnsent is when the oldest record was made that is being sent and was
	// not taken over.
	OldestUnsent time.Time `json:"oldestUnsent,omitzero"`
	// Error is why it takes nothing, and FailingSince since when; absent while
	// all is well.
	Error        string    `json:"error,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	// Sent counts records since the start, Refused those of them that the other
	// system does not keep.
	Sent    uint64 `json:"sent"`
	Refused uint64 `json:"refused"`
	// Note is a past event for operators, such as a replaced log.
	Note string `json:"note,omitzero"`
}

// FilterForm returns the type of filters, and the one that has their form in JSON.
func FilterForm() (filter, form reflect.Type) {
	return reflect.TypeFor[audit.Filter](), audit.FilterForm()
}

// AuditQueryParams asks for records, newest first (operator, audit.query).
type AuditQueryParams struct {
	Filter audit.Filter `json:"filter,omitzero" doc:"Which records."`
	Limit  *int         `json:"limit,omitzero" is:"range=1..1000" doc:"At most this many; 100 by default."`
	Before uint64       `json:"before,omitzero" doc:"nextBefore of the page before."`
}

// Page returns the page's size.
func (p *AuditQueryParams) Page() int {
	if p.Limit == nil {
		return DefaultPage
	}
	return *p.Limit
}

// AuditQueryResult is a page of records, each exactly as it was sealed.
type AuditQueryResult struct {
	Records []jsontext.Value `json:"records"`
	// NextBefore continues the query; zero if nothing more matches.
	NextBefore uint64 `json:"nextBefore"`
}

// AuditStatsParams asks for numbers of records (operator, audit.stats).
type AuditStatsParams struct {
	Since  time.Time `json:"since,omitzero" doc:"The first time; that of the first record by default."`
	Until  time.Time `json:"until,omitzero" doc:"The last time; now by default."`
	Bucket int       `json:"bucket,omitzero" is:"range=0..31622400" doc:"The length of a bucket in seconds, in whole minutes; chosen by the daemon if absent."`
	Pairs  bool      `json:"pairs,omitzero" doc:"Adds the messages of each pair of sender and receiver, the most frequent 1000."`
}

// AuditStats is the answer of audit.stats.
type AuditStats = audit.Stats

// Rules reports faults between members.
func (p *AuditStatsParams) Rules() (f Fields) {
	if p.Bucket%60 != 0 {
		f.Add("bucket", "%d seconds are no whole minutes", p.Bucket)
	}
	if !p.Until.IsZero() && p.Until.Before(p.Since) {
		f.Add("until", "is before since")
	}
	return f
}

// AuditTailParams follows the log (operator, audit.tail, streaming). Each chunk
// is one record exactly as it was sealed.
type AuditTailParams struct {
	Filter audit.Filter `json:"filter,omitzero" doc:"Which records."`
	After  *uint64      `json:"after,omitzero" doc:"Begins after this record."`
	Last   int          `json:"last,omitzero" is:"range=0..1000" doc:"Begins with so many records that are there, if after is absent."`
	Follow bool         `json:"follow,omitzero" doc:"Goes on with new records."`
	Gather int          `json:"gatherMs,omitzero" is:"range=0..1000" doc:"New records come together, at most once in so many milliseconds."`
	Export bool         `json:"export,omitzero" doc:"The records are exported; the daemon records that first."`
}

// MethodDescription is one method as kernel.describe tells it.
type MethodDescription struct {
	Name   string `json:"name"`
	Access string `json:"access"`
	// Stream is true if the method answers in stream chunks, and Result what a chunk is. Opening,
	// if set, is the answer that comes before the first.
	Stream  bool `json:"stream"`
	Opening any  `json:"opening,omitempty"`
	Params  any  `json:"params"`
	Result  any  `json:"result"`
}

// Description is the answer of kernel.describe.
type Description struct {
	ProtocolVersion string              `json:"protocolVersion"`
	Version         string              `json:"version"`
	Methods         []MethodDescription `json:"methods"`
}

// MethodList is the answer of kernel.methods: every method of both sockets, in the
// order of the table.
type MethodList struct {
	Methods []MethodEntry `json:"methods"`
}

// MethodEntry is one method as kernel.methods lists it.
type MethodEntry struct {
	Name string `json:"name"`
	// Access is the permitted callers: any connection to the kernel socket (open), an app with its
	// token (app), an operator (operator), or any connection (any).
	Access string `json:"access"`
	// Pace is how long it may take: it is answered before the next request is read
	// (quick), it may wait for the disk or for others (patient), or it goes on until
	// it is cancelled (streaming).
	Pace string `json:"pace"`
	// Signing is whether an operator's call is signed where signatures are demanded; it is absent
	// if operators cannot call the method.
	Signing Signing `json:"signing,omitzero"`
}
