// Package metrics counts what the daemon does and how long that takes: counters
// and histograms that cost a message a few dozen nanoseconds, and the list of
// them with their names for whoever shows them.
//
// The caller makes one [Set] with the words that labels may have, hands it to
// the rooms that count, and reads it through [Set.Families]. A word that was not
// named at the start counts as "other": no label ever holds an id, a session
// key or a text from a message, so the number of series is fixed.
//
// A nil *Set counts nothing, and all its methods may be called.
//
// Source for names and units: https://prometheus.io/docs/practices/naming/.
package metrics

import (
	"math"
	"sync/atomic"
	"time"
)

// Other is the label of what has no word of its own.
const Other = "other"

// Counter only grows.
type Counter struct{ n atomic.Uint64 }

// Add counts n.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Value returns the count since the start.
func (c *Counter) Value() uint64 { return c.n.Load() }

// Histogram counts observations by size. An observation is a whole number of
// its unit: nanoseconds, or pieces.
type Histogram struct {
	// bounds are the upper ends of the buckets, ends included; the last bucket
	// has none.
	bounds  []int64
	buckets []atomic.Uint64
	sum     atomic.Int64
	// unit is what one is in the unit that is shown, such as 1e-9 seconds.
	unit float64
}

func newHistogram(unit float64, bounds []int64) *Histogram {
	return &Histogram{bounds: bounds, buckets: make([]atomic.Uint64, len(bounds)+1), unit: unit}
}

// Observe counts one observation. It takes no lock.
func (h *Histogram) Observe(v int64) {
	// By hand: a generic comparison costs as much as the rest.
	i, end := 0, len(h.bounds)
	for i < end {
		if middle := (i + end) / 2; h.bounds[middle] < v {
			i = middle + 1
		} else {
			end = middle
		}
	}
	h.buckets[i].Add(1)
	h.sum.Add(v)
}

// Snapshot is a histogram at a moment.
type Snapshot struct {
	Count uint64
	Sum   float64
	// Buckets are how many observations are at most a bound, by bound. The
	// bound +Inf, which would be Count, is left out.
	Buckets map[float64]uint64
}

// Snapshot returns what was counted. Observations that come meanwhile may be in
// it in part.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Sum: float64(h.sum.Load()) * h.unit, Buckets: make(map[float64]uint64, len(h.bounds))}
	for i := range h.buckets {
		s.Count += h.buckets[i].Load()
		if i < len(h.bounds) {
			s.Buckets[float64(h.bounds[i])*h.unit] = s.Count
		}
	}
	return s
}

// Quantile returns what the given part of all observations, 0 to 1, are at
// most, between the bounds of a bucket by its part of it; zero where nothing was
// observed. What is beyond the last bound counts as that.
func (h *Histogram) Quantile(q float64) int64 {
	counts := make([]uint64, len(h.buckets))
	var total uint64
	for i := range h.buckets {
		counts[i] = h.buckets[i].Load()
		total += counts[i]
	}
	if total == 0 {
		return 0
	}
	rank := min(max(uint64(math.Ceil(q*float64(total))), 1), total)
	var seen, below uint64
	for i, n := range counts {
		if seen, below = seen+n, seen; seen < rank {
			continue
		}
		if i == len(h.bounds) {
			break
		}
		low := int64(0)
		if i > 0 {
			low = h.bounds[i-1]
		}
		return low + int64(float64(h.bounds[i]-low)*float64(rank-below)/float64(n))
	}
	return h.bounds[len(h.bounds)-1]
}

// durations are bounds from a microsecond to ten seconds, five to each power of
// ten.
func durations() (bounds []int64) {
	for decade := int64(time.Microsecond); decade < int64(10*time.Second); decade *= 10 {
		for _, tenths := range []int64{10, 16, 25, 40, 63} {
			bounds = append(bounds, decade*tenths/10)
		}
	}
	return append(bounds, int64(10*time.Second))
}

// sizes are bounds of numbers of changes in one commit.
func sizes() []int64 { return []int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512} }
