package term

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 900 * time.Millisecond: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s",
		2*time.Hour + 3*time.Minute: "2h3m", 49 * time.Hour: "2d1h",
	} {
		if got := Age(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
