package mask

import (
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	for url, want := range map[string]string{
		"":                              "",
		"/srv/me@home/x.db":             "/srv/me@home/x.db",
		"sqlite:/srv/me@home/x.db":      "sqlite:/srv/me@home/x.db",
		"sqlite:///d/x.db?mode=rw":      "sqlite:///d/x.db?***",
		"file:x.db?_key=a":              "file:x.db?***",
		"postgres://u:p@ss?@db/x":       "postgres://***@db/x",
		"postgres://db/x?password=a#b":  "postgres://db/x?***",
		"u:p@tcp(h)/db":                 "***@tcp(h)/db",
		"host=h password=a dbname=b":    "host=h password=*** dbname=b",
		"https://h:4318/v1/logs":        "https://h:4318/v1/logs",
		"https://h/v1#fragment":         "https://h/v1?***",
		"https://h/v1?":                 "https://h/v1?",
		"https://u:p@h:4318/v1?api_key": "https://***@h:4318/v1?***",
	} {
		if got := URL(url); got != want || URL(got) != got {
			t.Errorf("%s is shown as %s and then as %s, want %s", url, got, URL(got), want)
		}
	}
}

func TestHoldsToken(t *testing.T) {
	for text, want := range map[string]bool{
		"5f4dcc3b5aa765d61d8327deb882cf99": true, "Zm9vYmFyMTIzNDU2Nzg5MA==": true, "550e8400-e29b-41d4-a716-446655440000": true,
		"key sk-live-4eC39HqLyjWDarjtT1zdp7dc": true, strings.Repeat("x", 32): true, "ghp_16C7e42F292c6912E7710c838347Ae178B4a": true,
		"": false, "a": false, "agent-alice-2026-11-21-production": false, "engineering-platform-team-europe": false,
		"engineeringPlatformTeamEurope": false, "2026-11-21T10:11:12.123456Z": false, "information_query": false,
		"https://collector.example:4318/v1/logs": false, "Wer das liest, versteht auch sonst manches.": false,
	} {
		if got := holdsToken(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}
