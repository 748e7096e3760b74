package index

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Bounds of one page's work. A page that meets one ends short, or empty, with
// the number to go on with.
const (
	// pageLooks bounds the lines that are looked at.
	pageLooks = 8192
	// pageBlocks bounds the blocks, 67 million records.
	pageBlocks = 4096
	// textBytes bounds the distinct reasons that a text is looked for in. A log
	// with more is searched record by record.
	textBytes = 64 << 20
)

// Query returns up to limit records before a number that a filter selects,
// newest first, and where to go on: the number to ask for next, or zero where
// nothing more can match. Zero for before is the end of the log. A page may be
// short, or even empty, with more behind it.
func (x *Index) Query(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	if limit < 1 {
		return nil, 0, nil
	}
	after, before, err := x.bounds(ctx, &f, before)
	if err != nil || before <= after+1 {
		return nil, 0, err
	}
	lines, next, err = x.query(ctx, f, after, before, limit)
	if err != nil && x.blame(ctx, err) {
		return x.log.Query(ctx, f, after, before, limit)
	}
	return lines, next, err
}

// usable reports whether there is a file that can be asked. It is called with
// files held.
func (x *Index) usable() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.file != nil && !x.broken
}

// logError is an error of the log, which is none of the index.
type logError struct{ error }

// Unwrap returns what the log said.
func (e logError) Unwrap() error { return e.error }

// blame reports whether the index is to blame for an error, and has it made
// again then.
func (x *Index) blame(ctx context.Context, err error) bool {
	var ofLog logError
	if ctx.Err() != nil || errors.As(err, &ofLog) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.broken {
		x.broken = true
		x.zap.Error("cannot use the audit index: reading the log", zap.Error(err))
		x.abort(err)
	}
	return true
}

// bounds turns the times of a filter into records, both exclusive, and takes
// them out of it.
func (x *Index) bounds(ctx context.Context, f *audit.Filter, before uint64) (after, end uint64, err error) {
	last := x.log.Head().Seq
	if !f.Until.IsZero() {
		if last, err = x.log.SeqAt(ctx, f.Until); err != nil {
			return 0, 0, err
		}
	}
	if before == 0 || before > last {
		before = last + 1
	}
	if !f.Since.IsZero() {
		if after, err = x.log.SeqAt(ctx, f.Since); err != nil {
			return 0, 0, err
		}
	}
	f.Since, f.Until = time.Time{}, time.Time{}
	return after, before, nil
}

// page is a page that is being filled.
type page struct {
	x      *Index
	filter audit.Filter
	terms  []term
	// text is what is looked for in reasons, folded, and reasons the terms of
	// those that have it. Where these are not known, every record may have it.
	text    string
	reasons []term
	known   bool

	after uint64
	limit int
	lines [][]byte
	looks int
	// next is where to go on once the page is done.
	next uint64
	done bool

	buffer []byte
}

func (x *Index) query(ctx context.Context, f audit.Filter, after, before uint64, limit int) ([][]byte, uint64, error) {
	p := &page{x: x, filter: f, terms: filterTerms(&f), text: audit.Fold(f.Text), after: after, limit: limit}
	if !utf8.ValidString(f.Text) {
		return nil, 0, nil
	}
	x.files.RLock()
	defer x.files.RUnlock()
	if !x.usable() || len(p.terms) == 0 && p.text == "" {
		lines, next, err := x.log.Query(ctx, f, after, before, limit)
		return lines, next, ofLog(err)
	}
	m := p.inMemory()
	have, block := m.have, m.block
	if before > have+1 {
		lines, next, err := x.log.Query(ctx, f, max(after, have), before, limit)
		if err != nil || next > 0 {
			return lines, next, ofLog(err)
		}
		if before = have + 1; before <= after+1 {
			return lines, 0, nil
		}
		if p.lines = lines; len(lines) >= limit {
			return lines, before, nil
		}
	}
	err := x.file.read(ctx, func(conn *sqlite.Conn) error {
		if p.text != "" {
			if err := p.findTexts(conn); err != nil {
				return err
			}
		}
		if err := p.take(ctx, block, p.places(m), before); err != nil || p.done {
			return err
		}
		return p.onDisk(ctx, conn, min(block, blockOf(before-1)+1), before)
	})
	return p.lines, p.next, err
}

