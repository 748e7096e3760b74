package index

import (
	"context"
	"fmt"
)

// Retire forgets the records up to one, once they are gone from the log. It
// works block by block, each in a transaction of its own, and can be ended
// between two of them; the next call goes on.
func (x *Index) Retire(ctx context.Context, upTo uint64) error {
	x.files.RLock()
	defer x.files.RUnlock()
	if !x.usable() || upTo == 0 {
		return nil
	}
	first := blockOf(upTo + 1) // the first block that keeps something
	if err := x.dropBlocks(ctx, first); err != nil {
		return err
	}
	if err := x.cut(ctx, first, posOf(upTo+1)); err != nil {
		return err
	}
	return x.dropTexts(first)
}

func (x *Index) dropBlocks(ctx context.Context, first uint64) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if first == 0 {
		return nil
	}
	gone, err := x.file.blocks(0, first-1)
	for _, block := range gone {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = x.file.drop(block)
		}
		// Let the follower write in between.
		x.writing.Unlock()
		x.writing.Lock()
	}
	if err != nil {
		return fmt.Errorf("cannot retire records from the audit index: %w", err)
	}
	return nil
}

// cut takes the records before a place out of a block.
func (x *Index) cut(ctx context.Context, block, pos uint64) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if inMemory := x.cutMemory(block, pos); inMemory || pos == 0 {
		return nil
	}
	kept, err := x.file.blocks(block, block)
	if err != nil || len(kept) == 0 {
		return err
	}
	// The numbers are counted anew from what is left.
	scratch, dict := new(builder), newDictionary()
	scratch.begin(block)
	for after := firstOf(block) + pos - 1; blockOf(after+1) == block; {
		lines, upTo, err := x.log.LinesAfter(ctx, after)
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			break
		}
		for i, line := range lines {
			if r := extractLine(upTo-uint64(len(lines)-1-i), line, nil); blockOf(r.seq) == block {
				scratch.add(&r, &dict)
			}
		}
		after = upTo
	}
	if err := x.file.cut(block, pos, countsOf(scratch.list, scratch.events)); err != nil {
		return fmt.Errorf("cannot retire records from the audit index: %w", err)
	}
	return nil
}

// cutMemory does so where the block is in memory, or not even begun.
func (x *Index) cutMemory(block, pos uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.cur.block < block:
		x.cur.cut(blockRecords)
	case x.cur.block == block:
		x.cur.cut(pos)
	default:
		return false
	}
	return true
}

// dropTexts deletes the reasons that only retired records had.
func (x *Index) dropTexts(first uint64) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	// From here on no record is given the number of a reason that is deleted.
	x.mu.Lock()
	x.dict = newDictionary()
	used := make(map[uint64]bool, len(x.cur.uses))
	for block := range x.cur.uses {
		used[block] = true
	}
	x.mu.Unlock()
	if err := x.file.dropTexts(first, used); err != nil {
		return fmt.Errorf("cannot retire records from the audit index: %w", err)
	}
	return nil
}
