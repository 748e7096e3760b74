package export

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// collectorServer receives OTLP logs. Before, if set, handles a request first.
type collectorServer struct {
	*httptest.Server
	*seen
	requests atomic.Int64
	mu       sync.Mutex
	last     *logs.LogsData
	header   http.Header
}

func newCollectorServer(t *testing.T, before func(n int64, records int, w http.ResponseWriter) bool) *collectorServer {
	c := &collectorServer{seen: newSeen()}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			// The client gave up before it had sent everything, and sends it again.
			return
		}
		body := io.Reader(bytes.NewReader(sent))
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		var data logs.LogsData
		if err == nil {
			err = proto.Unmarshal(b, &data)
		}
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Method != http.MethodPost {
			t.Errorf("request %s %v: %v", r.Method, r.Header, err)
			return
		}
		list := data.ResourceLogs[0].ScopeLogs[0].LogRecords
		if !before(c.requests.Add(1), len(list), w) {
			return
		}
		c.mu.Lock()
		c.last, c.header = &data, r.Header
		c.mu.Unlock()
		for _, l := range list {
			c.add(l.Body.GetStringValue())
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// A collector that drops connections, is busy and asks for a wait, and comes back, gets every
// record.
func TestOTLP(t *testing.T) {
	c := newCollectorServer(t, func(n int64, _ int, w http.ResponseWriter) bool {
		switch n {
		case 1: // the connection is dropped before the answer
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
			return false
		case 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return false
		case 3:
			w.WriteHeader(http.StatusTooManyRequests)
			return false
		}
		return true
	})
	log := newMemory()
	log.fill(t, 1200)
	set := start(t, options(t, log, Spec{
		Name: "otel", Type: TypeOTLP, Endpoint: c.URL + "/v1/logs", Gzip: true, Headers: map[string]string{"Authorization": "Bearer s3cret"}, From: FromStart,
	}))
	eventually(t, "a failure", func() bool { return set.Status()[0].Error != "" })
	eventually(t, "all records", func() bool { return set.Status()[0].Lag == 0 })
	c.check(t, log)
	if s := set.Status()[0]; s.Error != "" || s.Sent != 1200 || s.Refused != 0 {
		t.Errorf("status %+v", s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.header.Get("Authorization") != "Bearer s3cret" || c.header.Get("User-Agent") != "ocipd/1.2.3" {
		t.Errorf("header %v", c.header)
	}
	l := c.last.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	have := map[string]string{}
	for _, kv := range append(l.Attributes, c.last.ResourceLogs[0].Resource.Attributes...) {
		have[kv.Key] = kv.Value.GetStringValue()
		if kv.Key == "ocipd.seq" {
			have[kv.Key] = fmt.Sprint(kv.Value.GetIntValue())
		}
	}
	e := Read([]byte(l.Body.GetStringValue())).Entry
	for key, want := range map[string]string{
		"ocipd.seq": fmt.Sprint(e.Seq), "log.record.uid": e.Hash.String(), "ocipd.prev": e.Prev.String(), "ocipd.result": "allow",
		"service.name": "ocipd", "service.version": "1.2.3", "host.name": "host-1", "ocipd.log": "log-1", "ocipd.counterparty": "agent-dave-1",
	} {
		if have[key] != want {
			t.Errorf("attribute %s is %q, want %q", key, have[key], want)
		}
	}
	if l.SeverityNumber != logs.SeverityNumber_SEVERITY_NUMBER_INFO || int64(l.TimeUnixNano) != e.Time.UnixNano() || l.EventName != "ocipd.agent_exchange" {
		t.Errorf("record %v", l)
	}
}

// Records that a collector rejects in a partial success are counted and not sent again.
func TestOTLPPartialSuccess(t *testing.T) {
	var partial []byte
	partial = protowire.AppendTag(partial, 1, protowire.VarintType)
	partial = protowire.AppendVarint(partial, 2)
	partial = protowire.AppendTag(partial, 2, protowire.BytesType)
	partial = protowire.AppendString(partial, "too old")
	c := newCollectorServer(t, func(_ int64, _ int, w http.ResponseWriter) bool {
		_, err := w.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial))
		return err == nil
	})
	log := newMemory()
	log.fill(t, 5)
	set := start(t, options(t, log, Spec{Name: "otel", Type: TypeOTLP, Endpoint: c.URL, From: FromStart}))
	eventually(t, "all records", func() bool { return set.Status()[0].Lag == 0 })
	c.check(t, log)
	if s := set.Status()[0]; s.Refused != 2 || s.Note != "of records 1 to 5, 2 were refused: too old" || c.most() != 1 {
		t.Errorf("status %+v", s)
	}
}

// A page that is too large is sent in parts. A single record that is too large, and a page that is
// refused, stay and are shown.
func TestOTLPRefusals(t *testing.T) {
	var most atomic.Int64
	most.Store(100)
	c := newCollectorServer(t, func(_ int64, records int, w http.ResponseWriter) bool {
		switch {
		case int64(records) > most.Load():
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return false
		case most.Load() == 1000:
			w.WriteHeader(http.StatusBadRequest)
			// google.rpc.Status{message: "bad\nkey"}
			_, err := w.Write(protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "bad\nkey"))
			if err != nil {
				t.Error(err)
			}
			return false
		}
		return true
	})
	log := newMemory()
	log.fill(t, 300)
	set := start(t, options(t, log, Spec{Name: "otel", Type: TypeOTLP, Endpoint: c.URL, From: FromStart}))
	eventually(t, "all records", func() bool { return set.Status()[0].Lag == 0 })
	c.check(t, log)
	most.Store(0)
	log.fill(t, 1)
	eventually(t, "a refusal", func() bool { return strings.Contains(set.Status()[0].Error, "413") })
	most.Store(1000)
	eventually(t, "another refusal", func() bool { return strings.Contains(set.Status()[0].Error, "400 Bad Request: bad key") })
	if s := set.Status()[0]; s.Seq != 300 || s.Lag != 1 {
		t.Errorf("status %+v", s)
	}
	most.Store(1)
	eventually(t, "the last record", func() bool { return set.Status()[0].Lag == 0 })
	c.check(t, log)
}

