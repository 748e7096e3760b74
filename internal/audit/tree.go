package audit

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// The Merkle tree over the records is that of RFC 6962, section 2.1: a leaf is SHA-256(0x00 ‖
// line), a node SHA-256(0x01 ‖ left ‖ right). Its root of 32 bytes stands for the content of all
// records. A proof shows that one record is among them without showing another.

// Leaf returns the leaf hash of a line.
func Leaf(line []byte) Hash {
	h := newLeafHash()
	return h.sum(line)
}

// Leaves returns a function like [Leaf] that allocates nothing. It is for one goroutine.
func Leaves() func(line []byte) Hash { return newLeafHash().sum }

// leafHash hashes lines without allocating.
type leafHash struct {
	state  hash.Hash
	prefix [1]byte
	out    Hash
}

func newLeafHash() *leafHash { return &leafHash{state: sha256.New()} }

func (h *leafHash) sum(line []byte) Hash {
	h.state.Reset()
	h.state.Write(h.prefix[:])
	h.state.Write(line)
	h.state.Sum(h.out[:0])
	return h.out
}

func node(left, right Hash) Hash {
	var b [1 + 2*len(left)]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+len(left):], right[:])
	return sha256.Sum256(b[:])
}

// fold returns the root over subtrees of one size, of which the last may be
// smaller.
func fold(subtrees []Hash) Hash {
	switch len(subtrees) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return subtrees[0]
	}
	left := 1 << (bits.Len(uint(len(subtrees)-1)) - 1)
	return node(fold(subtrees[:left]), fold(subtrees[left:]))
}

// Frontier is the right edge of a tree: the roots of the complete subtrees whose sizes are the
// binary digits of the tree's size, largest first. It is enough to continue a tree, or to compute
// its root. The zero Frontier is the empty tree.
type Frontier struct {
	Size   uint64
	Hashes []Hash
}

// Append adds a leaf.
func (f *Frontier) Append(leaf Hash) {
	f.Hashes = append(f.Hashes, leaf)
	for n := f.Size; n&1 == 1; n >>= 1 {
		last := len(f.Hashes) - 1
		f.Hashes[last-1] = node(f.Hashes[last-1], f.Hashes[last])
		f.Hashes = f.Hashes[:last]
	}
	f.Size++
}

// Root returns the root of the tree.
func (f *Frontier) Root() Hash {
	if len(f.Hashes) == 0 {
		return fold(nil)
	}
	root := f.Hashes[len(f.Hashes)-1]
	for i := len(f.Hashes) - 2; i >= 0; i-- {
		root = node(f.Hashes[i], root)
	}
	return root
}

// fits reports whether there are as many hashes as the size has binary ones.
func (f *Frontier) fits() bool { return len(f.Hashes) == bits.OnesCount64(f.Size) }

// TileWidth is the number of hashes in a complete tile, and TileHeight the number of the tree's
// levels in one.
const (
	TileWidth  = 1 << TileHeight
	TileHeight = 8

	tileLevels = 64 / TileHeight
)

// Tile is a run of neighbouring hashes of a tree: at level 0 of leaves, at level n of the roots of
// complete tiles of level n-1. A complete tile never changes, so it is written once.
type Tile struct {
	Level  int
	Index  uint64
	Hashes []Hash
}

// Root returns the root of a complete tile's subtree.
func (t *Tile) Root() Hash { return fold(t.Hashes) }

// Tree is a growing tree: the caller has its complete tiles, and the tiles at its right edge are in
// memory. A Tree is a value; a copy is a snapshot that does not change while the original, or
// another copy, grows.
type Tree struct {
	size uint64
	edge [tileLevels][]Hash
}

// GrowTree returns the tree of a size, read from the caller's store: roots returns the roots of the
// complete tiles of a level from an index on, and leaves the leaf hashes from an index on.
func GrowTree(size uint64, roots func(level int, from, to uint64) ([]Hash, error), leaves func(from, to uint64) ([]Hash, error)) (Tree, error) {
	t := Tree{size: size}
	for level, n := 0, size; n > 0; level, n = level+1, n>>TileHeight {
		from := n &^ (TileWidth - 1)
		var hashes []Hash
		var err error
		switch {
		case from == n:
		case level == 0:
			hashes, err = leaves(from, n)
		default:
			hashes, err = roots(level-1, from, n)
		}
		if err != nil {
			return Tree{}, err
		}
		if uint64(len(hashes)) != n-from {
			return Tree{}, &Fault{Problem: fmt.Sprintf("the Merkle tree has %d hashes on level %d from %d on, want %d", len(hashes), level, from, n-from)}
		}
		t.edge[level] = append(make([]Hash, 0, TileWidth), hashes...)
	}
	return t, nil
}

