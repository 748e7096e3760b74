// Package supervisor talks to the service manager that started the daemon: it takes the
// sockets that the manager opened (sd_listen_fds(3)), and reports the daemon's state
// (sd_notify(3)). systemd supports both, and other supervisors may support one. Without a
// service manager, every call does nothing.
//
// Use: call [Files] once, before anything else is opened, and make one [Manager] for the
// life of the process. Both read the environment of the process itself, in which a service
// manager puts its variables.
//
// The caller must report ready only when the daemon answers, and call [Manager.Alive] only
// after real work.
package supervisor

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Files returns the open files from the service manager, each under its given name. It
// removes the variables about them from the environment, so that no child process uses
// them. A second call finds none.
//
// Source: sd_listen_fds(3).
func Files() []*os.File { return activation.Files(true) }

// maxStatus bounds a status line in bytes.
const maxStatus = 512

// Manager is the service manager, or nobody. The nil Manager is nobody too.
type Manager struct {
	log *zap.Logger
	// patience is how long the daemon may stay silent; zero means forever.
	patience time.Duration
}

// New finds the service manager. It removes the watchdog's variables from the environment,
// so that no child process uses them.
//
// Source: sd_watchdog_enabled(3).
func New(log *zap.Logger) *Manager {
	patience, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		log.Warn("cannot read what the service manager says of its watchdog: it is not fed", zap.Error(err))
	}
	return &Manager{log: log, patience: patience}
}

// Patience is how long the service manager waits for a sign of life before it acts, or zero
// if it does not. A sign is due twice within it.
func (m *Manager) Patience() time.Duration {
	if m == nil {
		return 0
	}
	return m.patience
}

// Ready reports that the daemon answers, or has finished reloading.
func (m *Manager) Ready(status string) { m.tell(daemon.SdNotifyReady, statusLine(status)) }

// Status reports the daemon's state in one line.
func (m *Manager) Status(status string) { m.tell(statusLine(status)) }

// Reloading reports that the daemon loads another configuration. [Manager.Ready] ends it.
func (m *Manager) Reloading() {
	words := []string{daemon.SdNotifyReloading, statusLine("reloading")}
	// The time identifies this reload.
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		words = append(words, fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)))
	}
	m.tell(words...)
}

// Stopping reports that the daemon ends.
func (m *Manager) Stopping(status string) { m.tell(daemon.SdNotifyStopping, statusLine(status)) }

// Alive is a sign of life.
func (m *Manager) Alive() { m.tell(daemon.SdNotifyWatchdog) }

// Broken asks for an immediate restart, without waiting for the watchdog. Without a
// watchdog, it only reports the reason.
func (m *Manager) Broken(status string) {
	if m.Patience() > 0 {
		m.tell("WATCHDOG=trigger", statusLine(status))
		return
	}
	m.Status(status)
}

// statusLine makes a status one line of UTF-8, as the protocol requires.
func statusLine(status string) string {
	status = strings.Join(strings.Fields(strings.ToValidUTF8(status, "\ufffd")), " ")
	if len(status) > maxStatus {
		status = strings.ToValidUTF8(status[:maxStatus-len("…")], "") + "…"
	}
	return "STATUS=" + status
}

// tell sends words, each a line of one message. It only logs a failure.
func (m *Manager) tell(words ...string) {
	if m == nil {
		return
	}
	if _, err := daemon.SdNotify(false, strings.Join(words, "\n")); err != nil {
		m.log.Warn("cannot tell the service manager", zap.Strings("words", words), zap.Error(err))
	}
}
