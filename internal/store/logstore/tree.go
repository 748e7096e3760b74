package logstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// tileID is a tile's key in the table.
func tileID(level int, n uint64) int64 { return int64(level)<<56 | int64(n) }

// tiles reads complete tiles.
func (r Records) tiles(ctx context.Context) audit.TileReader {
	return func(level int, n uint64) ([]audit.Hash, error) { return r.tile(ctx, level, n) }
}

// tile returns a complete tile's hashes.
func (r Records) tile(ctx context.Context, level int, n uint64) ([]audit.Hash, error) {
	t, err := r.storedTile(ctx, level, n)
	return t.Hashes, err
}

// storedTile is a complete tile with its stated root.
type storedTile struct {
	audit.Tile
	root audit.Hash
}

func (r Records) storedTile(ctx context.Context, level int, n uint64) (storedTile, error) {
	t := storedTile{Tile: audit.Tile{Level: level, Index: n}}
	roots, err := db.Row(ctx, r.db, "the Merkle tree", `SELECT root, hashes FROM tiles WHERE id = ?`, []any{tileID(level, n)}, func(stmt *sqlite.Stmt) (roots []audit.Hash, err error) {
		if roots, err = hashList(db.ColumnBytes(stmt, 0)); err == nil {
			t.Hashes, err = hashList(db.ColumnBytes(stmt, 1))
		}
		if err != nil || len(roots) != 1 || len(t.Hashes) != audit.TileWidth {
			err = badTile(level, n, "is none")
		}
		return roots, err
	})
	if errors.Is(err, db.ErrNotFound) {
		err = badTile(level, n, "is missing")
	}
	if err == nil {
		t.root = roots[0]
	}
	return t, err
}

func scanHashes(stmt *sqlite.Stmt) ([]audit.Hash, error) { return hashList(db.ColumnBytes(stmt, 0)) }