func ofLog(err error) error {
	if err == nil {
		return nil
	}
	return logError{err}
}

// memory is what the block in memory has for a page, of one moment.
type memory struct {
	have, block uint64
	// sets are the places of each term, and reasons the postings of reasons.
	sets    [][]uint16
	reasons []posting
}

// inMemory looks for the page's terms in the block that is in memory.
func (p *page) inMemory() (m memory) {
	x := p.x
	x.mu.RLock()
	defer x.mu.RUnlock()
	m.have, m.block = x.have, x.cur.block
	for _, t := range p.terms {
		m.sets = append(m.sets, x.cur.find(t))
	}
	if p.text != "" {
		m.reasons = x.cur.reasons()
		for id := range p.inTexts(x.cur.texts, x.cur.block) {
			p.reasons = append(p.reasons, id)
		}
	}
	return m
}

// places are the places in memory that may match.
func (p *page) places(m memory) []uint16 {
	sets := m.sets
	if p.text != "" {
		var at []uint16
		for _, r := range m.reasons {
			if !p.known || p.mayHold(r.term()) {
				at = append(at, uint16(r.pos()))
			}
		}
		sets = append(sets, at)
	}
	return intersect(sets)
}

// mayHold reports whether the reason of a term may have the text.
func (p *page) mayHold(t term) bool {
	_, found := slices.BinarySearch(p.reasons, t)
	return found || t == tagLongReason<<valueBits
}

// intersect returns what is in all of some rising lists.
func intersect(sets [][]uint16) []uint16 {
	slices.SortFunc(sets, func(a, b []uint16) int { return len(a) - len(b) })
	both := sets[0]
	for _, other := range sets[1:] {
		n, j := 0, 0
		for _, v := range both {
			for j < len(other) && other[j] < v {
				j++
			}
			if j == len(other) {
				break
			}
			if other[j] == v {
				both[n] = v
				n++
			}
		}
		both = both[:n]
	}
	return both
}

// take looks at the lines of a block's places before a record, newest first.
func (p *page) take(ctx context.Context, block uint64, at []uint16, before uint64) error {
	const most = 256
	seqs := make([]uint64, 0, most)
	for i := len(at) - 1; i >= 0 && !p.done; {
		seqs = seqs[:0]
		for want := min(max(16, p.limit-len(p.lines)), most); i >= 0 && len(seqs) < want; i-- {
			if seq := firstOf(block) + uint64(at[i]); seq > p.after && seq < before {
				seqs = append(seqs, seq)
			}
		}
		if err := p.look(ctx, seqs); err != nil {
			return err
		}
	}
	return nil
}

// look adds those records to the page that match.
func (p *page) look(ctx context.Context, seqs []uint64) error {
	if len(seqs) == 0 {
		return nil
	}
	lines, err := p.x.log.Lines(ctx, seqs)
	if err != nil {
		return ofLog(err)
	}
	for i, line := range lines {
		p.looks++
		if line == nil || !p.filter.Match(line) {
			continue
		}
		if p.lines = append(p.lines, line); len(p.lines) == p.limit {
			p.end(seqs[i])
			return nil
		}
	}
	if p.looks >= pageLooks {
		p.end(seqs[len(seqs)-1])
	}
	return nil
}

// end ends the page behind a record that was looked at.
func (p *page) end(seq uint64) {
	p.done = true
	if seq > p.after+1 {
		p.next = seq
	}
}

