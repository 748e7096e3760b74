package config

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/mask"
)

// Sink is another system that gets the audit log, see internal/evidence/export.
type Sink struct {
	// Name names the sink and the file of its cursor: up to 64 letters, digits,
	// hyphens and underscores.
	Name string `yaml:"name"`
	// Type is ocsf, otlp, syslog or journald.
	Type string `yaml:"type"`
	// Path is the file of ocsf, or the socket of journald, empty for its own.
	Path string `yaml:"path,omitempty"`
	// Endpoint is the URL for otlp, and Headers are sent with each request. Their values
	// are never shown.
	Endpoint string            `yaml:"endpoint,omitempty" show:"url"`
	Headers  map[string]string `yaml:"headers,omitempty" show:"nothing"`
	Gzip     bool              `yaml:"gzip,omitempty"`
	// Network is the transport of syslog: unixgram, unix, tcp or tls. Address is a path for
	// the first two and host:port for the others.
	Network string `yaml:"network,omitempty"`
	Address string `yaml:"address,omitempty"`
	// MaxBytes bounds a syslog message, 2048 to 131072.
	MaxBytes Size `yaml:"max_bytes"`
	// Enterprise is the private enterprise number in syslog's structured data, zero
	// for the one of [export.DefaultEnterprise].
	Enterprise int     `yaml:"enterprise_number,omitempty"`
	TLS        SinkTLS `yaml:"tls,omitempty"`
	// Timeout bounds one attempt to send a page of records.
	Timeout time.Duration `yaml:"timeout"`
	// From is the start of the first run: start or now.
	From string `yaml:"from"`
	// Filter selects the records for a sink, by searchable members ([audit.Member.Key]). A
	// missing member selects all.
	Filter map[string]string `yaml:"filter,omitempty"`
}

// SinkTLS names the files of the trusted authorities and of the sink's own identity.
// ServerName is the expected name, empty for the one in the address.
type SinkTLS struct {
	CA         string `yaml:"ca,omitempty"`
	Cert       string `yaml:"cert,omitempty"`
	Key        string `yaml:"key,omitempty"`
	ServerName string `yaml:"server_name,omitempty"`
}

const (
	minSyslogBytes = 2048
	maxSyslogBytes = 128 << 10
	maxSinkName    = 64
)

func defaultSink() Sink {
	return Sink{MaxBytes: 8000, Timeout: 10 * time.Second, From: "start"}
}

func (c *Config) checkSinks(p *problems) {
	names, files := map[string]spot{}, map[string]spot{}
	for i := range c.Audit.Sinks {
		s, at := &c.Audit.Sinks[i], keypath.Path{}.Key("audit").Key("sinks").Index(i)
		p.required(at.Key("name"), s.Name)
		if len(s.Name) > maxSinkName || strings.ContainsFunc(s.Name, notWord) {
			p.bad(at.Key("name"), "want up to %d letters, digits, hyphens and underscores, because a file has the name, got %q", maxSinkName, s.Name)
		}
		p.unique(at.Key("name"), s.Name, names, spot{"audit.sinks.name", i, -1})
		p.word(at.Key("type"), "type", s.Type, "ocsf", "otlp", "syslog", "journald")
		s.checkKeys(p, at)
		switch s.Type {
		case "ocsf":
			p.required(at.Key("path"), s.Path)
			p.unique(at.Key("path"), s.Path, files, spot{"audit.sinks.path", i, -1})
		case "otlp":
			s.checkHTTP(p, at)
		case "syslog":
			s.checkSyslog(p, at)
		}
		p.absolute(at.Key("path"), s.Path)
		for _, f := range []struct{ key, value string }{{"ca", s.TLS.CA}, {"cert", s.TLS.Cert}, {"key", s.TLS.Key}} {
			p.absolute(at.Key("tls").Key(f.key), f.value)
		}
		if (s.TLS.Cert == "") != (s.TLS.Key == "") {
			p.bad(at.Key("tls"), "want cert and key, or neither")
		}
		p.positive(at.Key("timeout"), s.Timeout)
		p.word(at.Key("from"), "beginning", s.From, "start", "now")
		s.checkFilter(p, at.Key("filter"))
	}
}

