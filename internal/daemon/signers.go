package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// signersName is where the database keeps which file of allowed signers was seen last.
const signersName = "allowed-signers"

// seenSigners is what was seen last of the file of allowed signers.
type seenSigners struct {
	mu   sync.Mutex
	read bool
	last string
}

// signersSeen puts on record that the file of allowed signers is another one, before
// anybody decides by it: who a principal was is told by the file of that moment. The
// file is kept by whoever writes it; the record has its digest.
func (d *Daemon) signersSeen(file string) func(sum [32]byte) error {
	return func(sum [32]byte) error {
		s := &d.signers
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.read {
			last, err := d.store.Meta(context.Background(), signersName)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			s.last, s.read = string(last), true
		}
		digest := "sha256:" + hex.EncodeToString(sum[:])
		if digest == s.last {
			return nil
		}
		details := map[string]any{"file": file, "digest": digest}
		if s.last != "" {
			details["was"] = s.last
		}
		_, err := d.store.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: signersName, Value: []byte(digest)}}, Records: []*audit.Record{{
			ID: d.ids.next(), ActionType: audit.ActionConfigChange, Event: "signers_changed", Details: details,
		}}})
		if err == nil {
			s.last = digest
		}
		return err
	}
}
