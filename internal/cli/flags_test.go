package cli

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	zone := time.FixedZone("there", 2*3600)
	now := time.Date(2026, 3, 10, 15, 4, 5, 0, zone)
	for text, want := range map[string]time.Time{
		"":                          {},
		"now":                       now,
		"today":                     time.Date(2026, 3, 10, 0, 0, 0, 0, zone),
		"yesterday":                 time.Date(2026, 3, 9, 0, 0, 0, 0, zone),
		"2h":                        now.Add(-2 * time.Hour),
		"1h30m":                     now.Add(-90 * time.Minute),
		"7d":                        now.AddDate(0, 0, -7),
		"2026-03-01":                time.Date(2026, 3, 1, 0, 0, 0, 0, zone),
		"2026-03-01 12:30":          time.Date(2026, 3, 1, 12, 30, 0, 0, zone),
		"2026-03-01 12:30:15":       time.Date(2026, 3, 1, 12, 30, 15, 0, zone),
		"2026-03-01T12:30:15.5Z":    time.Date(2026, 3, 1, 12, 30, 15, 500_000_000, time.UTC),
		"2026-03-01T12:30:15+09:00": time.Date(2026, 3, 1, 3, 30, 15, 0, time.UTC),
	} {
		if got, err := Moment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"soon", "-2h", "-1d", "2026-13-01", "d", "12"} {
		if got, err := Moment(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
