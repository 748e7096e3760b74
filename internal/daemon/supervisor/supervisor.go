// Package supervisor talks to the service manager that started the daemon: it
// takes the sockets that were opened before (sd_listen_fds(3)), and tells how
// the daemon is (sd_notify(3)). systemd speaks both; other supervisors may
// speak one, and without any of them every call here does nothing.
//
// Use: [Files] once, before anything else is opened, and one [Manager] for the
// life of the process. Both read the environment of the process itself, since
// that is where a service manager puts its words.
//
// The caller's duty: say ready after the daemon answers and not before, and
// [Manager.Alive] only for work that was really done.
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

// Files returns the open files that the service manager passed to this process,
// each under the name it was given, and removes the words about them from the
// environment, so that no child takes them for its own. A second call finds
// none.
//
// Source: sd_listen_fds(3).
func Files() []*os.File { return activation.Files(true) }

// maxStatus bounds a status line in bytes.
const maxStatus = 512

// Manager is the service manager, or nobody. The nil Manager is nobody too.
type Manager struct {
	log *zap.Logger
	// patience is how long the daemon may stay silent; zero if nobody minds.
	patience time.Duration
}

// New finds out who listens. The variables of the watchdog are removed from the
// environment, so that no child takes them for its own.
//
// Source: sd_watchdog_enabled(3).
func New(log *zap.Logger) *Manager {
	patience, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		log.Warn("cannot read what the service manager says of its watchdog: it is not fed", zap.Error(err))
	}
	return &Manager{log: log, patience: patience}
}

// Patience is how long the service manager waits for a sign of life before it
// acts, zero where it does not wait for one. A sign is due twice within it.
func (m *Manager) Patience() time.Duration {
	if m == nil {
		return 0
	}
	return m.patience
}

// Ready says that the daemon answers, or has finished reloading.
func (m *Manager) Ready(status string) { m.tell(daemon.SdNotifyReady, statusLine(status)) }

// Status says in one line how the daemon is.
func (m *Manager) Status(status string) { m.tell(statusLine(status)) }

// Reloading says that the daemon takes another configuration. [Manager.Ready]
// ends it.
func (m *Manager) Reloading() {
	words := []string{daemon.SdNotifyReloading, statusLine("reloading")}
	// What began later than this is another reload.
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		words = append(words, fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)))
	}
	m.tell(words...)
}

// Stopping says that the daemon ends.
func (m *Manager) Stopping(status string) { m.tell(daemon.SdNotifyStopping, statusLine(status)) }

// Alive is a sign of life.
func (m *Manager) Alive() { m.tell(daemon.SdNotifyWatchdog) }

// Broken asks to be ended and started again, now and not when patience is out.
// Without a watchdog it says why alone.
func (m *Manager) Broken(status string) {
	if m.Patience() > 0 {
		m.tell("WATCHDOG=trigger", statusLine(status))
		return
	}
	m.Status(status)
}

// statusLine makes a status one line of UTF-8, as the protocol wants it.
func statusLine(status string) string {
	status = strings.Join(strings.Fields(strings.ToValidUTF8(status, "\ufffd")), " ")
	if len(status) > maxStatus {
		status = strings.ToValidUTF8(status[:maxStatus-len("…")], "") + "…"
	}
	return "STATUS=" + status
}

// tell sends words, each a line of one message. That nobody hears them is no
// reason for the daemon to do anything else.
func (m *Manager) tell(words ...string) {
	if m == nil {
		return
	}
	if _, err := daemon.SdNotify(false, strings.Join(words, "\n")); err != nil {
		m.log.Warn("cannot tell the service manager", zap.Strings("words", words), zap.Error(err))
	}
}
