package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/zap"
)

// Names of the Desktop Notifications Specification, version 1.2.
const (
	serviceName = "org.freedesktop.Notifications"
	servicePath = "/org/freedesktop/Notifications"
)

const (
	desktopTimeout = 5 * time.Second
	// maxShown bounds the notifications that can still be replaced or
	// withdrawn. The oldest is forgotten first, and stays on the screen.
	maxShown = 256
)

// DesktopOptions are what a [Desktop] is given from outside.
type DesktopOptions struct {
	// Getenv reads DBUS_SESSION_BUS_ADDRESS and XDG_RUNTIME_DIR.
	Getenv func(string) string
	// Timeout bounds one call, 0 is 5 s.
	Timeout time.Duration
	Log     *zap.Logger
}

// Desktop shows notices as desktop notifications over the session bus. It
// connects when it first has something to show and again when the bus went
// away meanwhile. It starts no bus; the bus may start the notification service.
type Desktop struct {
	getenv  func(string) string
	timeout time.Duration
	log     *zap.Logger

	closing context.Context
	quit    context.CancelFunc
	// turn is held, by filling it, while the fields below are used. A lock
	// could not be given up on when the time is over.
	turn chan struct{}
	bus  *bus // nil before the first use
	// busID is the id the last bus gave itself, new with each of its starts.
	busID string
	shown map[string]shown
	order []string // keys of shown, oldest first
}

// shown is a notification on the screen.
type shown struct {
	// owner is the unique name of the service that shows it. Its ids mean
	// nothing to a service started later.
	owner string
	id    uint32
}

// bus is one connection.
type bus struct {
	conn *dbus.Conn
	// raw is the socket of conn. Closing it is the one thing that ends a
	// write to a bus that does not read.
	raw net.Conn
}

// NewDesktop makes a Desktop. It does not connect yet.
func NewDesktop(o DesktopOptions) *Desktop {
	d := &Desktop{
		getenv: o.Getenv, timeout: o.Timeout, log: o.Log,
		turn: make(chan struct{}, 1), shown: make(map[string]shown),
	}
	if d.timeout <= 0 {
		d.timeout = desktopTimeout
	}
	d.closing, d.quit = context.WithCancel(context.Background())
	return d
}

// Notify shows a notice, in place of an earlier one with the same ID. It takes
// no longer than the timeout. A notification that the service shows only after
// that is out of reach. The error is [ErrNoDesktop] where there is nothing to
// show it on, which is logged at debug level alone.
func (d *Desktop) Notify(ctx context.Context, n Notice) error {
	n = n.clean()
	err := d.use(ctx, func(ctx context.Context) error {
		return d.exchange(ctx, func(b *bus) error { return d.show(ctx, b, n) })
	})
	return d.report(err, "cannot show a desktop notification", n.ID)
}

// Withdraw closes the notification of a notice, if it is still on the screen.
// It takes no longer than the timeout.
func (d *Desktop) Withdraw(ctx context.Context, id string) error {
	id = cleanID(id)
	err := d.use(ctx, func(ctx context.Context) error {
		if _, ok := d.shown[id]; !ok {
			return nil
		}
		return d.exchange(ctx, func(b *bus) error { return d.take(ctx, b, id) })
	})
	return d.report(err, "cannot withdraw a desktop notification", id)
}

// Close ends a call under way and the connection. What is on the screen stays
// there: it still waits.
func (d *Desktop) Close() {
	d.quit()
	d.turn <- struct{}{}
	d.hangUp()
	<-d.turn
}

// report logs an error and returns it in words.
func (d *Desktop) report(err error, what, id string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNoDesktop):
		d.log.Debug(what, zap.String("notice", id), zap.Error(err))
	case !errors.Is(err, ErrClosed):
		d.log.Warn(what, zap.String("notice", id), zap.Error(err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// use runs what with the turn, within the timeout.
func (d *Desktop) use(ctx context.Context, what func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.closing, func() { cancel(ErrClosed) })()
	ctx, stop := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("no answer within %s", d.timeout))
	defer stop()
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.closing.Err() != nil {
		return ErrClosed
	}
	err := what(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // the rest of err follows from it
	}
	return err
}

// exchange runs what on a connection. One that was idle may turn out to be
// dead, in which case a fresh one is tried.
func (d *Desktop) exchange(ctx context.Context, what func(*bus) error) error {
	for {
		fresh, err := d.connect(ctx)
		if err != nil {
			return err
		}
		raw := d.bus.raw
		stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
		err = what(d.bus)
		stop()
		if err == nil || errors.Is(err, ErrNoDesktop) || errors.Is(err, errOddAnswer) {
			return err
		}
		if refused := refusal(err); refused != "" {
			// Not the text of the answer, which may quote the notice.
			return fmt.Errorf("the answer is %s", refused)
		}
		d.hangUp()
		if fresh || ctx.Err() != nil {
			return err
		}
	}
}

// connect makes sure that there is a connection, and says whether it is new.
func (d *Desktop) connect(ctx context.Context) (fresh bool, err error) {
	if d.bus != nil && d.bus.conn.Connected() {
		return false, nil
	}
	d.hangUp()
	sockets, err := busSockets(d.getenv)
	if err != nil {
		return false, err
	}
	var failed error
	for _, socket := range sockets {
		b, id, err := dial(ctx, socket)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if id != d.busID {
			// Another bus: its services know nothing of what was shown, and
			// their names may be those of former ones.
			d.busID, d.order = id, nil
			clear(d.shown)
		}
		d.bus = b
		return true, nil
	}
	return false, failed
}

