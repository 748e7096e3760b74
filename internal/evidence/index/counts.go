package index

import (
	"encoding/binary"
	"errors"

	"github.com/openclawos/ocipd/internal/audit"
)

// counts are the counts of a range: the records in each minute, by their results, and for each of
// the shard's subjects.
type counts struct {
	minutes  []minuteCount
	subjects []int
}

type minuteCount struct {
	minute int64
	n      [4]int
}

func results() [4]string {
	return [4]string{"", audit.ResultAllow, audit.ResultDeny, audit.ResultApproval}
}

// count counts a record. Records come in the order of time.
func (c *counts) count(minute int64, result string, subject int) {
	if n := len(c.minutes); n == 0 || c.minutes[n-1].minute != minute {
		c.minutes = append(c.minutes, minuteCount{minute: minute})
	}
	at := 0
	for i, r := range results() {
		if r == result {
			at = i
		}
	}
	c.minutes[len(c.minutes)-1].n[at]++
	for len(c.subjects) <= subject {
		c.subjects = append(c.subjects, 0)
	}
	c.subjects[subject]++
}

// bounds returns the first and the last minute.
func (c *counts) bounds() (first, last int64) {
	if n := len(c.minutes); n > 0 {
		return c.minutes[0].minute, c.minutes[n-1].minute
	}
	return 0, 0
}

// errDamaged reports that the index does not contain the written data.
var errDamaged = errors.New("the index is damaged")

// encode writes the minutes, and then the subjects that have records.
func (c *counts) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(len(c.minutes)))
	last := int64(0)
	for _, m := range c.minutes {
		b = binary.AppendVarint(b, m.minute-last)
		for _, n := range m.n {
			b = binary.AppendUvarint(b, uint64(n))
		}
		last = m.minute
	}
	for i, n := range c.subjects {
		if n > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(i)), uint64(n))
		}
	}
	return b
}

// decodeCounts reads the output of encode, for that many records.
func decodeCounts(b []byte, records uint64) (c counts, err error) {
	var byMinute, bySubject int
	next := func() int {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > shardRecords {
			b, err = nil, errDamaged
			return 0
		}
		b = b[n:]
		return int(v)
	}
	minute := int64(0)
	for n := next(); n > 0 && err == nil; n-- {
		delta, size := binary.Varint(b)
		if size <= 0 {
			return c, errDamaged
		}
		b = b[size:]
		minute += delta
		m := minuteCount{minute: minute}
		for i := range m.n {
			m.n[i] = next()
			byMinute += m.n[i]
		}
		c.minutes = append(c.minutes, m)
	}
	for len(b) > 0 && err == nil {
		subject, n := next(), next()
		for len(c.subjects) <= subject {
			c.subjects = append(c.subjects, 0)
		}
		c.subjects[subject] = n
		bySubject += n
	}
	if err == nil && (uint64(byMinute) != records || uint64(bySubject) != records) {
		err = errDamaged
	}
	return c, err
}
