// Package natsline is the line of a host over a NATS broker. It carries frames between the operator
// socket of a daemon and the broker. Of the host's keys it has the one that logs in there. It believes
// the broker nothing, as frames prove themselves: see internal/fleet/frame.
//
// A frame goes to the other host directly, as a request, if that host is there. If it is not, or does
// not answer, the frame goes into a stream, from which the other host takes it later. The stream has
// a few slots for each pair of hosts, and a slot holds one frame, so that a repetition never piles
// up. Nobody believes the broker's answers: the daemon offers a message until it has the receipt, and
// this package forgets what it carries when a connection ends.
//
// Subjects, where TO and FROM are mailboxes (see [roster.Host.Mailbox]):
//
//	d.TO.FROM           a request; its answer is the receipt
//	m.TO.FROM.SLOT      the stream; SLOT is the number of a message modulo 64, with r before it for a receipt
//	_I.OWN.>            answers to this host
package natsline

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/lane"
)

// stream is the name of the stream of an account.
const stream = "MSG"

// The subjects of a host.
func direct(to, from string) string       { return "d." + to + "." + from }
func stored(to, from, slot string) string { return "m." + to + "." + from + "." + slot }
func answers(own string) string           { return "_I." + own }
func nextOf(own string) string            { return "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + own }

// slot is the slot of a frame in the stream. Beats have one of their own, so that those to a host
// that is away take no message's.
func slot(kind frame.Kind, seq uint64) string {
	s := strconv.FormatUint(seq%lane.Window, 10)
	switch kind {
	case frame.Receipt:
		return "r" + s
	case frame.Beat:
		return "b"
	case frame.Message, frame.Void:
	}
	return s
}

// slots are all slots of a pair of hosts.
func slots() []string {
	all := []string{slot(frame.Beat, 0)}
	for seq := range uint64(lane.Window) {
		all = append(all, slot(frame.Message, seq), slot(frame.Receipt, seq))
	}
	return all
}

// PublicKey is the public half of the key of a line, as configurations of brokers have it.
func PublicKey(key ed25519.PublicKey) (string, error) {
	text, err := nkeys.Encode(nkeys.PrefixByteUser, key)
	return string(text), err
}

// identity logs in to a broker with a key.
func identity(key ed25519.PrivateKey) (nats.Option, error) {
	pair, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, key.Seed())
	if err != nil {
		return nil, fmt.Errorf("cannot use the key of the line: %w", err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("cannot use the key of the line: %w", err)
	}
	return nats.Nkey(public, pair.Sign), nil
}

// The wait for the broker at the beginning, and how often it is asked whether it is still there.
const (
	connectWait = 10 * time.Second
	pingEvery   = 20 * time.Second
	pingsLost   = 2
)

// connect connects to a broker that is new enough. The connection is not made again when it ends, and
// then closes the channel. Trouble is told of errors that end nothing.
func connect(url, ca, name string, key ed25519.PrivateKey, trouble func(error)) (*nats.Conn, <-chan struct{}, error) {
	login, err := identity(key)
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	options := []nats.Option{
		login, nats.Name(name), nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.Timeout(connectWait),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsLost),
		nats.ClosedHandler(func(*nats.Conn) { close(ended) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { trouble(err) }),
	}
	if ca != "" {
		options = append(options, nats.RootCAs(ca))
	}
	nc, err := nats.Connect(url, options...)
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return nil, nil, fmt.Errorf("the broker at %s does not know the key of this host: its configuration is of a roster without it (ocipd fleet broker): %w", url, err)
	case err != nil:
		return nil, nil, fmt.Errorf("cannot connect to the broker at %s: %w", url, err)
	}
	if err := newEnough(nc.ConnectedServerVersion()); err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, ended, nil
}

// errOld means that the broker is too old to be used.
var errOld = errors.New("want nats-server 2.12 or newer")

var versionForm = regexp.MustCompile(`^v?(\d{1,6})\.(\d{1,6})\.`)

// newEnough refuses a broker older than 2.12, whose streams have other rules for slots.
func newEnough(version string) error {
	parts := versionForm.FindStringSubmatch(version)
	if parts == nil {
		return fmt.Errorf("cannot use a broker of version %.64q: %w", version, errOld)
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	if major < 2 || major == 2 && minor < 12 {
		return fmt.Errorf("cannot use a broker of version %.64q: %w", version, errOld)
	}
	return nil
}
