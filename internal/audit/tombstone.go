package audit

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Tombstone stands for the records that retention removed from the beginning of a log. It is a
// signed checkpoint over them, with the data that a verifier needs to continue from there.
type Tombstone struct {
	Origin string
	// Head is the last record that was removed.
	Head Head
	// Frontier is the tree's right edge at that record.
	Frontier Frontier
	// Signed is the note.
	Signed string
}

// The extension lines of a tombstone's checkpoint, in their order.
const (
	tombstoneChain    = "chain "
	tombstoneTime     = "time "
	tombstoneFrontier = "frontier "
)

// SignTombstone makes the tombstone of the records up to head.
func SignTombstone(origin string, head Head, frontier Frontier, signer note.Signer) (Tombstone, error) {
	edge := make([]string, len(frontier.Hashes))
	for i, h := range frontier.Hashes {
		edge[i] = base64.StdEncoding.EncodeToString(h[:])
	}
	c := Checkpoint{Origin: origin, Size: head.Seq, Root: frontier.Root(), Extension: []string{
		tombstoneChain + head.Hash.String(),
		tombstoneTime + head.Time.UTC().Format(timeLayout),
		tombstoneFrontier + strings.Join(edge, " "),
	}}
	signed, err := c.Sign(signer)
	if err != nil {
		return Tombstone{}, err
	}
	return Tombstone{Origin: origin, Head: head, Frontier: frontier, Signed: signed}, nil
}

// OpenTombstone reads a tombstone. If keys are given, one of them must have signed it: otherwise
// the error is [ErrUnsigned] beside the tombstone.
func OpenTombstone(signed string, keys ...note.Verifier) (Tombstone, error) {
	c, unsigned := OpenCheckpoint(signed, keys...)
	if unsigned != nil && c.Size == 0 {
		return Tombstone{}, unsigned
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("not a tombstone: %w", fmt.Errorf(format, args...))
	}
	if len(c.Extension) != 3 || c.Size == 0 {
		return Tombstone{}, bad("it does not say where the log goes on")
	}
	t := Tombstone{Origin: c.Origin, Signed: signed}
	t.Head.Seq, t.Frontier.Size = c.Size, c.Size
	chain, ok := strings.CutPrefix(c.Extension[0], tombstoneChain)
	if err := t.Head.Hash.UnmarshalText([]byte(chain)); !ok || err != nil {
		return Tombstone{}, bad("its first extension is no hash of a record")
	}
	at, ok := strings.CutPrefix(c.Extension[1], tombstoneTime)
	var err error
	if t.Head.Time, err = time.Parse(timeLayout, at); !ok || err != nil {
		return Tombstone{}, bad("its second extension is no time")
	}
	edge, ok := strings.CutPrefix(c.Extension[2], tombstoneFrontier)
	if !ok {
		return Tombstone{}, bad("its third extension is no frontier")
	}
	for text := range strings.SplitSeq(edge, " ") {
		h, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(h) != len(Hash{}) {
			return Tombstone{}, bad("its frontier holds %s", strconv.Quote(text))
		}
		t.Frontier.Hashes = append(t.Frontier.Hashes, Hash(h))
	}
	if !t.Frontier.fits() || t.Frontier.Root() != c.Root {
		return Tombstone{}, bad("its frontier is not that of its root")
	}
	return t, unsigned
}