// hashBytes and hashList encode and decode hashes, one after another.
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
func (r Records) tree(ctx context.Context, size uint64) (audit.Tree, error) {
	return audit.GrowTree(size,
		func(level int, from, to uint64) ([]audit.Hash, error) {
			return db.Rows(ctx, r.db, "the Merkle tree", `SELECT root FROM tiles WHERE id >= ? AND id < ? ORDER BY id`, []any{tileID(level, from), tileID(level, to)},
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

// growTree reads the tree of a log. It makes the tree if an older daemon wrote the log without one,
// and again if the tiles do not fit the records. If the log has a checkpoint, it checks only the
// tiles that lead to it and those since, so that a start takes the same time however long the log
// is; all has it check every tile.
func (l *Log) growTree(ctx context.Context, w *db.Writer, size uint64, tombstone audit.Tombstone, all bool, log *zap.Logger) (audit.Tree, error) {
	have, err := db.QueryInt(w.Conn, fmt.Sprintf(`SELECT coalesce(max(id) + 1, 0) FROM tiles WHERE id < %d`, tileID(1, 0)))
	if err != nil {
		return audit.Tree{}, err
	}
	if have == 0 && tombstone.Head.Seq == 0 && size >= audit.TileWidth {
		log.Info("making the Merkle tree of the audit log, once", zap.Uint64("records", size))
		return l.plantTree(ctx, w, size, tombstone)
	}
	check := l.checkedTree
	if !all {
		check = l.checkedEdge
	}
	tree, err := check(ctx, size)
	if _, damaged := errors.AsType[*audit.Fault](err); !damaged {
		return tree, err
	}
	log.Error("the Merkle tree is damaged: it is made again from the records", zap.Error(err))
	if _, err = l.plantTree(ctx, w, size, tombstone); err == nil {
		tree, err = l.checkedTree(ctx, size)
	}
	if fault, damaged := errors.AsType[*audit.Fault](err); damaged {
		err = fmt.Errorf("cannot start on a damaged audit log: the records are not those that its newest checkpoint was signed for: %w", fault)
	}
	return tree, err
}

// checkedTree reads the tree of all records, and checks its tiles.
func (r Records) checkedTree(ctx context.Context, size uint64) (audit.Tree, error) {
	return r.checked(ctx, size, 0)
}

// checkedEdge reads the tree of all records, and checks the tiles since the newest checkpoint and
// those that lead to its root. [Log.CheckAll] checks the others, and a later read of one, such as
// for the path of a receipt, leads to a signed root or to a fault.
func (r Records) checkedEdge(ctx context.Context, size uint64) (audit.Tree, error) {
	c, err := r.newestOf(ctx)
	if err != nil {
		return audit.Tree{}, err
	}
	return r.checked(ctx, size, min(c.Size, size))
}

// checked reads the tree of all records, and checks the tiles that were not complete at a size.
func (r Records) checked(ctx context.Context, size, since uint64) (audit.Tree, error) {
	tree, err := r.tree(ctx, size)
	if err == nil {
		err = r.lastTiles(ctx, size)
	}
	if err == nil {
		err = r.checkTiles(ctx, size, since, nil)
	}
	if err != nil {
		return tree, err
	}
	c, err := r.newestOf(ctx)
	if err == nil {
		err = r.fits(ctx, &tree, c)
	}
	return tree, err
}

// CheckTree checks the tiles of the Merkle tree over so many records, whose root was computed from
// the records. A wrong tile is an [*audit.Fault].
func (r Records) CheckTree(ctx context.Context, size uint64, root audit.Hash) error {
	tree, err := r.checkedTree(ctx, size)
	if err == nil && tree.Root() != root {
		err = &audit.Fault{Problem: "the tiles of the Merkle tree are not those of the records"}
	}
	if fault, damaged := errors.AsType[*audit.Fault](err); damaged {
		fault.Problem += "; a daemon that runs finds that too, and makes the tiles again at its next start"
	}
	return err
}

// badTile returns the fault of a tile that does not fit the records.
func badTile(level int, n uint64, problem string) error {
	return &audit.Fault{Problem: fmt.Sprintf("tile %d of level %d of the Merkle tree %s", n, level, problem)}
}

// checkTiles compares the tiles over so many records with each other: each tile that was not
// complete at a size has its stated root, and the tile above it contains that root. Together with a
// known root of the tree, this proves all tiles. Rest is called after each tile, and its error ends
// the check.
func (r Records) checkTiles(ctx context.Context, size, since uint64, rest func(context.Context) error) error {
	for level, n := 0, size>>audit.TileHeight; n > 0; level, n = level+1, n>>audit.TileHeight {
		first := since >> (audit.TileHeight * (level + 1))
		var above []audit.Hash
		for i := first; i < n; i++ {
			t, err := r.storedTile(ctx, level, i)
			if err != nil {
				return err
			}
			if t.root != t.Root() {
				return badTile(level, i, "has not the root that it states")
			}
			if i == first || i%audit.TileWidth == 0 {
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
			if rest != nil {
				if err := rest(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// newestOf reads the newest checkpoint, or the zero one.
func (r Records) newestOf(ctx context.Context) (audit.Checkpoint, error) {
	newest, err := r.newestCheckpoint(ctx)
	if err != nil {
		return audit.Checkpoint{}, err
	}
	return newest.open()
}

// open reads the checkpoint, or the zero one.
func (s Signed) open() (audit.Checkpoint, error) {
	if s.Seq == 0 {
		return audit.Checkpoint{}, nil
	}
	c, err := audit.OpenCheckpoint(s.Note)
	if !errors.Is(err, audit.ErrUnsigned) {
		return c, fmt.Errorf("cannot read the newest checkpoint: %w", err)
	}
	return c, nil
}

// fits compares a tree with a checkpoint.
func (r Records) fits(ctx context.Context, tree *audit.Tree, c audit.Checkpoint) error {
	if c.Size == 0 || c.Size > tree.Size() {
		return nil // it covers more: records are missing, not tiles
	}
	root, err := r.rootAt(ctx, c.Size, tree)
	if err == nil && root != c.Root {
		err = &audit.Fault{Problem: fmt.Sprintf("the tiles of the Merkle tree are not those of the checkpoint of %d records", c.Size)}
	}
	return err
}

// lastTiles checks that the last tile of each level fits the number of records.
func (r Records) lastTiles(ctx context.Context, size uint64) error {
	for level, want := 0, size; level < tileLevels; level++ {
		want >>= audit.TileHeight
		have, err := r.seqOf(ctx, fmt.Sprintf(`SELECT coalesce(max(id) + 1, %d) FROM tiles WHERE id >= %[1]d AND id < %d`, tileID(level, 0), tileID(level+1, 0)))
		if err != nil {
			return err
		}
		if have -= uint64(tileID(level, 0)); have != want {
			return &audit.Fault{Problem: fmt.Sprintf("the Merkle tree has %d tiles on level %d, and %d records have %d", have, level, size, want)}
		}
	}
	return nil
}

// CheckAll makes the checks that a start leaves out: every complete tile, and every record against
// the tile with its hash. A failure is an [*audit.Fault]. It takes as long as reading the log; rest
// is called after each tile's worth of work, and its error ends the check. The log may grow and be
// retired meanwhile.
func (l *Log) CheckAll(ctx context.Context, rest func(context.Context) error) error {
	for {
		retired := l.Retired()
		err := l.checkAll(ctx, l.end.Load(), rest)
		if _, damaged := errors.AsType[*audit.Fault](err); !damaged || l.Retired() == retired {
			return err
		}
		// Records that were removed meanwhile could not be read.
	}
}

// errChecked ends the reading of records.
var errChecked = errors.New("all records of complete tiles are checked")

func (l *Log) checkAll(ctx context.Context, end *end, rest func(context.Context) error) error {
	size := end.head.Seq
	c, err := end.newest.open()
	if err != nil {
		return err
	}
	if err := l.checkTiles(ctx, size, 0, rest); err != nil {
		return err
	}
	// Read the database, not the tree in memory.
	tree, err := l.tree(ctx, size)
	if err == nil {
		err = l.fits(ctx, &tree, c)
	}
	if err != nil {
		return err
	}
	size &^= audit.TileWidth - 1
	next, leaf := end.retired, audit.Leaves()
	var leaves []audit.Hash
	err = l.EachLine(ctx, end.retired, func(seq uint64, line []byte) error {
		if seq > size {
			return errChecked
		}
		if next++; seq != next {
			return &audit.Fault{Seq: next, Problem: "it is missing"}
		}
		if leaves = append(leaves, leaf(line)); seq%audit.TileWidth != 0 {
			return nil
		}
		tile, err := l.tile(ctx, 0, seq/audit.TileWidth-1)
		if err != nil {
			return err
		}
		for i, want := range tile[audit.TileWidth-len(leaves):] {
			if leaves[i] != want {
				return &audit.Fault{Seq: seq - uint64(len(leaves)-1-i), Problem: "it is another one than the Merkle tree was made of"}
			}
		}
		leaves = leaves[:0]
		return rest(ctx)
	})
	if errors.Is(err, errChecked) {
		err = nil
	}
	return err
}

// plantTree makes the tiles of a log from its lines, whose chain it checks. For retired records it
// takes the existing tiles, if they fit the tombstone.
func (l *Log) plantTree(ctx context.Context, w *db.Writer, size uint64, tombstone audit.Tombstone) (tree audit.Tree, err error) {
	head := tombstone.Head
	tree, err = l.tree(ctx, head.Seq)
	_, damaged := errors.AsType[*audit.Fault](err)
	if damaged || err == nil && head.Seq > 0 && tree.Root() != tombstone.Frontier.Root() {
		return audit.Tree{}, fmt.Errorf("cannot make the Merkle tree again: its tiles of the first %d records are damaged, and these were retired; restore the database from a backup", head.Seq)
	}
	if err != nil {
		return audit.Tree{}, err
	}
	defer sqlitex.Transaction(w.Conn)(&err)
	for level, n := 0, head.Seq; level < tileLevels; level++ {
		n >>= audit.TileHeight
		if err := w.Exec("the Merkle tree", `DELETE FROM tiles WHERE id >= ? AND id < ?`, db.Int(tileID(level, n)), db.Int(tileID(level+1, 0))); err != nil {
			return audit.Tree{}, err
		}
	}
	err = l.EachStored(ctx, head.Seq, func(seq uint64, line []byte) (err error) {
		if seq > size {
			return nil
		}
		if head, err = head.Check(line); err != nil {
			return err
		}
		return tree.Append(audit.Leaf(line), func(t audit.Tile) error { return putTile(w, t) })
	})
	return tree, err
}

// tileLevels is the largest number of levels of tiles in a tree.
const tileLevels = 64 / audit.TileHeight

func putTile(w *db.Writer, t audit.Tile) error {
	root := t.Root()
	return w.Exec("the Merkle tree", `INSERT INTO tiles (id, root, hashes) VALUES (?, ?, ?)`,
		db.Int(tileID(t.Level, t.Index)), db.Bytes(root[:]), db.Bytes(hashBytes(t.Hashes)))
}