// checkKeys reports keys that the sink's type does not read.
func (s *Sink) checkKeys(p *problems, at keypath.Path) {
	for _, k := range []struct {
		key   string
		set   bool
		types []string
	}{
		{"path", s.Path != "", []string{"ocsf", "journald"}},
		{"endpoint", s.Endpoint != "", []string{"otlp"}},
		{"headers", len(s.Headers) > 0, []string{"otlp"}},
		{"gzip", s.Gzip, []string{"otlp"}},
		{"network", s.Network != "", []string{"syslog"}},
		{"address", s.Address != "", []string{"syslog"}},
		{"enterprise_number", s.Enterprise != 0, []string{"syslog"}},
		{"tls", s.TLS != SinkTLS{}, []string{"otlp", "syslog"}},
	} {
		if k.set && s.Type != "" && !slices.Contains(k.types, s.Type) {
			p.bad(at.Key(k.key), "is for sinks of type %s, and this one is %s", strings.Join(k.types, " and "), s.Type)
		}
	}
}

func (s *Sink) checkHTTP(p *problems, at keypath.Path) {
	_, rest, ok := strings.Cut(s.Endpoint, "://")
	web := strings.HasPrefix(s.Endpoint, "http://") || strings.HasPrefix(s.Endpoint, "https://")
	if !ok || !web || rest == "" || strings.HasPrefix(rest, "/") {
		p.bad(at.Key("endpoint"), "want a URL such as https://collector.example:4318/v1/logs, got %q", mask.URL(s.Endpoint))
	}
	taken := []string{"content-type", "content-encoding", "content-length", "host", "transfer-encoding", "connection"}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		key := at.Key("headers").Key(name)
		if name == "" || strings.ContainsFunc(name, notWord) {
			p.bad(key, "want a header's name of letters, digits, hyphens and underscores, got %q", name)
		}
		if slices.Contains(taken, strings.ToLower(name)) {
			p.bad(key, "is set by the daemon")
		}
		if strings.ContainsFunc(s.Headers[name], func(r rune) bool { return r < ' ' || r == 0x7f }) {
			p.bad(key, "want a value without control characters")
		}
	}
}

func (s *Sink) checkSyslog(p *problems, at keypath.Path) {
	p.word(at.Key("network"), "network", s.Network, "unixgram", "unix", "tcp", "tls")
	p.size(at.Key("max_bytes"), s.MaxBytes, minSyslogBytes, maxSyslogBytes)
	p.between(at.Key("enterprise_number"), s.Enterprise, 0, math.MaxUint32)
	if (s.TLS != SinkTLS{}) && s.Network != "tls" {
		p.bad(at.Key("tls"), "is for the network tls, and this one is %s", s.Network)
	}
	switch s.Network {
	case "unixgram", "unix":
		if !filepath.IsAbs(s.Address) || len(s.Address) > maxSocketPath {
			p.bad(at.Key("address"), "want the absolute path of a socket, of up to %d bytes, got %q", maxSocketPath, s.Address)
		}
	case "tcp", "tls":
		colon := strings.LastIndexByte(s.Address, ':')
		port, err := strconv.Atoi(s.Address[colon+1:])
		if colon < 1 || err != nil || port < 1 || port > 65535 {
			p.bad(at.Key("address"), "want a host and a port such as log.example:6514, got %q", s.Address)
		}
	}
}

func (s *Sink) checkFilter(p *problems, at keypath.Path) {
	known := audit.Filters()
	keys := make([]string, len(known))
	for i := range known {
		keys[i] = known[i].Key()
	}
	for _, key := range slices.Sorted(maps.Keys(s.Filter)) {
		p.word(at.Key(key), "key", key, keys...)
		i := slices.Index(keys, key)
		if value := s.Filter[key]; i >= 0 && known[i].Values != nil && value != "" {
			p.word(at.Key(key), strings.ReplaceAll(key, "_", " "), value, known[i].Values...)
		}
	}
}

func notWord(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '-' && r != '_'
}
