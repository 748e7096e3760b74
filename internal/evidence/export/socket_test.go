package export

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"golang.org/x/sys/unix"
)

// octets reads counted messages until the connection ends.
func octets(r io.Reader, take func([]byte) error) error {
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadString(' ')
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSuffix(text, " "))
		if err != nil {
			return err
		}
		message := make([]byte, n)
		if _, err := io.ReadFull(in, message); err != nil {
			return err
		}
		if err := take(message); err != nil {
			return err
		}
	}
}

// receiver is a syslog receiver over a stream. A connection ends after that many messages, 0 for
// never.
type receiver struct {
	*collector
	listener net.Listener
	mu       sync.Mutex
	dies     int
	conns    []net.Conn
	wg       sync.WaitGroup
}

func receive(t *testing.T, l net.Listener, dies int) *receiver {
	r := &receiver{collector: newCollector(), listener: l, dies: dies}
	r.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, conn)
			r.mu.Unlock()
			r.wg.Go(func() { r.serve(t, conn) })
		}
	})
	t.Cleanup(r.stop)
	return r
}

var errDies = errors.New("dies")

func (r *receiver) serve(t *testing.T, conn net.Conn) {
	defer conn.Close()
	n := 0
	err := octets(conn, func(b []byte) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n++; n == r.dies {
			r.dies *= 2
			return errDies
		}
		return r.message(b)
	})
	if errors.Is(err, errDies) {
		// If a receiver dies with unread bytes, the connection is reset.
		return
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func (r *receiver) stop() {
	r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// authority makes a certificate for 127.0.0.1 and a file of its authority.
func authority(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "receiver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Every record arrives over each kind of stream, also if the receiver dies in the middle of a page.
func TestSyslogStreams(t *testing.T) {
	pair, ca := authority(t)
	for _, network := range []string{NetUnix, NetTCP, NetTLS} {
		for _, dies := range []int{0, 300} {
			t.Run(fmt.Sprintf("%s, dies %d", network, dies), func(t *testing.T) {
				var l net.Listener
				switch network {
				case NetUnix:
					l = listen(t, "unix", filepath.Join(t.TempDir(), "log"))
				case NetTCP:
					l = listen(t, "tcp", "127.0.0.1:0")
				case NetTLS:
					l = tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
				}
				r := receive(t, l, dies)
				log := newMemory()
				big := exchange("deny")
				big.Content = strings.Repeat("long ä", 40_000)
				log.add(t, big)
				log.fill(t, 1300)
				set := start(t, options(t, log, Spec{
					Name: "log", Type: TypeSyslog, Network: network, Address: l.Addr().String(), TLS: TLS{CA: ca}, From: FromStart,
				}))
				eventually(t, "the cursor at the end", func() bool { return set.Status()[0].Lag == 0 })
				eventually(t, "all records", func() bool { return r.has(1301) })
				r.check(t, log)
				if dies == 0 && r.most() != 1 {
					t.Error("a record came twice")
				}
			})
		}
	}
}

// A receiver on this machine that accepts bytes and does not read them has not taken the records.
func TestSyslogNeverReads(t *testing.T) {
	l := listen(t, "unix", filepath.Join(t.TempDir(), "log"))
	defer l.Close()
	conns := make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(conns)
				return
			}
			conns <- conn
		}
	}()
	log := newMemory()
	log.fill(t, 5)
	o := options(t, log, Spec{Name: "log", Type: TypeSyslog, Network: NetUnix, Address: l.Addr().String(), From: FromStart, Timeout: 50 * time.Millisecond})
	set := start(t, o)
	eventually(t, "a failure", func() bool { return strings.Contains(set.Status()[0].Error, "does not take") })
	log.fill(t, 5000)
	if s := set.Status()[0]; s.Seq != 0 || s.Lag != 5005 {
		t.Errorf("status %+v", s)
	}
	if err := set.Close(); err != nil {
		t.Error(err)
	}
	l.Close()
	for conn := range conns {
		conn.Close()
	}
}

// A TCP peer that accepts nothing does not block a follower for ever.
func TestSyslogStuckPeer(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	defer l.Close()
	log := newMemory()
	huge := exchange("allow")
	huge.Content = strings.Repeat("x", 1_000_000)
	for range 40 {
		log.add(t, huge)
	}
	set := start(t, options(t, log, Spec{Name: "log", Type: TypeSyslog, Network: NetTCP, Address: l.Addr().String(), From: FromStart, Timeout: 100 * time.Millisecond}))
	eventually(t, "a failure", func() bool { return set.Status()[0].Error != "" })
	if s := set.Status()[0]; s.Lag == 0 {
		t.Errorf("status %+v", s)
	}
}

