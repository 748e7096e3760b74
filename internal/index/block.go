package index

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/maphash"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
)

// The log is indexed in blocks of so many records. A block's terms are sorted
// once, when it is full, and written in one piece behind the blocks before it,
// so that indexing never goes back to older pages. The last block, which is not
// full, is in memory.
const (
	posBits      = 14
	blockRecords = 1 << posBits
	posMask      = blockRecords - 1
)

// blockOf is the block a record is in, and posOf its place there.
func blockOf(seq uint64) uint64 { return (seq - 1) >> posBits }
func posOf(seq uint64) uint64   { return (seq - 1) & posMask }

// firstOf is the first record of a block.
func firstOf(block uint64) uint64 { return block<<posBits + 1 }

// A posting is a term and the place of a record in the block.
type posting uint64

func (p posting) term() term  { return term(p >> posBits) }
func (p posting) pos() uint64 { return uint64(p & posMask) }

// builder is the block that is being filled.
type builder struct {
	block    uint64
	count    int
	postings []posting
	// texts are the folded reasons that came first in this block, each with
	// textEnd behind it, and uses the blocks whose texts this one refers to.
	texts     []byte
	textCount uint64
	uses      map[uint64]bool

	subjects map[audit.Subject]uint16
	list     []audit.Subject
	events   []event

	last uint64
	hash audit.Hash
}

// event is what one record adds to the numbers.
type event struct {
	minute  int64
	pos     uint16
	subject uint16
}

// textEnd stands behind each text. No UTF-8 has this byte.
const textEnd = 0xff

// maxTexts bounds the reasons that a block keeps. Records with further ones are
// looked at whatever text is asked for.
const maxTexts = 4 << 20

// begin makes the builder ready for a block.
func (b *builder) begin(block uint64) {
	clear(b.subjects)
	clear(b.uses)
	if b.subjects == nil {
		b.subjects, b.uses = make(map[audit.Subject]uint16), make(map[uint64]bool)
	}
	*b = builder{
		block: block, postings: b.postings[:0], texts: b.texts[:0], uses: b.uses,
		subjects: b.subjects, list: b.list[:0], events: b.events[:0],
	}
}

// add takes a record in.
func (b *builder) add(x *extract, d *dictionary) {
	pos := posOf(x.seq)
	b.count++
	b.last, b.hash = x.seq, x.hash
	for _, t := range x.terms {
		b.postings = append(b.postings, posting(t)<<posBits|posting(pos))
	}
	if x.reason != "" {
		b.postings = append(b.postings, posting(b.reason(x.reason, d))<<posBits|posting(pos))
	}
	subject, ok := b.subjects[x.subject]
	if !ok {
		subject = uint16(len(b.list))
		b.subjects[x.subject] = subject
		b.list = append(b.list, x.subject)
	}
	b.events = append(b.events, event{minute: x.minute, pos: uint16(pos), subject: subject})
}

// reason is the term of a reason, which is kept where it is new.
func (b *builder) reason(text string, d *dictionary) term {
	key := maphash.String(d.seed, text)
	id, ok := d.find(key)
	if !ok {
		folded := audit.Fold(text)
		if len(b.texts)+len(folded) >= maxTexts {
			return tagLongReason << valueBits
		}
		id = b.block<<posBits | b.textCount
		b.textCount++
		b.texts = append(append(b.texts, folded...), textEnd)
		d.add(key, id)
	}
	b.uses[id>>posBits] = true
	return reasonTerm(id)
}

// full reports whether the block has its last record.
func (b *builder) full() bool { return b.count > 0 && b.last == firstOf(b.block)+posMask }

// find returns the places of a term's records.
func (b *builder) find(t term) (at []uint16) {
	for _, p := range b.postings {
		if p.term() == t {
			at = append(at, uint16(p.pos()))
		}
	}
	return at
}

// reasons returns the postings of reasons. A record has one at most.
func (b *builder) reasons() (found []posting) {
	for _, p := range b.postings {
		if p.term() >= tagReason<<valueBits {
			found = append(found, p)
		}
	}
	return found
}

// cut takes out the records before a place.
func (b *builder) cut(pos uint64) {
	b.postings = slices.DeleteFunc(b.postings, func(p posting) bool { return p.pos() < pos })
	b.events = slices.DeleteFunc(b.events, func(e event) bool { return uint64(e.pos) < pos })
}

