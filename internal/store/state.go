package store

import (
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
)

// Known reads who has written from where, and who has read.
type Known struct {
	db *db.Reader
}

// State reads the rows of the database. A row is held to its seal, and one that decisions depend on to the
// log's statement too.
type State struct {
	Known
	seals *db.Seals
	// state are the open rows, as the log states them.
	state  *fold.Set
	clock  func() time.Time
	logger *zap.Logger
	// between runs a task between two commits.
	between func(task func(*writer) error) error
}
