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

// An upgrade replaces the program of all users at once, and each decides about the
// own configuration. The package and make install keep the former program, so that a
// service whose configuration lacks what this version wants goes on with it until
// its user has written that.
const (
	// formerSuffix ends the name of the former program, beside this one.
	formerSuffix = ".former"
	// packagedProgram is where the package has this one, and packagedFormer where it
	// keeps the former.
	packagedProgram = "/usr/bin/ocipd"
	packagedFormer  = "/usr/libexec/ocipd/ocipd" + formerSuffix
	// FormerMark is set for a former program, which goes on with none itself. It is
	// no OCIPD_… variable: those are keys of the configuration.
	FormerMark = "FORMER_OCIPD"
)

// formerOf is the former version of a program, "" where none is kept.
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

// lacking is how many lines a configuration lacks without which this version does
// not start.
func lacking(cfg *config.Config) int {
	lacks, err := kernelconfig.Undeclared(cfg, nil)
	if err != nil {
		return 0
	}
	return len(lacks)
}

// GoOnWithFormer becomes the former program, where a service is started with a
// configuration that this one refuses and that one takes. It does so before anything
// of the service is touched, sockets and database. It returns where there is no such
// program, and the start says what is wrong.
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

// HeldBack says why another version runs than is installed, "" where that is not for
// the configuration's sake.
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
