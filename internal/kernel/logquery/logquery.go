// Package logquery answers operators that search the audit log or follow it.
package logquery

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// Search finds records.
type Search interface {
	// Query returns up to limit records before a number, newest first, and the number to continue
	// from, zero if nothing more can match. Zero for before is the end of the log.
	Query(ctx context.Context, f audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error)
}

// Lines are the records as they were sealed.
type Lines interface {
	// Head is the end of the log.
	Head() audit.Head
	// LinesAfter returns a page of records after a number, oldest first, and the last one's number.
	LinesAfter(ctx context.Context, seq uint64) (lines [][]byte, upTo uint64, err error)
	// WaitAfter returns when there is a record after a number.
	WaitAfter(ctx context.Context, seq uint64) error
}

// Log is the log that is searched and followed.
type Log struct {
	Lines  Lines
	Search Search
	// Instance returns the instance id of an agent by its name, "" if no agent has it.
	Instance func(name string) string
}

// Query returns a page of records, newest first. A page that took much searching may be short with
// more behind it.
func (l *Log) Query(ctx context.Context, p *api.AuditQueryParams) (api.AuditQueryResult, error) {
	lines, next, err := l.Search.Query(ctx, p.Filter.Named(l.Instance), p.Before, p.Page())
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
	head, filter := l.Lines.Head().Seq, p.Filter.Named(l.Instance)
	after := head
	if p.After != nil {
		after = min(*p.After, head)
	}
	var last []any
	if p.After == nil && p.Last > 0 {
		var err error
		if last, err = l.last(ctx, filter, p.Last, head+1); err != nil {
			return nil, err
		}
	}
	all := filter.Unbounded() // no line need be read for it
	return func(ctx context.Context, s api.Stream) error {
		if err := s.Send(ctx, last...); err != nil {
			return err
		}
		var rest <-chan time.Time // since new records were sent
		for {
			page, upTo, err := l.Lines.LinesAfter(ctx, after)
			if err != nil {
				return err
			}
			together := make([]any, 0, len(page))
			for _, line := range page {
				if all || filter.Match(line) {
					together = append(together, jsontext.Value(line))
				}
			}
			if err := s.Send(ctx, together...); err != nil {
				return err
			}
			// The records that were there at the beginning are not gathered.
			if after = upTo; p.Gather > 0 && len(together) > 0 && after > head {
				rest = time.After(time.Duration(p.Gather) * time.Millisecond)
			}
			switch {
			case len(page) > 0:
			case !p.Follow:
				return nil
			default:
				if err := l.Lines.WaitAfter(ctx, after); err != nil {
					return err
				}
			}
			if rest != nil {
				select {
				case <-rest:
					rest = nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
	}, nil
}

// last returns up to n records before a number, oldest first.
func (l *Log) last(ctx context.Context, filter audit.Filter, n int, before uint64) (last []any, err error) {
	for before > 0 && len(last) < n {
		lines, next, err := l.Search.Query(ctx, filter, before, n-len(last))
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			last = append(last, jsontext.Value(line))
		}
		before = next
	}
	slices.Reverse(last)
	return last, nil
}
