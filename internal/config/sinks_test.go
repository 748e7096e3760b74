package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/config/mask"
)

func TestSinks(t *testing.T) {
	c := mustParse(t, `
audit:
  sinks:
    - { name: siem, type: ocsf, path: /var/log/ocsf.jsonl }
    - name: collector
      type: otlp
      endpoint: https://user:pa55@collector.example:4318/v1/logs
      headers: { Authorization: "Bearer s3cret", X-Empty: "" }
      gzip: true
      timeout: 3s
      from: now
      filter: { result: deny, tenant: acme }
    - { name: host, type: syslog, network: tls, address: "[::1]:6514", tls: { ca: /etc/ca.pem }, max_bytes: 2048, enterprise_number: 61001 }
    - { name: journal, type: journald }
`)
	sinks := c.Audit.Sinks
	if len(sinks) != 4 || sinks[0].Timeout != 10*time.Second || sinks[0].From != "start" || sinks[0].MaxBytes != 8000 {
		t.Errorf("sinks %+v", sinks)
	}
	if s := sinks[1]; s.Headers["Authorization"] != "Bearer s3cret" || s.Filter["tenant"] != "acme" || s.From != "now" || s.Timeout != 3*time.Second {
		t.Errorf("sink %+v", s)
	}
	shown, err := c.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"s3cret", "pa55"} {
		if strings.Contains(string(shown), secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	if sinks[1].Headers["Authorization"] != "Bearer s3cret" {
		t.Error("showing a configuration changed it")
	}
	again := mustParse(t, string(shown))
	if s := again.Audit.Sinks[1]; s.Headers["Authorization"] != mask.Mark || s.Headers["X-Empty"] != "" || s.Filter["result"] != "deny" || again.Audit.Sinks[2].TLS.CA != "/etc/ca.pem" {
		t.Errorf("read back as %+v", s)
	}
}

func TestSinkErrors(t *testing.T) {
	for _, c := range []struct{ sink, want string }{
		{`{ type: ocsf, path: /a }`, `4:7: audit.sinks[0].name: is required`},
		{`{ name: "a/b", type: ocsf, path: /a }`, `4:15: audit.sinks[0].name: want up to 64 letters`},
		{`{ name: a, type: kafka }`, `4:24: audit.sinks[0].type: unknown type "kafka"`},
		{`{ name: a, type: oscf, path: /a }`, `did you mean "ocsf"?`},
		{`{ name: a, type: ocsf }`, `audit.sinks[0].path: is required`},
		{`{ name: a, type: ocsf, path: b }`, `4:36: audit.sinks[0].path: want an absolute path`},
		{`{ name: a, type: ocsf, path: /a, endpoint: "http://x" }`, `audit.sinks[0].endpoint: is for sinks of type otlp, and this one is ocsf`},
		{`{ name: a, type: otlp }`, `audit.sinks[0].endpoint: want a URL`},
		{`{ name: a, type: otlp, endpoint: "ftp://u:p@x" }`, `want a URL such as https://collector.example:4318/v1/logs, got "ftp://***@x"`},
		{`{ name: a, type: otlp, endpoint: "http://x", headers: { "a b": c } }`, `want a header's name`},
		{`{ name: a, type: otlp, endpoint: "http://x", headers: { Host: c } }`, `is set by the daemon`},
		{`{ name: a, type: otlp, endpoint: "http://x", headers: { A: "b\nc" } }`, `without control characters`},
		{`{ name: a, type: otlp, endpoint: "http://x", timeout: 0s }`, `want a duration above zero`},
		{`{ name: a, type: otlp, endpoint: "https://x", tls: { cert: /c } }`, `want cert and key, or neither`},
		{`{ name: a, type: otlp, endpoint: "https://x", tls: { ca: c } }`, `audit.sinks[0].tls.ca: want an absolute path`},
		{`{ name: a, type: syslog, network: udp, address: "x:1" }`, `audit.sinks[0].network: unknown network "udp"`},
		{`{ name: a, type: syslog, network: tcp, address: x }`, `want a host and a port`},
		{`{ name: a, type: syslog, network: tcp, address: "x:70000" }`, `want a host and a port`},
		{`{ name: a, type: syslog, network: unix, address: dev/log }`, `want the absolute path of a socket`},
		{`{ name: a, type: syslog, network: unix, address: /dev/log, enterprise_number: -1 }`, `got -1`},
		{`{ name: a, type: journald, enterprise_number: 61001 }`, `is for sinks of type syslog`},
		{`{ name: a, type: syslog, network: unix, address: /dev/log, max_bytes: 100 }`, `want 2KiB to 128KiB, got 100`},
		{`{ name: a, type: syslog, network: tcp, address: "x:1", tls: { ca: /c } }`, `is for the network tls, and this one is tcp`},
		{`{ name: a, type: journald, from: yesterday }`, `unknown beginning "yesterday"`},
		{`{ name: a, type: journald, filter: { result: no } }`, `audit.sinks[0].filter.result: unknown result`},
		{`{ name: a, type: journald, filter: { reslt: deny } }`, `unknown key "reslt"`},
		{`{ name: a, type: journald, pth: /x }`, `unknown key "pth"`},
		{"{ name: a, type: ocsf, path: /a }\n    - { name: a, type: ocsf, path: /a }", `5:15: audit.sinks[1].name: "a" is taken by audit.sinks[0].name`},
	} {
		_, err := Parse("ocipd.yaml", []byte("\naudit:\n  sinks:\n    - "+c.sink+"\n"))
		var faults Errors
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.sink, err, c.want)
		}
	}
}