// hangUp ends the connection, if there is one.
func (d *Desktop) hangUp() {
	if d.bus != nil {
		d.bus.hangUp()
		d.bus = nil
	}
}

func (b *bus) hangUp() {
	// First, for conn waits for a write to end before it closes anything.
	_ = b.raw.Close()
	_ = b.conn.Close()
}

// dial connects to a bus and returns the id it gave itself. The socket is
// dialled here and not by the library, which would take a while where the bus
// does not answer, and would let anybody on the bus send file descriptors.
func dial(ctx context.Context, socket string) (b *bus, id string, err error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w: %w", ErrNoDesktop, err)
		}
		return nil, "", err
	}
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn, err := dbus.NewConn(raw)
	if err != nil {
		return nil, "", errors.Join(err, raw.Close())
	}
	b = &bus{conn, raw}
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = conn.Hello()
	}
	if err == nil {
		err = fetch(conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetId", 0), &id)
	}
	if err != nil {
		b.hangUp()
		return nil, "", fmt.Errorf("cannot introduce itself to the session bus: %w", err)
	}
	return b, id, nil
}

// show sends a notice to the notification service. Where that ends between two
// steps, the next one is asked once.
func (d *Desktop) show(ctx context.Context, b *bus, n Notice) error {
	owner, id, err := d.send(ctx, b, n)
	if serviceGone(err) {
		owner, id, err = d.send(ctx, b, n)
	}
	if err == nil && n.ID != "" {
		d.remember(n.ID, shown{owner, id})
	}
	return err
}

func (d *Desktop) send(ctx context.Context, b *bus, n Notice) (owner string, id uint32, err error) {
	if owner, err = b.owner(ctx); err != nil {
		return "", 0, err
	}
	var replaces uint32
	if s, ok := d.shown[n.ID]; ok && s.owner == owner {
		replaces = s.id
	}
	title := n.Title
	if title == "" {
		title = "ocipd"
	}
	urgency, expires := byte(1), int32(-1) // -1: as the service thinks best
	switch n.Urgency {
	case Low:
		urgency = 0
	case Critical:
		urgency, expires = 2, 0 // 0: never
	}
	call := b.service(owner).CallWithContext(ctx, serviceName+".Notify", dbus.FlagNoAutoStart,
		"ocipd", replaces, "", title, escapeMarkup(n.Body), []string{},
		map[string]dbus.Variant{"urgency": dbus.MakeVariant(urgency)}, expires)
	err = fetch(call, &id)
	return owner, id, err
}

// take closes the notification of a notice. Whatever the service answers, it
// shows it no more: the person may have closed it, or the service ended.
func (d *Desktop) take(ctx context.Context, b *bus, id string) error {
	s, ok := d.shown[id]
	if !ok {
		return nil // it went with its bus
	}
	err := b.service(s.owner).CallWithContext(ctx, serviceName+".CloseNotification", dbus.FlagNoAutoStart, s.id).Err
	if refused := refusal(err); refused != "" {
		d.log.Debug("a desktop notification was closed already", zap.String("notice", id), zap.String("answer", refused))
		err = nil
	}
	if err == nil {
		d.forget(id)
	}
	return err
}

func (d *Desktop) remember(id string, s shown) {
	d.forget(id)
	if len(d.order) == maxShown {
		d.forget(d.order[0])
	}
	d.shown[id] = s
	d.order = append(d.order, id)
}

func (d *Desktop) forget(id string) {
	if _, ok := d.shown[id]; !ok {
		return
	}
	delete(d.shown, id)
	for i, known := range d.order {
		if known == id {
			d.order = append(d.order[:i], d.order[i+1:]...)
			return
		}
	}
}

// owner returns the unique name of the notification service, and has the bus
// start one if it can. Calls go to that name, so that an id never reaches
// another service than the one it came from.
func (b *bus) owner(ctx context.Context) (owner string, err error) {
	ask := func() error {
		return fetch(b.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, serviceName), &owner)
	}
	if err = ask(); refusal(err) != errNoOwner {
		return owner, err
	}
	err = b.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.StartServiceByName", 0, serviceName, uint32(0)).Err
	if refusal(err) == errNoService {
		return "", fmt.Errorf("%w: no notification service", ErrNoDesktop)
	}
	if err != nil {
		return "", err
	}
	err = ask()
	return owner, err
}

func (b *bus) service(owner string) dbus.BusObject { return b.conn.Object(owner, servicePath) }

// Names of errors, D-Bus Specification, "Message Bus Messages".
const (
	errNoOwner   = "org.freedesktop.DBus.Error.NameHasNoOwner"
	errNoService = "org.freedesktop.DBus.Error.ServiceUnknown"
	errNoReply   = "org.freedesktop.DBus.Error.NoReply"
)

// errOddAnswer is an answer that another version of a protocol would give.
var errOddAnswer = errors.New("the answer has another form than it should")

// fetch reads the one value of an answer.
func fetch(call *dbus.Call, into any) error {
	if call.Err != nil {
		return call.Err
	}
	if call.Store(into) != nil {
		return errOddAnswer
	}
	return nil
}

// refusal returns the name of the D-Bus error that was the answer to a call,
// "" if there was no such answer.
func refusal(err error) string {
	if answer, ok := errors.AsType[dbus.Error](err); ok {
		return answer.Name
	}
	return ""
}

// serviceGone reports whether the service ended before it answered.
func serviceGone(err error) bool {
	switch refusal(err) {
	case errNoOwner, errNoService, errNoReply:
		return true
	}
	return false
}

// escapeMarkup writes text so that it stands for itself in the body of a
// notification, which is markup.
func escapeMarkup(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
