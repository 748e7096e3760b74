package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"

	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/running"
	"github.com/openclawos/ocipd/internal/ipc"
	"go.uber.org/zap"
)

// sockets are those where apps and operators connect.
type sockets struct {
	cfg    *config.Config
	getenv func(string) string
	log    *zap.Logger

	app, operator string
	// unused is the path of a service manager's unused socket, or "".
	unused string
	// apps and operators are open from the first step of the start on.
	apps, operators *net.UnixListener
}

// open takes the configured sockets, or else those that a service manager passed, or
// else those at the default place.
//
// Source: protocol, section 1.
func (s *sockets) open(files []*os.File, ends *endings) (err error) {
	mode := fs.FileMode(0o600)
	if len(s.cfg.IPC.AllowUIDs) > 0 {
		// Other users that may connect must be able to reach the check of users.
		mode = 0o666
	}
	passed, err := ipc.TakePassed(files)
	if err != nil {
		return err
	}
	if wanted := config.ConfiguredSocket(s.cfg, s.getenv); passed != nil && wanted != "" && !fileowner.Same(wanted, passed.Apps.Addr().String()) {
		s.warnOfUnused(passed, wanted)
		if err := passed.Close(); err != nil {
			return fmt.Errorf("cannot close the sockets that were passed: %w", err)
		}
		passed = nil
	}
	if passed != nil {
		return s.use(passed, mode, ends)
	}
	claim, err := ipc.ClaimSockets(s.app, s.operator)
	if err != nil {
		return err
	}
	ends.add("the claim of the sockets", claim.Release)
	if s.apps, err = claim.Listen(s.app, mode); err != nil {
		return err
	}
	ends.add("the apps' socket", closer(s.apps))
	if s.operators, err = claim.Listen(s.operator, 0o600); err != nil {
		return err
	}
	ends.add("the operators' socket", closer(s.operators))
	return nil
}

// warnOfUnused warns that the sockets of a service manager are unused. That is no reason
// not to start, because apps that know the configured place find the daemon there. But the
// service manager keeps listening, and connections to its sockets never get an answer.
func (s *sockets) warnOfUnused(passed *ipc.Passed, wanted string) {
	by := s.cfg.Source("ipc.socket")
	s.unused = passed.Apps.Addr().String()
	s.log.Error("the sockets that were passed are not used: another one is configured, and whoever connects to those is never answered",
		zap.String("passed", s.unused), zap.String("configured", wanted), zap.String("by", by),
		zap.String("toDo", "take that setting away to use the sockets that were passed, or end them: systemctl --user disable --now ocipd.socket"))
}

// use uses the sockets of a service manager, which keeps them.
func (s *sockets) use(passed *ipc.Passed, mode fs.FileMode, ends *endings) error {
	ends.add("the apps' socket", closer(passed.Apps))
	ends.add("the operators' socket", closer(passed.Operators))
	claim, err := passed.Claim(mode)
	if err != nil {
		return err
	}
	ends.add("the claim of the sockets", claim.Release)
	s.app, s.operator = passed.Apps.Addr().String(), passed.Operators.Addr().String()
	if info, err := os.Lstat(s.app); err == nil && mode&^info.Mode().Perm() != 0 {
		s.log.Warn("users that ipc.allow_uids lists cannot connect: the mode of the passed socket keeps them out",
			zap.String("socket", s.app), zap.Stringer("mode", info.Mode().Perm()))
	}
	s.apps, s.operators = passed.Apps, passed.Operators
	return nil
}

// publish writes the place file, by which commands find the daemon if the
// configuration file is broken. Otherwise they ask for --socket then.
func (s *sockets) publish(p places, ends *endings) error {
	dir := config.RunningPath(s.app, s.getenv)
	if dir == "" {
		return nil
	}
	r := running.Daemon{Config: cmp.Or(s.cfg.File, config.FilePath(s.getenv)), Places: map[string]string{
		"ipc.socket": s.app, "store.url": p.database, "audit.mirror": p.mirror,
		"audit.keys": p.keys(), "audit.checkpoints": p.checkpoints(),
	}}
	remove, err := r.Leave(dir)
	if err != nil {
		s.log.Warn("commands will need --socket while the configuration file is broken", zap.Error(err))
		return nil
	}
	ends.add("the place for commands", remove)
	return nil
}

// closer closes a listener that the server may have closed already.
func closer(l net.Listener) func() error {
	return func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// allows reports whether a user may connect: the daemon's own user, and for apps the users
// in the configuration.
func (s *sockets) allows(uid uint32, operator bool) bool {
	return uid == uint32(os.Geteuid()) || !operator && slices.Contains(s.cfg.IPC.AllowUIDs, int(uid))
}
