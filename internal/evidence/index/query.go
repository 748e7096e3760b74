package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Limits of the work for one page. A page that reaches one ends early, possibly empty, with the
// number at which to continue.
const (
	// pageLooks bounds the lines that are checked.
	pageLooks = 2048
	// pageShards bounds the shards, 16 million records.
	pageShards = 256
)

// Query returns up to limit records before a number that a filter selects, newest first, and the
// number to ask for next, or zero if nothing more can match. Zero for before is the end of the log.
// A page may be short, or even empty, although there are more.
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

// usable reports whether there is a file for queries. The caller holds files.
func (x *Index) usable() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.file != nil && !x.broken
}

// logError is an error of the log, and not of the index.
type logError struct{ error }

// Unwrap returns the log's error.
func (e logError) Unwrap() error { return e.error }

// blame reports whether an error comes from the index. If so, it has the index made again.
func (x *Index) blame(ctx context.Context, err error) bool {
	var ofLog logError
	if ctx.Err() != nil || errors.As(err, &ofLog) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.broken {
		x.broken, x.damage = true, err
		x.zap.Error("cannot use the audit index: reading the log", zap.Error(err))
		select {
		case x.alarms <- struct{}{}:
		default:
		}
	}
	return true
}

// bounds converts the times of a filter into records, both exclusive, and removes them from it.
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

// page is a page in progress.
type page struct {
	x      *Index
	filter audit.Filter
	// terms are the tokens of the requested members, and text is the text to find in reasons.
	terms []string
	text  string

	after uint64
	limit int
	lines [][]byte
	looks int
	// seqs are possible matches that are not checked yet, newest first.
	seqs []uint64
	// next is the number at which to continue after the page.
	next uint64
	done bool
}

func (x *Index) query(ctx context.Context, f audit.Filter, after, before uint64, limit int) ([][]byte, uint64, error) {
	p := &page{x: x, filter: f, text: searched(f.Text), after: after, limit: limit}
	for m, value := range f.Wants() {
		if m.Filter != "" {
			p.terms = append(p.terms, token(m, value))
		}
	}
	if !utf8.ValidString(f.Text) {
		return nil, 0, nil
	}
	x.files.RLock()
	defer x.files.RUnlock()
	if !x.usable() || len(p.terms) == 0 && p.text == "" {
		lines, next, err := x.log.Query(ctx, f, after, before, limit)
		return lines, next, ofLog(err)
	}
	if have := x.Indexed(); before > have+1 {
		if err := p.walk(ctx, max(after, have), before); err != nil || p.done {
			return p.lines, p.next, err
		}
		before = have + 1
	}
	if before <= after+1 {
		return p.lines, 0, nil
	}
	err := x.file.read(ctx, func(conn *sqlite.Conn) error { return p.search(ctx, conn, before) })
	return p.lines, p.next, err
}

// search searches the shards, newest first. For a shard that lacks records, and is not made again
// yet, it reads the log.
func (p *page) search(ctx context.Context, conn *sqlite.Conn, before uint64) error {
	first, last := shardOf(p.after+1), shardOf(before-1)
	list, err := shards(conn, first, last)
	for number := last + 1; number > first && err == nil && !p.done; {
		number--
		good := p.x.known(number)
		if !good {
			if good, err = p.x.whole(ctx, conn, number); err != nil {
				return err
			}
		}
		after, before := max(p.after, firstOf(number)-1), min(before, firstOf(number+1))
		switch {
		case last-number >= pageShards:
			p.end(before)
		case !good:
			err = p.someOf(ctx, after, before)
		case slices.Contains(list, number): // otherwise retention has removed it
			err = p.shard(ctx, conn, number, after, before)
		}
	}
	return err
}

// someOf reads the newest of the records between two, both exclusive. If there are more, the page
// ends.
func (p *page) someOf(ctx context.Context, after, before uint64) error {
	from := max(after, before-1-min(before-1, 2*pageLooks))
	err := p.walk(ctx, from, before)
	if err == nil && !p.done && from > after {
		p.end(from + 1)
	}
	return err
}

// shard searches a shard for records between two, both exclusive.
func (p *page) shard(ctx context.Context, conn *sqlite.Conn, number, after, before uint64) error {
	var reasons []string
	if p.text != "" {
		var few bool
		var err error
		reasons, few, err = findReasons(conn, number, p.text)
		if err == nil && !few && len(p.terms) == 0 {
			return p.someOf(ctx, after, before)
		}
		if err != nil {
			return err
		}
	}
	visit := func(seq uint64) error { return p.consider(ctx, seq) }
	if len(reasons) > orMost {
		// SQLite accepts a limited number of alternatives in a query. Each query returns records in
		// order.
		var seqs []uint64
		for some := range slices.Chunk(reasons, orMost) {
			err := matches(conn, number, after, before, p.terms, some, func(seq uint64) error {
				seqs = append(seqs, seq)
				return nil
			})
			if err != nil {
				return err
			}
		}
		slices.Sort(seqs)
		for _, seq := range slices.Backward(seqs) {
			if err := visit(seq); err != nil {
				return p.ended(err)
			}
		}
	} else if err := matches(conn, number, after, before, p.terms, reasons, visit); err != nil {
		return p.ended(err)
	}
	return p.ended(p.look(ctx))
}

