package export

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// trail is the period before a receiver was lost whose records are sent again. The receiver may
	// have read them without writing them yet. Over TCP, only its machine acknowledges them.
	trail = 10 * time.Second
	// probeEvery is the interval of checks that a receiver of datagrams is still the same, since it
	// has no connection that could end.
	probeEvery = time.Second
)

// syslogSink sends messages of RFC 5424: as datagrams, or counted in octets over a stream (RFC 6587
// section 3.4.1, RFC 5425 section 4.3). A page counts as taken when the receiving program on this
// machine has read it, or when the receiver's machine has acknowledged it. It may not be on disk
// then, so the records from shortly before the loss of a receiver are sent again.
type syslogSink struct {
	network, address string
	maxBytes         int
	tls              *tls.Config
	mapping          *Mapping
	now              func() time.Time
	conn             *wire
	buf              []byte
}

func newSyslogSink(s *Spec, m *Mapping, now func() time.Time) (*syslogSink, error) {
	mapping := *m
	mapping.Enterprise = s.Enterprise
	k := &syslogSink{network: s.Network, address: s.Address, maxBytes: s.MaxBytes, mapping: &mapping, now: now}
	if k.maxBytes == 0 {
		k.maxBytes = DefaultMaxBytes
	}
	switch k.network {
	case NetUnixgram, NetUnix, NetTCP:
	case NetTLS:
		host, _, err := net.SplitHostPort(k.address)
		if err != nil {
			return nil, fmt.Errorf("cannot read the address: %w", err)
		}
		if k.tls, err = s.TLS.config(host); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown network %q", k.network)
	}
	return k, nil
}

// Trail returns the period in which a receiver may not have written its records.
func (k *syslogSink) Trail() time.Duration { return trail }

// Broken returns a channel that is closed when a stream ends, or a receiver of datagrams is gone.
func (k *syslogSink) Broken() <-chan struct{} {
	if k.conn == nil {
		return nil
	}
	return k.conn.over
}

// Check notices that the receiver is gone.
func (k *syslogSink) Check() error {
	if k.conn == nil {
		return nil
	}
	select {
	case <-k.conn.over:
		return k.drop(k.conn.at, io.ErrUnexpectedEOF)
	default:
		return nil
	}
}

// Send writes a page and waits until the receiver has taken it.
func (k *syslogSink) Send(ctx context.Context, batch []Record) (Ack, error) {
	if err := k.Check(); err != nil {
		return Ack{}, err
	}
	if k.conn == nil {
		conn, err := k.dial(ctx)
		if err != nil {
			return Ack{}, fmt.Errorf("cannot reach the syslog receiver: %w", err)
		}
		k.conn = conn
	}
	began := k.now()
	if err := k.write(ctx, batch); err != nil {
		return Ack{}, k.drop(began, err)
	}
	return Ack{}, nil
}

func (k *syslogSink) write(ctx context.Context, batch []Record) error {
	end, free := k.conn.deadline(ctx)
	defer free()
	k.buf = k.buf[:0]
	for i := range batch {
		for _, message := range k.mapping.Syslog(&batch[i], k.maxBytes) {
			if k.network == NetUnixgram {
				if _, err := k.conn.Write(message); err != nil {
					return err
				}
				continue
			}
			k.buf = strconv.AppendInt(k.buf, int64(len(message)), 10)
			k.buf = append(append(k.buf, ' '), message...)
		}
	}
	if len(k.buf) > 0 {
		if _, err := k.conn.Write(k.buf); err != nil {
			return err
		}
	}
	return k.conn.drained(end)
}

func (k *syslogSink) drop(at time.Time, err error) error {
	err = errors.Join(err, k.Close())
	return &brokenError{at: at, err: fmt.Errorf("lost the syslog receiver: %w", err)}
}

// Close ends the connection.
func (k *syslogSink) Close() error {
	if k.conn == nil {
		return nil
	}
	err := k.conn.Close()
	k.conn = nil
	return err
}

func (k *syslogSink) dial(ctx context.Context) (*wire, error) {
	network := k.network
	if network == NetTLS {
		network = NetTCP
	}
	// The file is looked at first, so that a receiver that replaces this one from now on is noticed.
	at := place(k.address)
	raw, err := (&net.Dialer{}).DialContext(ctx, network, k.address)
	if err != nil {
		return nil, err
	}
	conn := raw
	if k.tls != nil {
		secure := tls.Client(raw, k.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		conn = secure
	}
	w, err := newWire(conn, raw, k.now)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if k.network == NetUnixgram {
		go w.probe(k.address, at)
	} else {
		go w.watch()
	}
	return w, nil
}

// wire is a connection that shows the amount of data that the other end has not taken yet, and the
// time of its end.
type wire struct {
	net.Conn
	socket syscall.RawConn
	now    func() time.Time
	// over is closed at the end of the connection, after at was set.
	over chan struct{}
	at   time.Time
}

func newWire(conn, raw net.Conn, now func() time.Time) (*wire, error) {
	sock, ok := raw.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("cannot use a connection of type %T", raw)
	}
	socket, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, socket: socket, now: now, over: make(chan struct{})}, nil
}

