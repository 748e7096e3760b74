package config

import (
	"strings"
	"testing"
)

func TestCheckOrigin(t *testing.T) {
	for origin, words := range map[string]string{
		"http://localhost:7443": "", "http://0a1b2c.localhost:7443": "", "https://host.example": "", "https://host.example:8443": "", "https://a1.example": "",
		"": "is no origin", "host.example": "is no origin", "https://": "is no origin", "https://Host.example": "is no origin",
		"https://host.example/": "is no origin", "https://host.example/x": "is no origin", "https://host.example?x": "is no origin",
		"https://me@host.example": "is no origin", "https://host.example:": "is no origin", "https://host.example:x": "is no origin",
		`https://ho"st`: "is no origin", "https://*.example": "is no origin",
		"http://host.example": "no passkeys", "http://127.0.0.1:80": "no passkeys", "https://127.0.0.1": "no passkeys", "https://[::1]": "no passkeys",
		"http://notlocalhost": "no passkeys", "ftp://host.example": "scheme",
	} {
		err := checkOrigin(origin)
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", origin, err, words)
		}
	}
}
