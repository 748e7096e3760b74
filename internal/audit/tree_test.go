package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// kept is the store of a tree's caller: complete tiles.
type kept map[tileName][]Hash

// tileName names a tile.
type tileName struct {
	level int
	index uint64
}

func (k kept) put(t Tile) error {
	id := tileName{t.Level, t.Index}
	if _, twice := k[id]; twice || len(t.Hashes) != TileWidth {
		return fmt.Errorf("tile %v of %d hashes, given before: %v", id, len(t.Hashes), twice)
	}
	k[id] = append([]Hash(nil), t.Hashes...)
	return nil
}

func (k kept) read(level int, index uint64) ([]Hash, error) {
	hashes, ok := k[tileName{level, index}]
	if !ok {
		return nil, fmt.Errorf("tile %d of level %d was not kept", index, level)
	}
	return hashes, nil
}

// TestTreeIsRFC6962 compares trees of many sizes with the library's, which keeps every hash: root,
// frontier, proofs, and continuation.
func TestTreeIsRFC6962(t *testing.T) {
	const size = 256*256 + 300
	var (
		tree     Tree
		frontier Frontier
		stored   []tlog.Hash
		leaves   []Hash
		tiles    = make(kept)
		reader   = tlog.HashReaderFunc(func(at []int64) (found []tlog.Hash, err error) {
			for _, i := range at {
				found = append(found, stored[i])
			}
			return found, nil
		})
		random  = rand.New(rand.NewPCG(1, 2))
		looking = map[uint64]bool{1: true, 2: true, 3: true, 255: true, 256: true, 257: true, 511: true, 512: true, 65535: true, 65536: true, 65537: true, size: true}
	)
	for range 40 {
		looking[random.Uint64N(size)+1] = true
	}
	if got := tree.Root(); got != Hash(emptyRoot(t)) || frontier.Root() != got {
		t.Errorf("the empty tree has root %s", got)
	}
	for n := range int64(size) {
		line := fmt.Appendf(nil, "line %d", n)
		hashes, err := tlog.StoredHashes(n, line, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
		leaf := Leaf(line)
		leaves = append(leaves, leaf)
		frontier.Append(leaf)
		snapshot := tree
		if err := tree.Append(leaf, tiles.put); err != nil {
			t.Fatal(err)
		}
		if snapshot.Size() != uint64(n) {
			t.Fatalf("the snapshot of %d records grew to %d", n, snapshot.Size())
		}
		if !looking[uint64(n+1)] {
			continue
		}
		want, err := tlog.TreeHash(n+1, reader)
		if err != nil {
			t.Fatal(err)
		}
		if tree.Root() != Hash(want) || frontier.Root() != Hash(want) {
			t.Fatalf("%d records: root %s, by frontier %s, want %s", n+1, tree.Root(), frontier.Root(), Hash(want))
		}
		checkProofs(t, &tree, tiles, reader, random, leaves)
		again, err := GrowTree(uint64(n+1),
			func(level int, from, to uint64) (roots []Hash, err error) {
				for ; from < to; from++ {
					tile := Tile{Hashes: tiles[tileName{level, from}]}
					roots = append(roots, tile.Root())
				}
				return roots, nil
			},
			func(from, to uint64) ([]Hash, error) { return leaves[from:to], nil })
		if err != nil || again.Root() != tree.Root() || again.Size() != tree.Size() {
			t.Fatalf("taken up at %d: %v, root %s, want %s", n+1, err, again.Root(), tree.Root())
		}
	}
}

func emptyRoot(t *testing.T) tlog.Hash {
	t.Helper()
	h, err := tlog.TreeHash(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func checkProofs(t *testing.T, tree *Tree, tiles kept, reader tlog.HashReader, random *rand.Rand, leaves []Hash) {
	t.Helper()
	for range 5 {
		size := random.Uint64N(tree.Size()) + 1
		seq := random.Uint64N(size) + 1
		root, err := tlog.TreeHash(int64(size), reader)
		if err != nil {
			t.Fatal(err)
		}
		path, err := tree.Prove(seq, size, tiles.read)
		if err != nil {
			t.Fatal(err)
		}
		proof := make(tlog.RecordProof, len(path))
		for i, h := range path {
			proof[i] = tlog.Hash(h)
		}
		if err := tlog.CheckRecord(proof, int64(size), root, int64(seq-1), tlog.Hash(leaves[seq-1])); err != nil {
			t.Fatalf("proof of %d in %d of %d: %v", seq, size, tree.Size(), err)
		}
		frontier, err := tree.Frontier(size, tiles.read)
		if err != nil || frontier.Root() != Hash(root) {
			t.Fatalf("frontier at %d of %d: %v", size, tree.Size(), err)
		}
	}
	for _, bad := range [][2]uint64{{0, 1}, {2, 1}, {1, tree.Size() + 1}} {
		if _, err := tree.Prove(bad[0], bad[1], tiles.read); err == nil {
			t.Errorf("proved record %d of %d in a tree of %d", bad[0], bad[1], tree.Size())
		}
	}
}

// TestTreeRollsBack continues twice from one snapshot, as after a commit that failed.
func TestTreeRollsBack(t *testing.T) {
	grow := func(tree Tree, tiles kept, from, to int) Tree {
		for i := from; i < to; i++ {
			if err := tree.Append(Leaf(fmt.Appendf(nil, "%d", i)), tiles.put); err != nil {
				t.Fatal(err)
			}
		}
		return tree
	}
	for _, at := range []int{0, 1, 100, 255, 256, 300, 511} {
		base := grow(Tree{}, make(kept), 0, at)
		failed := grow(base, make(kept), at+1000, at+1400)
		good := grow(base, make(kept), at, at+400)
		plain := grow(Tree{}, make(kept), 0, at+400)
		if good.Root() != plain.Root() || failed.Root() == good.Root() {
			t.Errorf("from %d records: root %s after a failed commit, want %s", at, good.Root(), plain.Root())
		}
	}
}