// dictionary knows the reasons that came lately and their numbers. What it has
// forgotten gets another number when it comes again.
type dictionary struct {
	seed           maphash.Seed
	recent, before map[uint64]uint64
}

// dictionaryHalf is how many reasons are known before the older half is
// forgotten.
const dictionaryHalf = 1 << 15

func newDictionary() dictionary {
	return dictionary{seed: maphash.MakeSeed(), recent: make(map[uint64]uint64)}
}

func (d *dictionary) find(key uint64) (id uint64, ok bool) {
	if id, ok = d.recent[key]; ok {
		return id, true
	}
	if id, ok = d.before[key]; ok {
		d.add(key, id)
	}
	return id, ok
}

func (d *dictionary) add(key, id uint64) {
	if len(d.recent) >= dictionaryHalf {
		d.recent, d.before = make(map[uint64]uint64), d.recent
	}
	d.recent[key] = id
}

// errDamaged means that the index does not hold what was written.
var errDamaged = errors.New("the index is damaged")

// sealed puts a checksum behind what is written, over where it stands too.
func sealed(content []byte, key uint64) []byte {
	return binary.LittleEndian.AppendUint32(content, checksum(content, key))
}

func unsealed(content []byte, key uint64) ([]byte, error) {
	n := len(content) - 4
	if n < 0 || binary.LittleEndian.Uint32(content[n:]) != checksum(content[:n], key) {
		return nil, errDamaged
	}
	return content[:n], nil
}

func checksum(content []byte, key uint64) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	at := binary.LittleEndian.AppendUint64(make([]byte, 0, 8), key)
	return crc32.Update(crc32.Checksum(at, table), table, content)
}

// A group is a row: some neighbouring terms of a block with their places. Four
// fit into a page of the database.
const groupBytes = 990

// groupKey is the key of the group that begins with a term. Keys rise from
// block to block.
func groupKey(block uint64, t term) uint64 { return block<<termBits | uint64(t) }

// groups calls write with each group of sorted postings. The content is valid
// during the call only.
func groups(block uint64, sorted []posting, write func(key uint64, content []byte) error) error {
	var group, list []byte
	var first, before term
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		key := groupKey(block, first)
		err := write(key, sealed(group, key))
		group = group[:0]
		return err
	}
	for i := 0; i < len(sorted); {
		t := sorted[i].term()
		list = list[:0]
		for last := uint64(0); i < len(sorted) && sorted[i].term() == t; i++ {
			pos := sorted[i].pos()
			list = binary.AppendUvarint(list, pos-last)
			last = pos
		}
		if len(group) > 0 && len(group)+len(list) > groupBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(group) == 0 {
			first, before = t, t
		}
		group = binary.AppendUvarint(group, uint64(t-before))
		group = binary.AppendUvarint(group, uint64(len(list)))
		group = append(group, list...)
		before = t
	}
	return flush()
}

// eachList calls visit with each term of a group and its list, until visit
// returns false.
func eachList(key uint64, content []byte, visit func(t term, list []byte) bool) error {
	group, err := unsealed(content, key)
	if err != nil {
		return err
	}
	t := term(key & (1<<termBits - 1))
	for len(group) > 0 {
		delta, n := binary.Uvarint(group)
		if n <= 0 {
			return errDamaged
		}
		size, m := binary.Uvarint(group[n:])
		if m <= 0 || size > uint64(len(group)-n-m) {
			return errDamaged
		}
		t += term(delta)
		if !visit(t, group[n+m:n+m+int(size)]) {
			return nil
		}
		group = group[n+m+int(size):]
	}
	return nil
}

// places appends the places of a list to dst.
func places(dst []uint16, list []byte) []uint16 {
	pos := uint64(0)
	for len(list) > 0 {
		delta, n := uint64(list[0]), 1
		if delta >= 0x80 {
			if delta, n = binary.Uvarint(list); n <= 0 {
				return dst
			}
		}
		pos += delta
		dst = append(dst, uint16(pos))
		list = list[n:]
	}
	return dst
}

// counts are the numbers of a block: its subjects, and how many records each
// has in each minute.
type counts struct {
	subjects []audit.Subject
	minutes  []minuteCount
}