// Headers and records do not follow a redirect, and a password in the URL is
// not shown.
func TestOTLPSecrets(t *testing.T) {
	away := newCollectorServer(t, func(int64, int, http.ResponseWriter) bool { return true })
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, away.URL, http.StatusTemporaryRedirect)
	}))
	log := newMemory()
	log.fill(t, 1)
	endpoint := strings.Replace(here.URL, "http://", "http://user:pa55@", 1)
	set := start(t, options(t, log, Spec{Name: "otel", Type: TypeOTLP, Endpoint: endpoint, From: FromStart}))
	eventually(t, "a refusal", func() bool { return strings.Contains(set.Status()[0].Error, "307") })
	here.Close()
	eventually(t, "no connection", func() bool { return strings.Contains(set.Status()[0].Error, "cannot reach") })
	if s := set.Status()[0]; strings.Contains(s.Error, "pa55") || away.requests.Load() != 0 {
		t.Errorf("status %+v, %d requests elsewhere", s, away.requests.Load())
	}
}

// A collector that never answers times out.
func TestOTLPSilence(t *testing.T) {
	open := make(chan struct{})
	c := newCollectorServer(t, func(n int64, _ int, _ http.ResponseWriter) bool {
		if n == 1 {
			<-open
		}
		return true
	})
	log := newMemory()
	log.fill(t, 3)
	set := start(t, options(t, log, Spec{Name: "otel", Type: TypeOTLP, Endpoint: c.URL, From: FromStart, Timeout: 500 * time.Millisecond}))
	eventually(t, "a timeout", func() bool { return strings.Contains(set.Status()[0].Error, "deadline") })
	close(open)
	eventually(t, "all records", func() bool { return set.Status()[0].Lag == 0 })
	c.check(t, log)
}

func TestOTLPJSON(t *testing.T) {
	log := newMemory()
	log.fill(t, 2)
	batch := []Record{Read(log.lines[0]), Read(log.lines[1]), Read([]byte("no \xff record"))}
	b, err := mapping.OTLPJSON(batch)
	if err != nil {
		t.Fatal(err)
	}
	var back logs.LogsData
	if err := protojson.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&back, mapping.OTLP(batch)) {
		t.Error("what was read back is not what was written")
	}
	if !bytes.HasPrefix(b, []byte(`{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"ocipd"}}`)) || bytes.ContainsRune(b, '\n') {
		t.Errorf("%.120s", b)
	}
	if !bytes.Contains(b, []byte(`"severityNumber":9`)) {
		t.Error("an enum is not written as its number")
	}
}

func TestHeaderRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"3": 3 * time.Second, "Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Thu, 01 Jan 2026 00:00:00 GMT": 0, "": -1, "-1": -1, "99999999999999999999": -1, "soon": -1,
	} {
		got, ok := retryAfter(text, now)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %s, %v", text, got, ok)
		}
	}
}

// A foreign answer may be malformed.
func FuzzPartialSuccess(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0x02, 0x08, 0x05})
	f.Add([]byte{0x0a, 0x04, 0x12, 0x02, 'h', 'i'})
	f.Fuzz(func(t *testing.T, b []byte) {
		refused, why, err := partialSuccess(b)
		if err != nil {
			return
		}
		if refused > 1<<63-1 || len(why) > len(b) {
			t.Errorf("%d %q", refused, why)
		}
		said(b)
	})
}
