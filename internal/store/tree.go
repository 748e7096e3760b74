package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Signing is with what a store signs for its log.
type Signing struct {
	// Open returns the signer for a log of a name, and its public key in the
	// form of a signed note's verifier. inForce is the public key that the log
	// was last signed with, "" where it never was.
	Open func(name, inForce string) (signer note.Signer, public string, err error)
	// NewID returns a fresh id, for a checkpoint's record or a log's name.
	NewID func() string
	// Every is how long a record waits at most for a checkpoint; zero is a
	// minute.
	Every time.Duration
}

// Signed is a checkpoint and where it stands.
type Signed struct {
	// Seq is the record that holds it; it is of the records before.
	Seq  uint64
	Note string
}

// end is where the log ends, and all that the next record is made of. The
// writer replaces it with every commit; it is never changed.
type end struct {
	head audit.Head
	tree audit.Tree
	// signer has the key in force, nil where nothing is signed.
	signer note.Signer
	// newest is the last plain checkpoint.
	newest Signed
	// stated is the last record that holds a checkpoint of what is before it, and
	// unsigned is when the first record behind it was written, zero without one.
	stated   uint64
	unsigned time.Time
	retired  uint64
}

// Where the newest checkpoint, the log's name and the public key in force are
// kept in the database.
const (
	checkpointName = "checkpoint"
	logName        = "log-name"
	publicKeyName  = "checkpoint-key"
)

// Origin returns the log's name, which its keys have too, "" where nothing is
// signed.
func (s *Store) Origin() string {
	if signer := s.end.Load().signer; signer != nil {
		return signer.Name()
	}
	return ""
}

// openSigner names the log on its first start, and takes up the key that it is
// signed with, and its public key.
func (s *Store) openSigner(ctx context.Context, conn *sqlite.Conn) (signer note.Signer, public string, err error) {
	put := func(key, value string) error {
		err := sqlitex.Execute(conn, insertMeta, &sqlitex.ExecOptions{Args: []any{key, []byte(value)}})
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", key, err)
		}
		return nil
	}
	name, err := s.Meta(ctx, logName)
	if errors.Is(err, ErrNotFound) {
		name = []byte("ocipd/" + s.signing.NewID())
		err = put(logName, string(name))
	}
	if err != nil {
		return nil, "", err
	}
	inForce, err := s.Meta(ctx, publicKeyName)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, "", err
	}
	s.keyed = true
	signer, public, err = s.signing.Open(string(name), string(inForce))
	if err != nil {
		return nil, "", err
	}
	if public != string(inForce) {
		err = put(publicKeyName, public)
	}
	return signer, public, err
}

// Checkpoint returns the newest checkpoint; its Seq is zero where none was made.
func (s *Store) Checkpoint() Signed { return s.end.Load().newest }

// Covered returns how many records the newest checkpoint covers.
func (s *Store) Covered() uint64 { return max(s.Checkpoint().Seq, 1) - 1 }

// Retired returns the last record that was removed.
func (s *Store) Retired() uint64 { return s.end.Load().retired }

// WaitCheckpoint returns the newest checkpoint when it stands after record seq,
// or the context's error, or [ErrClosed].
func (s *Store) WaitCheckpoint(ctx context.Context, seq uint64) (Signed, error) {
	for {
		next := s.signings.wait()
		if newest := s.Checkpoint(); newest.Seq > seq {
			return newest, nil
		}
		if err := s.await(ctx, next); err != nil {
			return Signed{}, err
		}
	}
}

// Sign makes a checkpoint of everything recorded so far, unless the last record
// is a plain one.
func (s *Store) Sign() error {
	_, err := s.Commit(&Change{Checkpoint: true, Alarm: true})
	return err
}

// signInTime makes a checkpoint for records that have waited long enough for
// one.
func (s *Store) signInTime(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if end := s.end.Load(); end.head.Seq > end.stated && s.Latched() == nil {
				if err := s.Sign(); err != nil && !errors.Is(err, ErrClosed) {
					s.log.Error("cannot make a checkpoint of the audit log", zap.Error(err))
				}
			}
		case <-s.closing.Done():
			return
		}
	}
}