// walk reads every record between two, both exclusive.
func (p *page) walk(ctx context.Context, after, before uint64) error {
	lines, next, err := p.x.log.Query(ctx, p.filter, after, before, p.limit-len(p.lines))
	p.lines = append(p.lines, lines...)
	if p.done = next > 0 || len(p.lines) >= p.limit; p.done {
		p.end(max(next, after+1))
	}
	return ofLog(err)
}

// matches visits the records of a shard between two, both exclusive, newest first. They have all of
// the terms and, if there are reasons, one of them.
func matches(conn *sqlite.Conn, number, after, before uint64, terms, reasons []string, visit func(seq uint64) error) error {
	if len(reasons) > 0 {
		terms = append(slices.Clip(terms), "("+strings.Join(reasons, " OR ")+")")
	}
	query := fmt.Sprintf(`SELECT rowid FROM terms_%d(?) WHERE rowid > ? AND rowid < ? ORDER BY rowid DESC`, number)
	return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
		Args:       []any{strings.Join(terms, " AND "), int64(after), int64(before)},
		ResultFunc: func(stmt *sqlite.Stmt) error { return visit(uint64(stmt.ColumnInt64(0))) },
	})
}

// errDone ends a search when the page is complete.
var errDone = errors.New("the page is done")

func (p *page) ended(err error) error {
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// consider checks a possible match, together with some others.
func (p *page) consider(ctx context.Context, seq uint64) error {
	const most = 256
	if p.seqs = append(p.seqs, seq); len(p.seqs) < min(max(16, p.limit-len(p.lines)), most) {
		return nil
	}
	return p.look(ctx)
}

// look checks the possible matches, and adds those that match to the page.
func (p *page) look(ctx context.Context) error {
	seqs := p.seqs
	p.seqs = p.seqs[:0]
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
			return errDone
		}
	}
	if p.looks >= pageLooks {
		p.end(seqs[len(seqs)-1])
		return errDone
	}
	return nil
}

// end ends the page after a checked record.
func (p *page) end(seq uint64) {
	p.done = true
	if seq > p.after+1 {
		p.next = seq
	}
}

// Limits for a text search in the reasons of a shard: the reasons that are read, those that may
// contain the text, and those for one query. If more reasons contain it, many records do, and the
// records are read instead.
const (
	readMost    = 16384
	reasonsMost = 2048
	orMost      = 128
)

// findReasons returns the tokens of a shard's reasons that contain a text, or false if there are
// too many.
func findReasons(conn *sqlite.Conn, number uint64, text string) (tokens []string, few bool, err error) {
	query, args := fmt.Sprintf(`SELECT rowid, reason FROM reasons_%d LIMIT ?`, number), []any{readMost + 1}
	if pieces := trigrams(text); pieces != "" {
		query, args = fmt.Sprintf(`SELECT rowid, reason FROM reasons_%d(?) LIMIT ?`, number), []any{pieces, readMost + 1}
	}
	tokens = []string{longReason}
	read := 0
	err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(stmt *sqlite.Stmt) error {
		if strings.Contains(stmt.ColumnText(1), text) {
			tokens = append(tokens, reasonToken(stmt.ColumnInt64(0)))
		}
		if read++; read > readMost || len(tokens) > reasonsMost {
			return errMany
		}
		return nil
	}})
	if errors.Is(err, errMany) {
		return nil, false, nil
	}
	return tokens, err == nil, err
}

var errMany = errors.New("many reasons have the text")

// piecesMost bounds the pieces of a text that are looked up. A reason with these is compared with
// the whole text.
const piecesMost = 4

// trigrams returns a query for pieces of three characters from all over a text, or "" for a shorter
// text. A match need not have the pieces together.
func trigrams(text string) string {
	chars := []rune(text)
	var pieces []string
	for last, i := len(chars)-3, 0; i <= last; i += max(1, last/(piecesMost-1)) {
		pieces = append(pieces, `"`+strings.ReplaceAll(string(chars[i:i+3]), `"`, `""`)+`"`)
	}
	return strings.Join(pieces, " AND ")
}

func ofLog(err error) error {
	if err == nil {
		return nil
	}
	return logError{err}
}
