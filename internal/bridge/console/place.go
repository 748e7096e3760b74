package console

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// Listener is a port or a socket.
type Listener = net.Listener

// Place is where the page is: a name that no other page can know, and a port. A passkey is bound to
// the name, and counts on this port alone (approvals.origins), so both are kept.
type Place struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// Origin is the page's origin as browsers write it.
func (p Place) Origin() string { return "http://" + p.Authority() }

// Authority is the name and the port.
func (p Place) Authority() string { return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))) }

// Ports are chosen between these, below the range from which Linux gives outgoing connections
// theirs.
const (
	lowestPort = 20000
	morePorts  = 12000
	tries      = 64
)

// domain makes browsers look for a name on this machine (RFC 6761, 6.3).
const domain = ".localhost"

// OpenPlace reads the place from a file, or makes one. The file is the user's alone.
func OpenPlace(ctx context.Context, path string) (Place, error) {
	fail := func(err error) (Place, error) {
		return Place{}, fmt.Errorf("cannot tell the console's address: %w", err)
	}
	text, err := durable.ReadUpTo(path, 4096)
	if err == nil {
		p, err := parsePlace(text)
		if err != nil {
			return fail(fmt.Errorf("%s: %w; remove the file to have another address made, and enrol passkeys again", path, err))
		}
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	p, err := newPlace(ctx)
	if err != nil {
		return fail(err)
	}
	if text, err = json.Marshal(p); err != nil {
		return fail(err)
	}
	part := path + ".part-" + p.Host
	if err := durable.Create(part, 0o600, append(text, '\n')); err != nil {
		return fail(err)
	}
	// Two consoles may begin at once: the first one's address counts.
	err = os.Link(part, path)
	if err = errors.Join(err, os.Remove(part)); errors.Is(err, fs.ErrExist) {
		return OpenPlace(ctx, path)
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fail(err)
	}
	return p, nil
}

// parsePlace reads the file of a place.
func parsePlace(text []byte) (p Place, err error) {
	if err := json.Unmarshal(text, &p, json.RejectUnknownMembers(true)); err != nil {
		return p, err
	}
	name, ok := strings.CutSuffix(p.Host, domain)
	raw, err := hex.DecodeString(name)
	if !ok || err != nil || len(raw) != 8 || name != strings.ToLower(name) || p.Port == 0 {
		return p, errors.New("it has no name of 16 hexadecimal digits below .localhost with a port")
	}
	return p, nil
}

// newPlace makes a name, and finds a port at which nobody listens.
func newPlace(ctx context.Context) (Place, error) {
	var p Place
	name := make([]byte, 8)
	_, _ = rand.Read(name) // it never fails
	p.Host = hex.EncodeToString(name) + domain
	var failed error
	for range tries {
		n, err := rand.Int(rand.Reader, big.NewInt(morePorts))
		if err != nil {
			return p, err
		}
		p.Port = lowestPort + uint16(n.Int64())
		listeners, err := p.Listen(ctx)
		for _, l := range listeners {
			_ = l.Close() // it was only tried
		}
		if err == nil {
			return p, nil
		}
		failed = err
	}
	return p, fmt.Errorf("no port is free: %w", failed)
}

// Listen opens the port, over IPv4 and, if the machine has it, IPv6. Browsers may use either: on one
// that is left free, another program could answer under the console's name.
func (p Place) Listen(ctx context.Context) (list []net.Listener, err error) {
	for _, address := range p.Addresses() {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			for _, l := range list {
				_ = l.Close() // the error says more
			}
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("another program listens at %s: end it (ss -ltnp 'sport = :%d' names it)", address, p.Port)
			}
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// Addresses are where the page listens: the port at each address of the loopback interface that
// this machine has.
func (p Place) Addresses() []string {
	port := strconv.Itoa(int(p.Port))
	list := []string{net.JoinHostPort("127.0.0.1", port)}
	if l, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback}); err == nil {
		_ = l.Close() // it was only tried
		list = append(list, net.JoinHostPort("::1", port))
	}
	return list
}