// A restarted receiver gets the records that the earlier one may not have read.
func TestSyslogPeerRestarts(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	unread := make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		<-unread // its machine has taken the records, and the program never reads them
		l.Close()
		conn.Close()
	}()
	log := newMemory()
	log.fill(t, 20)
	set := start(t, options(t, log, Spec{Name: "log", Type: TypeSyslog, Network: NetTCP, Address: l.Addr().String(), From: FromStart}))
	eventually(t, "the first receiver's machine to take all", func() bool { return set.Status()[0].Seq == 20 })
	close(unread)
	var second net.Listener
	eventually(t, "the address", func() bool {
		var err error
		second, err = net.Listen("tcp", l.Addr().String())
		return err == nil
	})
	r := receive(t, second, 0)
	eventually(t, "all records", func() bool {
		if r.has(20) {
			return true
		}
		log.fill(t, 1)
		return false
	})
	eventually(t, "the end", func() bool { return set.Status()[0].Lag == 0 && r.has(int(log.Head().Seq)) })
	r.check(t, log)
}

// Records that a receiver on this machine had read when it was lost, and may not have written, are
// sent to the next one, even if no record follows.
func TestSyslogReceiverIsLost(t *testing.T) {
	t.Parallel()
	for _, network := range []string{NetUnix, NetUnixgram} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "log")
			log := newMemory()
			log.fill(t, 20)
			spec := Spec{Name: "log", Type: TypeSyslog, Network: network, Address: path, From: FromStart}
			serve := func() (r *collector, stop func()) {
				if network == NetUnix {
					s := receive(t, listen(t, "unix", path), 0)
					return s.collector, s.stop
				}
				c := newCollector()
				conn := datagrams(t, path, func(b []byte, _ []int) error { return c.message(b) })
				return c, func() { conn.Close(); os.Remove(path) }
			}
			first, stop := serve()
			set := start(t, options(t, log, spec))
			eventually(t, "the first receiver to read all", func() bool { return set.Status()[0].Seq == 20 && first.has(20) })
			stop()
			second, _ := serve()
			eventually(t, "the second one to have all", func() bool { return second.has(20) })
			second.check(t, log)
			if first.most() != 1 || second.most() != 1 {
				t.Errorf("a record came twice: %d, %d", first.most(), second.most())
			}
		})
	}
}

// datagrams reads a socket until it is closed.
func datagrams(t *testing.T, path string, take func(b []byte, fds []int) error) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b, oob := make([]byte, 1<<20), make([]byte, 1024)
		for {
			n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
			if err != nil {
				return
			}
			var fds []int
			if oobn > 0 {
				list, err := unix.ParseSocketControlMessage(oob[:oobn])
				if err == nil {
					fds, err = unix.ParseUnixRights(&list[0])
				}
				if err != nil {
					t.Error(err)
				}
			}
			if err := take(b[:n], fds); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return conn
}

// Datagrams: a line that is too long is sent in parts, and a receiver that was away gets
// everything.
func TestSyslogDatagrams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := newMemory()
	log.fill(t, 700)
	big := exchange("require_approval")
	big.Content = strings.Repeat("日本", 100_000)
	log.add(t, big)
	set := start(t, options(t, log, Spec{Name: "log", Type: TypeSyslog, Network: NetUnixgram, Address: path, From: FromStart}))
	eventually(t, "a failure", func() bool { return set.Status()[0].Error != "" })
	var mu sync.Mutex
	c := newCollector()
	conn := datagrams(t, path, func(b []byte, _ []int) error {
		mu.Lock()
		defer mu.Unlock()
		if len(b) > DefaultMaxBytes {
			return fmt.Errorf("a message of %d bytes", len(b))
		}
		return c.message(b)
	})
	eventually(t, "all records", func() bool { return set.Status()[0].Lag == 0 })
	eventually(t, "the receiver to have them", func() bool { return c.has(701) })
	c.check(t, log)
	// The receiver is restarted with a new socket.
	conn.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	datagrams(t, path, func(b []byte, _ []int) error {
		mu.Lock()
		defer mu.Unlock()
		return c.message(b)
	})
	log.fill(t, 5)
	eventually(t, "the rest", func() bool { return c.has(706) })
	c.check(t, log)
}

// journald is a journal: it gets datagrams, and files for long entries.
type journald struct {
	*seen
	mu      sync.Mutex
	entries []map[string]string
	files   int
}

