package logreader

import (
	"bytes"
	"testing"
)

func TestLastLines(t *testing.T) {
	for _, test := range []struct {
		limit, count int
		want         string
		dropped      bool
	}{
		{0, 3, "", true}, {3, 0, "", false}, {3, 2, "0 1", false}, {3, 3, "0 1 2", false}, {3, 7, "4 5 6", true}, {1, 5, "4", true},
	} {
		l := lastLines{limit: test.limit}
		line := make([]byte, 1)
		for n := range test.count {
			line[0] = byte('0' + n)
			l.add(line)
		}
		if got := string(bytes.Join(l.ordered(), []byte(" "))); got != test.want || l.dropped != test.dropped {
			t.Errorf("the last %d of %d are %q (dropped %t), want %q", test.limit, test.count, got, l.dropped, test.want)
		}
	}
}
