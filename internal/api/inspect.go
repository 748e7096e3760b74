package api

import "time"

// AuditInspectParams asks what shows that the log is whole (operator, audit.inspect).
type AuditInspectParams struct {
	Seq  uint64  `json:"seq,omitzero" doc:"A record to give, with its receipt."`
	Size uint64  `json:"size,omitzero" doc:"A number of records: the root of the tree over them."`
	Old  *uint64 `json:"old,omitzero" doc:"A smaller number of records: the path that shows that they begin those of size."`
}

// AuditInspection is the state of the log in a database.
type AuditInspection struct {
	// Database is the file that it is about.
	Database string `json:"database"`
	// Last is the last record.
	Last uint64 `json:"last"`
	// Checkpoint is the newest one, and CheckpointSeq the record that holds it; they are absent if
	// none was made.
	CheckpointSeq uint64 `json:"checkpointSeq,omitzero"`
	Checkpoint    string `json:"checkpoint,omitzero"`
	// Key is the public key in force.
	Key string `json:"key,omitzero"`
	// Tombstone stands for the records that were retired.
	Tombstone string `json:"tombstone,omitzero"`
	// Tail is the end of the last 256 records if their chain holds, and Fault the fault if it does
	// not.
	Tail  *AuditHead `json:"tail,omitzero" doc:"The last record."`
	Fault string     `json:"fault,omitzero"`
	// Line is the record that was asked for, absent if there is none, and Receipt its receipt,
	// absent if no checkpoint covers it yet.
	Line    string `json:"line,omitzero"`
	Receipt string `json:"receipt,omitzero"`
	// Root is that of the tree over the records that were asked for, absent if there are fewer.
	Root string `json:"root,omitzero"`
	// Path is the path that was asked for with Old.
	Path []string `json:"path,omitempty"`
}

// AuditHead is a place in the chain of records.
type AuditHead struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Hash string    `json:"hash"`
}

// StoreSnapshot is a copy of the database (operator, store.snapshot, streaming). The
// file is there until the stream ends.
type StoreSnapshot struct {
	// Database is the file that was copied, and Path the copy.
	Database string `json:"database"`
	Path     string `json:"path"`
	Bytes    int64  `json:"bytes"`
}

// BackupNoteParams says that the state is about to be copied (operator, backup.note), which goes on
// record.
type BackupNoteParams struct {
	Directory string `json:"directory" is:"required max=4096" doc:"The folder of the copy."`
}