// RotateKey hands the log over to another key, of which next signs: the old one
// signs a checkpoint that names it, and the new one signs that too. It returns
// the record's number.
func (s *Store) RotateKey(next note.Signer, public string) (uint64, error) {
	if s.signing == nil {
		return 0, errors.New("cannot rotate the key: the log has none")
	}
	receipt, err := s.Commit(&Change{rotate: &rotation{next, public}, Alarm: true})
	return receipt.Seq, err
}

type rotation struct {
	signer note.Signer
	public string
}

// ProveRecord returns the receipt of a record: its path to the newest
// checkpoint. [ErrNotFound] means that there is no such record any more or yet,
// and [ErrUnsigned] that no checkpoint covers it yet.
func (s *Store) ProveRecord(ctx context.Context, seq uint64) (audit.Receipt, error) {
	end := s.end.Load()
	return s.prove(ctx, seq, &end.tree, end.newest)
}

// RootAt returns the root of the tree over the first records.
func (s *Store) RootAt(ctx context.Context, size uint64) (audit.Hash, error) {
	return s.rootAt(ctx, size, &s.end.Load().tree)
}

func (r *reader) rootAt(ctx context.Context, size uint64, tree *audit.Tree) (audit.Hash, error) {
	if size > tree.Size() {
		return audit.Hash{}, ErrNotFound
	}
	f, err := tree.Frontier(size, r.tiles(ctx))
	if err != nil {
		return audit.Hash{}, err
	}
	return f.Root(), nil
}

// ErrUnsigned means that no checkpoint covers a record yet.
var ErrUnsigned = errors.New("no checkpoint covers the record yet")

func (r *reader) prove(ctx context.Context, seq uint64, tree *audit.Tree, newest Signed) (audit.Receipt, error) {
	switch {
	case seq == 0, seq > tree.Size():
		return audit.Receipt{}, ErrNotFound
	case seq >= newest.Seq:
		return audit.Receipt{}, ErrUnsigned
	}
	path, err := tree.Prove(seq, newest.Seq-1, r.tiles(ctx))
	if err != nil {
		return audit.Receipt{}, err
	}
	return audit.Receipt{Seq: seq, Path: path, Note: newest.Note}, nil
}

// ProveRecord returns the receipt of a record, as [Store.ProveRecord] does.
func (r Evidence) ProveRecord(ctx context.Context, seq uint64) (audit.Receipt, error) {
	last, err := r.LastSeq(ctx)
	if err != nil {
		return audit.Receipt{}, err
	}
	tree, err := r.tree(ctx, last)
	if err != nil {
		return audit.Receipt{}, err
	}
	newest, err := r.newestCheckpoint(ctx)
	if err != nil {
		return audit.Receipt{}, err
	}
	return r.prove(ctx, seq, &tree, newest)
}

// tileID is a tile's key in the table.
func tileID(level int, n uint64) int64 { return int64(level)<<56 | int64(n) }

// tiles reads complete tiles.
func (r *reader) tiles(ctx context.Context) audit.TileReader {
	return func(level int, n uint64) ([]audit.Hash, error) { return r.tile(ctx, level, n) }
}

// tile returns a complete tile's hashes.
func (r *reader) tile(ctx context.Context, level int, n uint64) ([]audit.Hash, error) {
	t, err := r.storedTile(ctx, level, n)
	return t.Hashes, err
}

// storedTile is a complete tile with the root that is stated of it.
type storedTile struct {
	audit.Tile
	root audit.Hash
}

func (r *reader) storedTile(ctx context.Context, level int, n uint64) (storedTile, error) {
	t := storedTile{Tile: audit.Tile{Level: level, Index: n}}
	roots, err := row(ctx, r, "the Merkle tree", `SELECT root, hashes FROM tiles WHERE id = ?`, []any{tileID(level, n)}, func(stmt *sqlite.Stmt) (roots []audit.Hash, err error) {
		if roots, err = hashList(columnBytes(stmt, 0)); err == nil {
			t.Hashes, err = hashList(columnBytes(stmt, 1))
		}
		if err != nil || len(roots) != 1 || len(t.Hashes) != audit.TileWidth {
			err = badTile(level, n, "is none")
		}
		return roots, err
	})
	if errors.Is(err, ErrNotFound) {
		err = badTile(level, n, "is missing")
	}
	if err == nil {
		t.root = roots[0]
	}
	return t, err
}

func scanHashes(stmt *sqlite.Stmt) ([]audit.Hash, error) { return hashList(columnBytes(stmt, 0)) }