// Size returns the number of leaves.
func (t *Tree) Size() uint64 { return t.size }

// Append adds a leaf and calls done for every tile that it completes, the
// lowest first.
func (t *Tree) Append(leaf Hash, done func(Tile) error) error {
	index := t.size >> TileHeight
	t.size++
	for level := 0; ; level++ {
		edge := t.edge[level]
		if edge == nil {
			edge = make([]Hash, 0, TileWidth)
		}
		edge = append(edge, leaf)
		t.edge[level] = edge
		if len(edge) < TileWidth {
			return nil
		}
		// A snapshot may still use the full edge, so the next one is new.
		t.edge[level] = nil
		tile := Tile{Level: level, Index: index, Hashes: edge}
		if err := done(tile); err != nil {
			return err
		}
		leaf, index = tile.Root(), index>>TileHeight
	}
}

// Root returns the root of the tree.
func (t *Tree) Root() Hash {
	var below []Hash
	for _, edge := range t.edge {
		list := edge
		if len(below) > 0 {
			list = append(slices.Clip(edge), below...)
		}
		if len(list) > 0 {
			below = []Hash{fold(list)}
		}
	}
	return fold(below)
}

// Frontier returns the right edge at a size up to the tree's own.
func (t *Tree) Frontier(size uint64, tiles TileReader) (Frontier, error) {
	f := Frontier{Size: size}
	var from uint64
	for level := bits.Len64(size) - 1; level >= 0; level-- {
		if size&(1<<level) == 0 {
			continue
		}
		h, err := t.subtree(level, from>>level, tiles)
		if err != nil {
			return Frontier{}, err
		}
		f.Hashes = append(f.Hashes, h)
		from += 1 << level
	}
	return f, nil
}

// Leaves returns the leaf hashes from an index up to another, exclusive.
func (t *Tree) Leaves(from, to uint64, tiles TileReader) ([]Hash, error) {
	leaves := make([]Hash, 0, to-from)
	for ; from < to; from++ {
		leaf, err := t.subtree(0, from, tiles)
		if err != nil {
			return nil, err
		}
		leaves = append(leaves, leaf)
	}
	return leaves, nil
}

// TileReader returns a complete tile's hashes.
type TileReader func(level int, index uint64) ([]Hash, error)

// subtree returns the root of the index-th complete subtree of 1<<level leaves.
func (t *Tree) subtree(level int, index uint64, tiles TileReader) (Hash, error) {
	tileLevel, within := level/TileHeight, level%TileHeight
	first := index << within
	tile, offset := first>>TileHeight, first&(TileWidth-1)
	hashes := t.edge[tileLevel]
	if complete := t.size >> (TileHeight * (tileLevel + 1)); tile < complete {
		var err error
		if hashes, err = tiles(tileLevel, tile); err != nil {
			return Hash{}, err
		}
	}
	if uint64(len(hashes)) < offset+1<<within {
		return Hash{}, fmt.Errorf("cannot read the Merkle tree: no complete subtree %d of level %d in %d records", index, level, t.size)
	}
	return fold(hashes[offset : offset+1<<within]), nil
}

// Prove returns the path from the record seq to the root at a size up to the
// tree's own (RFC 6962, section 2.1.1).
func (t *Tree) Prove(seq, size uint64, tiles TileReader) ([]Hash, error) {
	if seq == 0 || seq > size || size > t.size {
		return nil, fmt.Errorf("cannot prove record %d in the first %d of %d records", seq, size, t.size)
	}
	proof, err := tlog.ProveRecord(int64(size), int64(seq-1), t.hashes(tiles))
	if err != nil {
		return nil, fmt.Errorf("cannot prove record %d: %w", seq, err)
	}
	path := make([]Hash, len(proof))
	for i, h := range proof {
		path[i] = Hash(h)
	}
	return path, nil
}
