package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	desktop "github.com/esiqveland/notify"
	"github.com/godbus/dbus/v5"
	lru "github.com/hashicorp/golang-lru/v2"
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

// DesktopOptions are the inputs of a [Desktop].
type DesktopOptions struct {
	// Getenv reads DBUS_SESSION_BUS_ADDRESS and XDG_RUNTIME_DIR.
	Getenv func(string) string
	// Timeout bounds one call, 0 is 5 s.
	Timeout time.Duration
	Log     *zap.Logger
}

// Desktop shows notices as desktop notifications over the session bus, each over
// a connection of its own, as notify-send does. It starts no bus; the bus may
// start the notification service.
type Desktop struct {
	getenv  func(string) string
	timeout time.Duration
	log     *zap.Logger

	closing context.Context
	quit    context.CancelFunc

	// mu guards service: the bus and the process on it that issued the ids in shown, which
	// are by the IDs of notices. They mean nothing to a service that starts later.
	mu      sync.Mutex
	service string
	shown   *lru.Cache[string, uint32]
}

// NewDesktop makes a Desktop. It does not connect yet.
func NewDesktop(o DesktopOptions) *Desktop {
	d := &Desktop{getenv: o.Getenv, timeout: o.Timeout, log: o.Log}
	if d.timeout <= 0 {
		d.timeout = desktopTimeout
	}
	d.shown, _ = lru.New[string, uint32](maxShown) // fails for a size below 1 alone
	d.closing, d.quit = context.WithCancel(context.Background())
	return d
}

// Notify shows a notice, in place of an earlier one with the same ID, within the timeout.
// It cannot withdraw a notification that the service shows only later, and loses one that
// the service got while it ended. The error is [ErrNoDesktop] if nothing can show it, which
// is logged only at debug level.
func (d *Desktop) Notify(ctx context.Context, n Notice) error {
	n = n.clean()
	err := d.call(ctx, func(ctx context.Context, conn *dbus.Conn) error {
		if err := d.meet(ctx, conn, true); err != nil {
			return err
		}
		note := desktop.Notification{AppName: "ocipd", Summary: n.Title, Body: escapeMarkup(n.Body), ExpireTimeout: desktop.ExpireTimeoutSetByNotificationServer}
		note.ReplacesID, _ = d.shown.Get(n.ID)
		if n.Title == "" {
			note.Summary = "ocipd"
		}
		switch n.Urgency {
		case Low:
			note.SetUrgency(desktop.UrgencyLow)
		case Critical:
			note.SetUrgency(desktop.UrgencyCritical)
			note.ExpireTimeout = desktop.ExpireTimeoutNever
		default:
			note.SetUrgency(desktop.UrgencyNormal)
		}
		id, err := desktop.SendNotification(conn, note)
		if err == nil && n.ID != "" {
			d.shown.Add(n.ID, id)
		}
		return err
	})
	return d.report(err, "cannot show a desktop notification", n.ID)
}

// Withdraw closes the notification of a notice, if it is still shown, within the timeout.
func (d *Desktop) Withdraw(ctx context.Context, id string) error {
	id = cleanID(id)
	if !d.shown.Contains(id) && d.closing.Err() == nil {
		return nil
	}
	err := d.call(ctx, func(ctx context.Context, conn *dbus.Conn) error {
		if err := d.meet(ctx, conn, false); err != nil {
			return err
		}
		shown, ok := d.shown.Peek(id)
		if !ok {
			return nil // it went with its service
		}
		err := conn.Object(serviceName, servicePath).CallWithContext(ctx, serviceName+".CloseNotification", dbus.FlagNoAutoStart, shown).Err
		// Whatever the answer, the service does not show it any more: the person may have closed it.
		if refused := refusal(err); refused != "" {
			d.log.Debug("a desktop notification was closed already", zap.String("notice", id), zap.String("answer", refused))
			err = nil
		}
		if err == nil {
			d.shown.Remove(id)
		}
		return err
	})
	return d.report(err, "cannot withdraw a desktop notification", id)
}

// Close ends a call in progress. Shown notifications stay, because their requests still wait.
func (d *Desktop) Close() { d.quit() }

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

// call calls what with a connection to the bus, within the timeout.
func (d *Desktop) call(ctx context.Context, what func(context.Context, *dbus.Conn) error) error {
	if d.closing.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.closing, func() { cancel(ErrClosed) })()
	ctx, stop := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("no answer within %s", d.timeout))
	defer stop()
	raw, err := d.dial(ctx)
	if err != nil {
		return err
	}
	// Closing the socket ends reading and writing, whatever the library waits for; closing
	// only the connection waits for a write to end.
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn, err := dbus.NewConn(raw)
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	defer func() { _, _ = raw.Close(), conn.Close() }()
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = conn.Hello()
	}
	if err != nil {
		err = fmt.Errorf("cannot introduce itself to the session bus: %w", err)
	} else {
		err = what(ctx, conn)
	}
	refused := refusal(err)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx) // the rest of err follows from it
	case refused == errNoService:
		return fmt.Errorf("%w: no notification service", ErrNoDesktop)
	case refused != "":
		// Not the text of the answer, which may quote the notice.
		return fmt.Errorf("the answer is %s", refused)
	}
	return err
}

// dial connects to the bus. It dials the socket itself, because the library would let
// anybody on the bus send file descriptors.
func (d *Desktop) dial(ctx context.Context) (raw net.Conn, err error) {
	sockets, err := busSockets(d.getenv)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, socket := range sockets {
		if raw, err = new(net.Dialer).DialContext(ctx, "unix", socket); err == nil {
			return raw, nil
		}
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w: %w", ErrNoDesktop, err)
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// meet finds the service that shows notifications, and forgets the shown ones if it is
// another service. With start, the bus starts one if there is none.
func (d *Desktop) meet(ctx context.Context, conn *dbus.Conn, start bool) error {
	var bus, owner string
	ask := func(method string, answer any, args ...any) error {
		return conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus."+method, 0, args...).Store(answer)
	}
	// The id changes with each start of a bus, when names of connections begin anew.
	if err := ask("GetId", &bus); err != nil {
		return err
	}
	err := ask("GetNameOwner", &owner, serviceName)
	if refusal(err) == errNoOwner && start {
		if err := ask("StartServiceByName", new(uint32), serviceName, uint32(0)); err != nil {
			return err
		}
		err = ask("GetNameOwner", &owner, serviceName)
	}
	if err != nil && refusal(err) != errNoOwner {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if service := bus + owner; service != d.service {
		d.service = service
		d.shown.Purge()
	}
	return nil
}

// Names of errors, D-Bus Specification, "Message Bus Messages".
const (
	errNoOwner   = "org.freedesktop.DBus.Error.NameHasNoOwner"
	errNoService = "org.freedesktop.DBus.Error.ServiceUnknown"
)

// refusal returns the name of the D-Bus error in the answer to a call, or "".
func refusal(err error) string {
	if answer, ok := errors.AsType[dbus.Error](err); ok {
		return answer.Name
	}
	return ""
}

// escapeMarkup escapes text for the body of a notification, which is markup.
func escapeMarkup(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