type minuteCount struct {
	minute  int64
	subject int
	n       int
}

// countsOf adds events up, which are in the order of time.
func countsOf(list []audit.Subject, events []event) counts {
	c := counts{subjects: list}
	n := make([]int, len(list))
	var seen []uint16
	for i, e := range events {
		if n[e.subject] == 0 {
			seen = append(seen, e.subject)
		}
		n[e.subject]++
		if i+1 < len(events) && events[i+1].minute == e.minute {
			continue
		}
		for _, s := range seen {
			c.minutes = append(c.minutes, minuteCount{minute: e.minute, subject: int(s), n: n[s]})
			n[s] = 0
		}
		seen = seen[:0]
	}
	return c
}

// addTo adds the minutes that a tally is about.
func (c *counts) addTo(t *audit.Tally) {
	since, until := t.Since().Unix()/60, t.Until().Unix()/60
	per := make([]int, len(c.subjects))
	for i := 0; i < len(c.minutes); {
		minute := c.minutes[i].minute
		within := minute >= since && minute < until
		var sum [4]int
		for ; i < len(c.minutes) && c.minutes[i].minute == minute; i++ {
			if m := &c.minutes[i]; within {
				per[m.subject] += m.n
				sum[resultOf(c.subjects[m.subject].Result)] += m.n
			}
		}
		for r, n := range sum {
			if n > 0 {
				t.AddAt(minuteTime(minute), results()[r], n)
			}
		}
	}
	for i, n := range per {
		if n > 0 {
			t.AddFor(c.subjects[i], n)
		}
	}
}

func results() [4]string {
	return [4]string{"", audit.ResultAllow, audit.ResultDeny, audit.ResultApproval}
}

func resultOf(result string) int {
	for i, r := range results() {
		if r == result {
			return i
		}
	}
	return 0
}

// encode writes numbers: the strings once, subjects as numbers of strings, and
// the minutes.
func (c *counts) encode(key uint64) []byte {
	known := make(map[string]uint64)
	var strs []string
	number := func(s string) uint64 {
		n, ok := known[s]
		if !ok {
			n = uint64(len(strs))
			known[s] = n
			strs = append(strs, s)
		}
		return n
	}
	var subjects []byte
	for _, s := range c.subjects {
		for _, text := range []string{s.Agent, s.Rule, s.Code, s.Result} {
			subjects = binary.AppendUvarint(subjects, number(text))
		}
	}
	out := binary.AppendUvarint(nil, uint64(len(strs)))
	for _, s := range strs {
		out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
	}
	out = append(binary.AppendUvarint(out, uint64(len(c.subjects))), subjects...)
	last := int64(0)
	for _, m := range c.minutes {
		out = binary.AppendUvarint(out, uint64(m.minute-last))
		out = binary.AppendUvarint(out, uint64(m.subject))
		out = binary.AppendUvarint(out, uint64(m.n))
		last = m.minute
	}
	return sealed(out, key)
}

// decodeCounts reads what encode wrote.
func decodeCounts(key uint64, content []byte) (c counts, err error) {
	rest, err := unsealed(content, key)
	if err != nil {
		return c, err
	}
	next := func() uint64 {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			rest, err = nil, errDamaged
			return 0
		}
		rest = rest[n:]
		return v
	}
	var strs []string
	for n := next(); n > 0 && err == nil; n-- {
		size := next()
		if size > uint64(len(rest)) {
			return c, errDamaged
		}
		strs, rest = append(strs, string(rest[:size])), rest[size:]
	}
	text := func() string {
		if n := next(); n < uint64(len(strs)) {
			return strs[n]
		}
		err = errDamaged
		return ""
	}
	for n := next(); n > 0 && err == nil; n-- {
		c.subjects = append(c.subjects, audit.Subject{Agent: text(), Rule: text(), Code: text(), Result: text()})
	}
	minute := int64(0)
	for len(rest) > 0 && err == nil {
		minute += int64(next())
		m := minuteCount{minute: minute, subject: int(next()), n: int(next())}
		if m.subject < 0 || m.subject >= len(c.subjects) {
			return c, errDamaged
		}
		c.minutes = append(c.minutes, m)
	}
	return c, err
}
