package index

import (
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// A term is one thing records are found by: which member it is, and of its
// value 35 bits. Two values that share a term cost a look at a line, no more:
// every line is held against the filter before it is returned.
type term uint64

const (
	valueBits = 35
	termBits  = valueBits + 5
)

// The members have the numbers of [audit.Filters], from 1 on.
const (
	// tagReason has the number of a reason as its value.
	tagReason term = 30 + iota
	// tagLongReason is on records whose reason is not kept, and which any text
	// may be in.
	tagLongReason
)

// termOf makes the term of a value: FNV-1a, folded.
func termOf(tag term, value string) term {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(value) {
		h = (h ^ uint64(value[i])) * prime
	}
	return tag<<valueBits | term((h^h>>valueBits)&(1<<valueBits-1))
}

// reasonTerm is the term of a reason's number.
func reasonTerm(id uint64) term { return tagReason<<valueBits | term(id) }

// filterTerms are the terms of what a filter asks, but for times and the text
// of the reason.
func filterTerms(f *audit.Filter) []term { return recordTerms(nil, &f.Like) }

// recordTerms appends the terms of a record.
func recordTerms(dst []term, r *audit.Record) []term {
	for i, m := range audit.Filters() {
		if value := *m.Of(r); value != "" {
			dst = append(dst, termOf(term(i+1), value))
		}
	}
	return dst
}

// extract is what the index takes from a line.
type extract struct {
	seq     uint64
	hash    audit.Hash
	minute  int64
	terms   []term
	reason  string
	subject audit.Subject
}

// extractLine reads a line. One that is no record has nothing to be found by.
func extractLine(seq uint64, line []byte, terms []term) extract {
	e, err := audit.Parse(line)
	if err != nil {
		return extract{seq: seq}
	}
	return extract{
		seq: seq, hash: e.Hash, minute: e.Time.Unix() / int64(time.Minute/time.Second),
		terms: recordTerms(terms, &e.Record), reason: e.PolicyReason, subject: audit.SubjectOf(&e.Record),
	}
}