func (j *journald) take(b []byte, fds []int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "entry")
		seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
		if want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL; err != nil || seals != want {
			return fmt.Errorf("seals %x, %w", seals, err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if b, err = io.ReadAll(f); err != nil {
			return err
		}
		j.files++
		if err := f.Close(); err != nil {
			return err
		}
	}
	entry, err := parseJournal(b)
	if err != nil {
		return err
	}
	j.entries = append(j.entries, entry)
	j.add(entry["OCIPD_LINE"])
	return nil
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	j := &journald{seen: newSeen()}
	log := newMemory()
	log.fill(t, 600)
	big := exchange("deny")
	big.Code, big.PolicyReason, big.Content = "POLICY_DENIED", "two\nlines", strings.Repeat("x", 900_000)
	log.add(t, big)
	set := start(t, options(t, log, Spec{Name: "journal", Type: TypeJournd, Path: path, From: FromStart}))
	eventually(t, "a failure", func() bool { return set.Status()[0].Error != "" })
	conn := datagrams(t, path, j.take)
	eventually(t, "all records", func() bool { return set.Status()[0].Lag == 0 && j.has(601) })
	j.check(t, log)
	j.mu.Lock()
	last := j.entries[len(j.entries)-1]
	e := Read(log.lines[600]).Entry
	for name, want := range map[string]string{
		"MESSAGE":  "agent_exchange deny: agent-alice-1 to agent-dave-1, POLICY_DENIED: two lines",
		"PRIORITY": "4", "SYSLOG_IDENTIFIER": "ocipd", "OCIPD_SEQ": "601", "OCIPD_HASH": e.Hash.String(), "OCIPD_PREV": e.Prev.String(),
		"OCIPD_RESULT": "deny", "OCIPD_LINE": string(log.lines[600]), "SYSLOG_FACILITY": "13",
	} {
		if last[name] != want {
			t.Errorf("%s is %.100q, want %.100q", name, last[name], want)
		}
	}
	if j.files != 1 {
		t.Errorf("%d entries came as files, want 1", j.files)
	}
	j.mu.Unlock()

	// The journal is restarted, with a new socket in place of the first.
	conn.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	log.fill(t, 3)
	eventually(t, "a failure", func() bool { return set.Status()[0].Error != "" })
	datagrams(t, path, j.take)
	eventually(t, "the rest", func() bool { return j.has(604) })
	j.check(t, log)
}

// A journal that accepts nothing does not block a follower for ever.
func TestJournalStuck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	log := newMemory()
	log.fill(t, 600)
	sink := &journalSink{path: path, mapping: mapping}
	defer sink.Close()
	var batch []Record
	for _, line := range log.lines {
		batch = append(batch, Read(line))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := sink.Send(ctx, batch); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if _, err := sink.Send(ctx, batch[:1]); err == nil {
		t.Error("sent after the time was over")
	}
}

func TestJournalFields(t *testing.T) {
	long := strings.Repeat("a\n", 300)
	b := field(field(field(nil, "A", []byte("x=y")), "B", []byte(long)), "EMPTY", nil)
	got, err := parseJournal(b)
	if err != nil || got["A"] != "x=y" || got["B"] != long || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSyslogMessage(t *testing.T) {
	log := newMemory()
	rec := exchange("deny")
	rec.AgentID, rec.Event, rec.Code = `a"]\`+"\n", "resolved", strings.Repeat("ü", 100)
	log.add(t, rec, &audit.Record{ID: "bare"})
	r := Read(log.lines[0])
	m, err := parseSyslog((&Mapping{Host: "höst name\n"}).Syslog(&r, 0)[0])
	if err != nil {
		t.Fatal(err)
	}
	if m.pri != 13*8+4 || m.time != "2026-11-20T18:15:23.951212Z" || m.host != "hstname" || m.app != "ocipd" || m.msgID != "agent_exchange" || m.sdName != "ocipd@32473" {
		t.Errorf("header %+v", m)
	}
	if m.params["agent"] != `a"]\ ` || m.params["seq"] != "1" || m.params["result"] != "deny" || m.params["event"] != "resolved" || len(m.params["code"]) > 64 {
		t.Errorf("parameters %q", m.params)
	}
	if m, err = parseSyslog((&Mapping{Enterprise: 61001}).Syslog(&r, 0)[0]); err != nil || m.sdName != "ocipd@61001" {
		t.Errorf("with an enterprise number of one's own the data are %q, %v", m.sdName, err)
	}
	r = Read(log.lines[1])
	if m, err = parseSyslog((&Mapping{}).Syslog(&r, 0)[0]); err != nil || m.host != "-" || m.msgID != "-" || m.pri != 13*8+6 || m.params["prev"] == "" {
		t.Errorf("%+v, %v", m, err)
	}
}

// For any line, the messages conform to RFC 5424, keep their limit, and contain the whole line.
func FuzzSyslog(f *testing.F) {
	log := newMemory()
	log.add(f, exchange("deny"))
	f.Add(log.lines[0], 2048)
	f.Add([]byte(`{"seq":1,"actionType":"a b","policyResult":"x]","agentId":"`+strings.Repeat(`\\"`, 40)+`"}`), 0)
	f.Add(bytes.Repeat([]byte("\x80"), 2100), 2048)
	f.Add([]byte(`{"seq":1,"time":"0000-01-01T00:00:00Z"}`), 2048)
	f.Fuzz(func(t *testing.T, line []byte, limit int) {
		r := Read(line)
		m := &Mapping{Host: strings.Repeat("h", 300)}
		var text []byte
		messages := m.Syslog(&r, limit%10_000)
		for i, b := range messages {
			if len(b) > max(limit%10_000, MinMaxBytes) {
				t.Fatalf("message %d has %d bytes", i, len(b))
			}
			got, err := parseSyslog(b)
			if err != nil {
				t.Fatalf("%q: %v", b, err)
			}
			if got.params["part"] != "" && (got.params["part"] != strconv.Itoa(i+1) || got.params["parts"] != strconv.Itoa(len(messages))) {
				t.Fatalf("part %s of %s", got.params["part"], got.params["parts"])
			}
			text = append(text, got.text...)
		}
		if !slices.Equal(text, line) {
			t.Fatalf("%q became %q", line, text)
		}
	})
}