// onDisk looks through the blocks before one, newest first.
func (p *page) onDisk(ctx context.Context, conn *sqlite.Conn, block, before uint64) error {
	sets := make([][]uint16, 0, len(p.terms)+1)
	spare := make([][]uint16, len(p.terms)+1)
	first := blockOf(p.after + 1)
	for visited := 0; block > first; visited++ {
		block--
		if visited >= pageBlocks {
			p.end(firstOf(block + 1))
			return nil
		}
		sets = sets[:0]
		empty := false
		for i, t := range p.terms {
			at, err := lookUp(conn, spare[i][:0], &p.buffer, block, t)
			if err != nil {
				return err
			}
			if spare[i] = at; len(at) == 0 {
				empty = true
				break
			}
			sets = append(sets, at)
		}
		if empty {
			continue
		}
		if p.text != "" && p.known {
			at, err := p.withText(conn, spare[len(p.terms)][:0], block)
			if err != nil {
				return err
			}
			spare[len(p.terms)] = at
			sets = append(sets, at)
		}
		if len(sets) == 0 {
			// Nothing is known but that any record may match.
			lines, next, err := p.x.log.Query(ctx, p.filter, p.after, min(before, firstOf(block+1)), p.limit-len(p.lines))
			p.lines, p.next, p.done = append(p.lines, lines...), next, true
			return ofLog(err)
		}
		if err := p.take(ctx, block, intersect(sets), before); err != nil || p.done {
			return err
		}
	}
	return nil
}

// fewReasons is how many reasons are looked up one by one; with more, all of a
// block's are read.
const fewReasons = 8

// withText appends the places of a block whose reasons have the text.
func (p *page) withText(conn *sqlite.Conn, dst []uint16, block uint64) ([]uint16, error) {
	var err error
	if len(p.reasons) <= fewReasons {
		for _, t := range append(slices.Clip(p.reasons), tagLongReason<<valueBits) {
			if dst, err = lookUp(conn, dst, &p.buffer, block, t); err != nil {
				return dst, err
			}
		}
	} else {
		err = eachGroup(conn, &p.buffer, block, tagReason<<valueBits, func(t term, list []byte) bool {
			if p.mayHold(t) {
				dst = places(dst, list)
			}
			return true
		})
	}
	slices.Sort(dst)
	return dst, err
}

// findTexts finds the reasons that have the text.
func (p *page) findTexts(conn *sqlite.Conn) error {
	room := textBytes
	err := sqlitex.Execute(conn, `SELECT block, folded FROM texts ORDER BY block DESC`, &sqlitex.ExecOptions{
		ResultFunc: func(stmt *sqlite.Stmt) error {
			block := uint64(stmt.ColumnInt64(0))
			if room -= stmt.ColumnLen(1); room < 0 {
				return errTooManyTexts
			}
			texts, err := unsealed(blob(stmt, &p.buffer), block)
			if err != nil {
				return err
			}
			for id := range p.inTexts(texts, block) {
				p.reasons = append(p.reasons, id)
			}
			return nil
		},
	})
	p.known = err == nil
	if errors.Is(err, errTooManyTexts) {
		return nil
	}
	slices.Sort(p.reasons)
	p.reasons = slices.Compact(p.reasons)
	return err
}

var errTooManyTexts = errors.New("too many texts to look through")

// inTexts gives the terms of a block's texts that have the text in them.
func (p *page) inTexts(texts []byte, block uint64) func(yield func(term) bool) {
	needle := []byte(p.text)
	return func(yield func(term) bool) {
		for id := block << posBits; ; {
			at := bytes.Index(texts, needle)
			if at < 0 {
				return
			}
			id += uint64(bytes.Count(texts[:at], []byte{textEnd}))
			if !yield(reasonTerm(id)) {
				return
			}
			end := at + bytes.IndexByte(texts[at:], textEnd) + 1
			texts = texts[end:]
			id++
		}
	}
}