// watch notices the end of a connection that receives nothing.
func (w *wire) watch() {
	_, _ = io.Copy(io.Discard, w.Conn) // only its end matters
	w.at = w.now()
	close(w.over)
}

// probe notices that a receiver of datagrams is gone or was replaced: nobody answers at the path,
// or the file there is not the first one.
func (w *wire) probe(path string, first file) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, w.Conn) // nothing is expected
	}()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for there := true; there; {
		select {
		case <-closed:
			there = false
		case <-tick.C:
			there = answers(path) && place(path) == first
		}
	}
	w.at = w.now()
	close(w.over)
}

// answers reports whether a program receives datagrams at a path. It sends nothing.
func answers(path string) bool {
	conn, err := net.Dial(NetUnixgram, path)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// file identifies the file of a socket.
type file struct {
	major, minor uint32
	inode        uint64
	made         unix.StatxTimestamp
}

// place returns the file at a path. It is empty for a name that is no file.
func place(path string) (p file) {
	var s unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_SYNC_AS_STAT, unix.STATX_INO|unix.STATX_BTIME, &s) == nil {
		p.major, p.minor, p.inode, p.made = s.Dev_major, s.Dev_minor, s.Ino, s.Btime
	}
	return p
}

// deadline ends writing when ctx ends, and closes the channel that it returns.
func (w *wire) deadline(ctx context.Context) (end <-chan struct{}, free func()) {
	// Setting no deadline cannot fail on an open connection.
	_ = w.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = w.SetWriteDeadline(time.Unix(1, 0)) })
	return ctx.Done(), func() { stop() }
}

const (
	drainFirst = 100 * time.Microsecond
	drainMost  = 20 * time.Millisecond
)

// drained waits until the socket's send queue is empty: the reader on this machine has read it, or
// the peer has acknowledged it over TCP (unix(7), tcp(7), SIOCOUTQ).
func (w *wire) drained(end <-chan struct{}) error {
	wait := drainFirst
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-w.over:
			return io.ErrUnexpectedEOF
		case <-end:
			return fmt.Errorf("it does not take what was sent: %w", os.ErrDeadlineExceeded)
		}
		left, err := w.queued()
		if err != nil || left == 0 {
			return err
		}
		again.Reset(wait)
		wait = min(2*wait, drainMost)
	}
}

func (w *wire) queued() (left int, err error) {
	ctl := w.socket.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return left, errors.Join(ctl, err)
}

// journalSink sends entries to the systemd journal and waits until it has read them. It sends an
// entry that is too long for a datagram as a sealed memory file.
//
// It does not use github.com/coreos/go-systemd/v22/journal, which has one socket for the whole
// process and no time limit: a journal that has stopped would block the follower for ever.
type journalSink struct {
	path    string
	mapping *Mapping
	conn    *wire
}

// Send sends a page, with one entry for each record.
func (j *journalSink) Send(ctx context.Context, batch []Record) (Ack, error) {
	if err := j.send(ctx, batch); err != nil {
		return Ack{}, fmt.Errorf("cannot write to the journal: %w", errors.Join(err, j.Close()))
	}
	return Ack{}, nil
}

func (j *journalSink) send(ctx context.Context, batch []Record) error {
	if j.conn == nil {
		raw, err := (&net.Dialer{}).DialContext(ctx, NetUnixgram, j.path)
		if err != nil {
			return err
		}
		if j.conn, err = newWire(raw, raw, nil); err != nil {
			return errors.Join(err, raw.Close())
		}
	}
	end, free := j.conn.deadline(ctx)
	defer free()
	for i := range batch {
		entry := j.mapping.Journal(&batch[i])
		_, err := j.conn.Write(entry)
		if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) {
			err = j.pass(entry)
		}
		if err != nil {
			return err
		}
	}
	return j.conn.drained(end)
}

// pass sends an entry as a file.
func (j *journalSink) pass(entry []byte) (err error) {
	fd, err := unix.MemfdCreate(ProductName+"-journal", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "journal entry")
	defer f.Close()
	if _, err := f.Write(entry); err != nil {
		return err
	}
	// The journal reads only sealed files without a copy, and refuses others.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	rights := unix.UnixRights(int(f.Fd()))
	// Package net refuses rights on a connected socket.
	var sent error
	err = j.conn.socket.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), nil, rights, nil, 0)
		return !errors.Is(sent, unix.EAGAIN)
	})
	return errors.Join(err, sent)
}

// Close ends the connection.
func (j *journalSink) Close() error {
	if j.conn == nil {
		return nil
	}
	err := j.conn.Close()
	j.conn = nil
	return err
}
