// Package logquery answers operators that search the audit log or follow it.
package logquery

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// Search finds records.
type Search interface {
	// Query returns up to limit records before a number, newest first, and the number to continue
	// from, zero if nothing more can match. Zero for before is the end of the log.
	Query(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error)
}

// Log is the log that is searched and followed.
type Log struct {
	Store  *store.Store
	Search Search
}

// Query returns a page of records, newest first. A page that took much searching may be short with
// more behind it.
func (l *Log) Query(ctx context.Context, p *api.AuditQueryParams) (api.AuditQueryResult, error) {
	lines, next, err := l.Search.Query(ctx, p.Filter, p.Before, p.Page())
	if err != nil {
		return api.AuditQueryResult{}, err
	}
	result := api.AuditQueryResult{Records: make([]jsontext.Value, len(lines)), NextBefore: next}
	for i, line := range lines {
		result.Records[i] = line
	}
	return result, nil
}

// Tail opens a stream of records, oldest first.
func (l *Log) Tail(ctx context.Context, p *api.AuditTailParams) (func(context.Context, api.Stream) error, error) {
	head := l.Store.Head().Seq
	after := head
	if p.After != nil {
		after = min(*p.After, head)
	}
	var last []jsontext.Value
	if p.After == nil && p.Last > 0 {
		for before := head + 1; before > 0 && len(last) < p.Last; {
			lines, next, err := l.Search.Query(ctx, p.Filter, before, p.Last-len(last))
			if err != nil {
				return nil, err
			}
			for _, line := range lines {
				last = append(last, line)
			}
			before = next
		}
		slices.Reverse(last)
	}
	all := p.Filter.Unbounded() // no line need be read for it
	return func(ctx context.Context, s api.Stream) error {
		for _, line := range last {
			if err := s.Send(ctx, line); err != nil {
				return err
			}
		}
		for {
			page, upTo, err := l.Store.LinesAfter(ctx, after)
			if err != nil {
				return err
			}
			for _, line := range page {
				if all || p.Filter.Match(line) {
					if err := s.Send(ctx, jsontext.Value(line)); err != nil {
						return err
					}
				}
			}
			switch after = upTo; {
			case len(page) > 0:
			case !p.Follow:
				return nil
			default:
				if err := l.Store.WaitAfter(ctx, after); err != nil {
					return err
				}
			}
		}
	}, nil
}
