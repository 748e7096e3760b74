package index

import (
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkExtract is what a record costs before anything is written.
func BenchmarkExtract(b *testing.B) {
	l := newLog()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 512 {
		l.add(b, start.Add(time.Duration(i)*time.Second), randomRecord(r, i))
	}
	var block builder
	dict := newDictionary()
	block.begin(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%512 == 0 {
			block.begin(0)
		}
		x := extractLine(uint64(i%512)+1, l.lines[i%512], nil)
		block.add(&x, &dict)
	}
}
