package service

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"golang.org/x/sys/unix"
)

// An upgrade replaces the program of all users at once, but each user decides about their
// own configuration. The package and make install keep the former program. If a service's
// configuration lacks lines that this version requires, the service continues with the
// former program until its user has written them.
const (
	// formerSuffix ends the name of the former program, which is beside this one.
	formerSuffix = ".former"
	// packagedProgram is the package's program, and packagedFormer its former program.
	packagedProgram = "/usr/bin/ocipd"
	packagedFormer  = "/usr/libexec/ocipd/ocipd" + formerSuffix
	// FormerMark is set in the environment of a former program, which does not look for
	// another one. It is not an OCIPD_… variable, because those are configuration keys.
	FormerMark = "FORMER_OCIPD"
)

// formerOf is the former version of a program, or "".
func formerOf(program string) string {
	path := program + formerSuffix
	if program == packagedProgram {
		path = packagedFormer
	}
	if unix.Access(path, unix.X_OK) != nil {
		return ""
	}
	return path
}

// lacking counts the missing lines without which this version does not start.
func lacking(cfg *config.Config) int {
	lacks, err := kernelconfig.Undeclared(cfg, nil)
	if err != nil {
		return 0
	}
	return len(lacks)
}

// GoOnWithFormer executes the former program if a service is started with a configuration
// that only the former program accepts. It does so before it touches the service's sockets
// or database. It returns if there is no such program, and the start then reports the error.
func (s *Manager) GoOnWithFormer(ctx context.Context, cfg *config.Config) error {
	if s.Getenv("NOTIFY_SOCKET") == "" || s.Getenv(FormerMark) != "" {
		return nil
	}
	n := lacking(cfg)
	self, err := os.Executable()
	if n == 0 || err != nil {
		return nil
	}
	former := formerOf(self)
	if former == "" {
		return nil
	}
	env := append(slices.Clone(s.Env), FormerMark+"=1")
	check := exec.CommandContext(ctx, former, "config", "check")
	if cfg.File != "" {
		check.Args = append(check.Args, cfg.File)
	}
	check.Env = env
	if out, err := check.CombinedOutput(); err != nil {
		fmt.Fprintf(s.Stderr, "ocipd: the former program %s does not take the configuration either: %s\n", term.Printable(former), term.OneLine(string(out)))
		return nil
	}
	fmt.Fprintf(s.Stderr, "ocipd: the configuration lacks %s of access.apps, so the former program %s goes on until it has them; write them with: ocipd config migrate; then: systemctl --user restart ocipd.service\n",
		term.Count(n, "line"), term.Printable(former))
	return unix.Exec(former, append([]string{former}, os.Args[1:]...), env)
}

// HeldBack says why a version other than the installed one runs, or "" if the configuration
// is not the reason.
func (s *Manager) HeldBack(running string) string {
	if running == "" || running == s.Version {
		return ""
	}
	cfg, err := s.Load(nil)
	if err != nil {
		return ""
	}
	if n := lacking(cfg); n > 0 {
		return fmt.Sprintf("version %s runs, and %s is installed: its configuration lacks %s of access.apps; ocipd config migrate proposes them, then restart it", running, s.Version, term.Count(n, "line"))
	}
	return ""
}
