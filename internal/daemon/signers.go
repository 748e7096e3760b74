package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/store"
)

const (
	// signersName is the database key of the last seen file of allowed signers.
	signersName = "allowed-signers"
	// signersOnRecord bounds the lines of the file in a record.
	signersOnRecord = 64
)

// seenSigners is the last seen state of the file of allowed signers: its digest, and the
// number before its record.
type seenSigners struct {
	store *store.Store
	newID func() string

	mu     sync.Mutex
	read   bool
	listed bool
	digest string
	behind uint64
}

// load reads the value in the database. Earlier versions kept only the digest, because they
// recorded no lines; their state is recorded anew.
func (s *seenSigners) load(value []byte) {
	n, _ := fmt.Sscan(string(value), &s.digest, &s.behind) // absent parts stay zero
	s.read, s.listed = true, n == 2
}

// of records a changed file of allowed signers before anybody decides by it,
// because the file at that time tells who a principal was. The record has the file's digest
// and its first lines. If retention has removed the record, it is made anew.
func (s *seenSigners) of(file string) func(sum [32]byte, list *sshsig.Signers) error {
	return func(sum [32]byte, list *sshsig.Signers) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.read {
			last, err := s.store.Meta(context.Background(), signersName)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			s.load(last)
		}
		digest := "sha256:" + hex.EncodeToString(sum[:])
		if digest == s.digest && s.listed && s.store.Retired() <= s.behind {
			return nil
		}
		details := map[string]any{"file": file, "digest": digest, "signerCount": list.Len(), "signers": list.Each(signersOnRecord)}
		if s.digest != "" {
			details["was"] = s.digest
		}
		behind := s.store.Head().Seq
		_, err := s.store.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: signersName, Value: fmt.Appendf(nil, "%s %d", digest, behind)}}, Records: []*audit.Record{{
			ID: s.newID(), ActionType: audit.ActionConfigChange, Event: "signers_changed", Details: details,
		}}})
		if err == nil {
			s.digest, s.behind, s.listed = digest, behind, true
		}
		return err
	}
}