// hashBytes and hashList are how hashes are kept: one after another.
func hashBytes(hashes []audit.Hash) []byte {
	b := make([]byte, 0, len(hashes)*len(audit.Hash{}))
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

func hashList(b []byte) ([]audit.Hash, error) {
	const width = len(audit.Hash{})
	if len(b)%width != 0 {
		return nil, fmt.Errorf("%d bytes are no hashes", len(b))
	}
	hashes := make([]audit.Hash, len(b)/width)
	for i := range hashes {
		hashes[i] = audit.Hash(b[i*width:])
	}
	return hashes, nil
}

// tree reads the tree of a number of records.
func (r *reader) tree(ctx context.Context, size uint64) (audit.Tree, error) {
	return audit.GrowTree(size,
		func(level int, from, to uint64) ([]audit.Hash, error) {
			return rows(ctx, r, "the Merkle tree", `SELECT root FROM tiles WHERE id >= ? AND id < ? ORDER BY id`, []any{tileID(level, from), tileID(level, to)},
				func(stmt *sqlite.Stmt) (h audit.Hash, err error) {
					if stmt.ColumnLen(0) != len(h) {
						return h, &audit.Fault{Problem: "a tile of the Merkle tree has no root"}
					}
					stmt.ColumnBytes(0, h[:])
					return h, nil
				})
		},
		func(from, to uint64) (leaves []audit.Hash, err error) {
			leaves, err = r.retiredLeaves(ctx, from)
			if err != nil {
				return nil, err
			}
			for upTo := from + uint64(len(leaves)); upTo < to; {
				lines, last, err := r.LinesAfter(ctx, upTo)
				if err != nil {
					return nil, err
				}
				if last == upTo {
					break
				}
				for _, line := range lines {
					if upTo++; upTo <= to {
						leaves = append(leaves, audit.Leaf(line))
					}
				}
			}
			return leaves, nil
		})
}

// newestCheckpoint returns the last plain checkpoint; its Seq is zero where
// there is none.
func (r *reader) newestCheckpoint(ctx context.Context) (newest Signed, err error) {
	value, err := r.meta(ctx, checkpointName)
	switch {
	case errors.Is(err, ErrNotFound):
		return Signed{}, nil
	case err != nil:
		return Signed{}, err
	}
	if err := json.Unmarshal(value, &newest); err != nil {
		return Signed{}, fmt.Errorf("cannot read the newest checkpoint: %w", err)
	}
	return newest, nil
}

// growTree reads the tree of a log. It makes it where an older daemon wrote the log
// without one, and makes it again where the tiles are not those of the records.
func (s *Store) growTree(ctx context.Context, conn *sqlite.Conn, size uint64, tombstone audit.Tombstone) (audit.Tree, error) {
	have, err := queryInt(conn, fmt.Sprintf(`SELECT coalesce(max(id) + 1, 0) FROM tiles WHERE id < %d`, tileID(1, 0)))
	if err != nil {
		return audit.Tree{}, err
	}
	if have == 0 && tombstone.Head.Seq == 0 && size >= audit.TileWidth {
		s.log.Info("making the Merkle tree of the audit log, once", zap.Uint64("records", size))
		return s.plantTree(ctx, conn, size, tombstone)
	}
	tree, err := s.checkedTree(ctx, size)
	if _, damaged := errors.AsType[*audit.Fault](err); !damaged {
		return tree, err
	}
	s.log.Error("the Merkle tree is damaged: it is made again from the records", zap.Error(err))
	if _, err = s.plantTree(ctx, conn, size, tombstone); err == nil {
		tree, err = s.checkedTree(ctx, size)
	}
	if fault, damaged := errors.AsType[*audit.Fault](err); damaged {
		err = fmt.Errorf("cannot start on a damaged audit log: the records are not those that its newest checkpoint was signed for: %w", fault)
	}
	return tree, err
}

// checkedTree reads the tree of all records, and checks its tiles.
func (r *reader) checkedTree(ctx context.Context, size uint64) (audit.Tree, error) {
	tree, err := r.tree(ctx, size)
	if err == nil {
		err = r.checkTree(ctx, &tree)
	}
	return tree, err
}

// CheckTree checks the tiles of the Merkle tree, over so many records, whose root was
// made of the records. What is wrong with them is an [*audit.Fault].
func (r *reader) CheckTree(ctx context.Context, size uint64, root audit.Hash) error {
	tree, err := r.checkedTree(ctx, size)
	if err == nil && tree.Root() != root {
		err = &audit.Fault{Problem: "the tiles of the Merkle tree are not those of the records"}
	}
	if fault, damaged := errors.AsType[*audit.Fault](err); damaged {
		fault.Problem += "; the next start of the daemon makes them again"
	}
	return err
}

// badTile is a tile that is not that of the records.
func badTile(level int, n uint64, problem string) error {
	return &audit.Fault{Problem: fmt.Sprintf("tile %d of level %d of the Merkle tree %s", n, level, problem)}
}

// checkTree holds the tiles against each other, and the whole against the newest
// checkpoint: each tile has the root that it states, and that root stands in the tile
// above it. With the root of a tree that is known, nothing in them is another.
func (r *reader) checkTree(ctx context.Context, tree *audit.Tree) error {
	if err := r.countTiles(ctx, tree.Size()); err != nil {
		return err
	}
	for level, n := 0, tree.Size()>>audit.TileHeight; n > 0; level, n = level+1, n>>audit.TileHeight {
		var above []audit.Hash
		for i := range n {
			t, err := r.storedTile(ctx, level, i)
			if err != nil {
				return err
			}
			if t.root != t.Root() {
				return badTile(level, i, "has not the root that it states")
			}
			if i%audit.TileWidth == 0 {
				if above = nil; i>>audit.TileHeight < n>>audit.TileHeight {
					t, err := r.storedTile(ctx, level+1, i>>audit.TileHeight)
					if err != nil {
						return err
					}
					above = t.Hashes
				}
			}
			if above != nil && above[i%audit.TileWidth] != t.root {
				return badTile(level, i, "is another one than the tile above it says")
			}
		}
	}
	newest, err := r.newestCheckpoint(ctx)
	if err != nil || newest.Seq == 0 {
		return err
	}
	c, err := audit.OpenCheckpoint(newest.Note)
	if !errors.Is(err, audit.ErrUnsigned) {
		return fmt.Errorf("cannot read the newest checkpoint: %w", err)
	}
	if c.Size > tree.Size() {
		return nil // records are missing, and not tiles
	}
	root, err := r.rootAt(ctx, c.Size, tree)
	if err == nil && root != c.Root {
		err = &audit.Fault{Problem: fmt.Sprintf("the tiles of the Merkle tree are not those of the checkpoint of %d records", c.Size)}
	}
	return err
}

// countTiles wants as many tiles as so many records have.
func (r *reader) countTiles(ctx context.Context, size uint64) error {
	want := uint64(0)
	for n := size >> audit.TileHeight; n > 0; n >>= audit.TileHeight {
		want += n
	}
	have, err := r.seqOf(ctx, `SELECT count(*) FROM tiles`)
	if err == nil && have != want {
		err = &audit.Fault{Problem: fmt.Sprintf("the Merkle tree has %d tiles, and %d records have %d", have, size, want)}
	}
	return err
}

// plantTree makes the tiles of a log from its lines, whose chain it checks. Of
// records that were retired it takes the tiles that there are, if they are those
// that the tombstone stands for.
func (s *Store) plantTree(ctx context.Context, conn *sqlite.Conn, size uint64, tombstone audit.Tombstone) (tree audit.Tree, err error) {
	head := tombstone.Head
	tree, err = s.tree(ctx, head.Seq)
	_, damaged := errors.AsType[*audit.Fault](err)
	if damaged || err == nil && head.Seq > 0 && tree.Root() != tombstone.Frontier.Root() {
		return audit.Tree{}, fmt.Errorf("cannot make the Merkle tree again: its tiles of the first %d records are damaged, and these were retired; restore the database from a backup", head.Seq)
	}
	if err != nil {
		return audit.Tree{}, err
	}
	defer sqlitex.Transaction(conn)(&err)
	for level, n := 0, head.Seq; level < tileLevels; level++ {
		n >>= audit.TileHeight
		err := sqlitex.Execute(conn, `DELETE FROM tiles WHERE id >= ? AND id < ?`, &sqlitex.ExecOptions{Args: []any{tileID(level, n), tileID(level+1, 0)}})
		if err != nil {
			return audit.Tree{}, fmt.Errorf("cannot make the Merkle tree: %w", err)
		}
	}
	w := writer{conn: conn, stmts: make(map[string]*sqlite.Stmt)}
	err = s.EachStored(ctx, head.Seq, func(seq uint64, line []byte) (err error) {
		if seq > size {
			return nil
		}
		if head, err = head.Check(line); err != nil {
			return err
		}
		return tree.Append(audit.Leaf(line), w.putTile)
	})
	return tree, err
}

// tileLevels is how many levels of tiles a tree can have.
const tileLevels = 64 / audit.TileHeight

func (w *writer) putTile(t audit.Tile) error {
	root := t.Root()
	return w.exec("the Merkle tree", `INSERT INTO tiles (id, root, hashes) VALUES (?, ?, ?)`,
		number(tileID(t.Level, t.Index)), bytesOf(root[:]), bytesOf(hashBytes(t.Hashes)))
}

// conclude writes what a change asks to be signed behind its records.
func (w *writer) conclude(lines []byte, log *end, at time.Time, p *pending) ([]byte, error) {
	if log.signer == nil {
		return lines, nil
	}
	var err error
	if p.rotate != nil {
		if lines, err = w.handOver(lines, log, at, p); err != nil {
			return nil, err
		}
	}
	if p.retire != nil {
		if lines, err = w.entomb(lines, log, at, p); err != nil {
			return nil, err
		}
	}
	if p.Checkpoint && log.head.Seq > log.newest.Seq {
		return w.sign(lines, log, at, p)
	}
	return lines, nil
}

// handOver writes the record in which a key names the next.
func (w *writer) handOver(lines []byte, log *end, at time.Time, p *pending) ([]byte, error) {
	next := audit.HandOver(log.checkpoint(), p.rotate.public)
	signed, err := next.Sign(log.signer, p.rotate.signer)
	if err != nil {
		return nil, err
	}
	log.signer = p.rotate.signer
	if err := w.putMeta(Meta{Key: publicKeyName, Value: []byte(p.rotate.public)}); err != nil {
		return nil, err
	}
	return w.state(lines, log, at, p, audit.EventRotated, signed)
}

// overdue reports whether a record is not signed yet that will be too old for it when
// the next one is written.
func (e *end) overdue(at time.Time) bool {
	if at.Before(e.head.Time) {
		at = e.head.Time
	}
	return e.signer != nil && !e.unsigned.IsZero() && at.Sub(e.unsigned) > audit.SignWithin
}

// due reports whether a checkpoint has to follow the last record.
func (e *end) due() bool { return e.signer != nil && e.head.Seq >= e.stated+audit.CheckpointEvery }

// sign writes a checkpoint of all records so far.
func (w *writer) sign(lines []byte, log *end, at time.Time, p *pending) ([]byte, error) {
	c := log.checkpoint()
	signed, err := c.Sign(log.signer)
	if err != nil {
		return nil, err
	}
	if lines, err = w.state(lines, log, at, p, audit.EventSigned, signed); err != nil {
		return nil, err
	}
	log.newest = Signed{Seq: log.head.Seq, Note: signed}
	value, err := json.Marshal(log.newest)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the checkpoint of record %d: %w", log.head.Seq, err)
	}
	return lines, w.putMeta(Meta{Key: checkpointName, Value: value})
}

// checkpoint is what is to be signed of the log as it is.
func (e *end) checkpoint() audit.Checkpoint {
	return audit.Checkpoint{Origin: e.signer.Name(), Size: e.tree.Size(), Root: e.tree.Root()}
}

// state writes the record that holds a signed note.
func (w *writer) state(lines []byte, log *end, at time.Time, p *pending, event, signed string) ([]byte, error) {
	body, err := audit.Encode(&audit.Record{
		ID: w.signing.NewID(), ActionType: audit.ActionCheckpoint, Event: event,
		Details: map[string]any{"note": signed, audit.SignsWithin: int(audit.SignWithin.Seconds())},
	})
	if err != nil {
		return nil, err
	}
	if lines, err = w.seal(lines, log, at, body); err != nil {
		return nil, err
	}
	if event != audit.EventRetired {
		log.stated, log.unsigned = log.head.Seq, time.Time{}
	}
	if p.receipt.Seq == 0 {
		p.receipt = Receipt{Seq: log.head.Seq, Time: log.head.Time}
	}
	return lines, nil
}
