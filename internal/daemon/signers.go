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
	// signersName is where the database keeps which file of allowed signers was seen last.
	signersName = "allowed-signers"
	// signersOnRecord is how many lines of it a record lists.
	signersOnRecord = 64
)

// seenSigners is what was seen last of the file of allowed signers: its digest, and behind which
// record it was put on record with its lines.
type seenSigners struct {
	mu     sync.Mutex
	read   bool
	listed bool
	digest string
	behind uint64
}

// load reads what the database has. Earlier versions kept the digest alone, since they recorded
// no lines: what they saw is recorded anew.
func (s *seenSigners) load(value []byte) {
	n, _ := fmt.Sscan(string(value), &s.digest, &s.behind) // what is absent stays zero
	s.read, s.listed = true, n == 2
}

// signersSeen puts on record that the file of allowed signers is another one, before
// anybody decides by it: who a principal was is told by the file of that moment. The record has
// the file's digest and its first lines. It is made anew where retention has removed it.
func (d *Daemon) signersSeen(file string) func(sum [32]byte, list *sshsig.Signers) error {
	return func(sum [32]byte, list *sshsig.Signers) error {
		s := &d.signers
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.read {
			last, err := d.store.Meta(context.Background(), signersName)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			s.load(last)
		}
		digest := "sha256:" + hex.EncodeToString(sum[:])
		if digest == s.digest && s.listed && d.store.Retired() <= s.behind {
			return nil
		}
		details := map[string]any{"file": file, "digest": digest, "signerCount": list.Len(), "signers": list.Each(signersOnRecord)}
		if s.digest != "" {
			details["was"] = s.digest
		}
		behind := d.store.Head().Seq
		_, err := d.store.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: signersName, Value: fmt.Appendf(nil, "%s %d", digest, behind)}}, Records: []*audit.Record{{
			ID: d.ids.next(), ActionType: audit.ActionConfigChange, Event: "signers_changed", Details: details,
		}}})
		if err == nil {
			s.digest, s.behind, s.listed = digest, behind, true
		}
		return err
	}
}
