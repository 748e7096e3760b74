package auditcmd

import (
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/evidence/verify"
)

// A witness may lack 1,024 records and 10 minutes, and each bound can be changed separately.
func TestWitnessBounds(t *testing.T) {
	for _, test := range []struct {
		within []string
		want   verify.Within
		bad    bool
	}{
		{nil, verify.Within{Records: 1024, Age: 10 * time.Minute}, false},
		{[]string{"7"}, verify.Within{Records: 7, Age: 10 * time.Minute}, false},
		{[]string{"90s"}, verify.Within{Records: 1024, Age: 90 * time.Second}, false},
		{[]string{"90s", "0"}, verify.Within{Age: 90 * time.Second}, false},
		{[]string{"-1s"}, verify.Within{}, true},
		{[]string{"-1"}, verify.Within{}, true},
		{[]string{"ten"}, verify.Within{}, true},
	} {
		f := verifyFlags{within: test.within, witnesses: []string{"k"}}
		if got, err := f.bounds(); (err != nil) != test.bad || !test.bad && got != test.want {
			t.Errorf("%q: %+v, %v", test.within, got, err)
		}
	}
}
