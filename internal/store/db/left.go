package db

import (
	"errors"
	"slices"
)

// Left are the altered rows that a list leaves out, so that one of them does not hide all others.
type Left struct {
	// Names are the tables and names of the rows, as their records have them, nil if there are none.
	Names []string
}

// maxLeft bounds the names in one list. One is enough for a person to look, and each row is on record.
const maxLeft = 100

// Takes reports whether an error is that of an altered row, and notes the row: the list goes on without
// what needs it.
func (l *Left) Takes(err error) bool {
	found, ok := errors.AsType[*AlteredError](err)
	if ok {
		l.add(found)
	}
	return ok
}

// add notes a row. It returns false for one that it has, and for one too many.
func (l *Left) add(found *AlteredError) bool {
	name := found.Table + " " + found.Row
	if len(l.Names) >= maxLeft || slices.Contains(l.Names, name) {
		return false
	}
	l.Names = append(l.Names, name)
	return true
}

// Around returns the reader for the queries of a list: they leave altered rows out, and note them. No
// decision may depend on such a query. Without a list it is the reader itself.
func (r *Reader) Around(left *Left) *Reader {
	if left == nil {
		return r
	}
	around := *r
	around.left = left
	return &around
}

// around runs a query of a connection with the reader's list of altered rows.
func (r *Reader) around(c *checker, query func() error) error {
	if c == nil || r.left == nil {
		return c.take(query())
	}
	c.leave = func(found *AlteredError) {
		if r.left.add(found) && r.Altered != nil {
			// It is on record now, and the query goes on.
			_ = r.Altered(found)
		}
	}
	defer func() { c.leave = nil }()
	return c.take(query())
}
