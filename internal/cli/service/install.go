// Package service runs the daemon as a user's service. It installs and removes the systemd
// units and their files, reports the service's state, and continues with the former program
// if a configuration lacks lines that this one requires.
//
// A [Manager] asks the user's service manager through systemctl. The caller of an
// installation passes the further files.
package service

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/systemd"
	"golang.org/x/sys/unix"
)

// Manager asks a user's service manager.
type Manager struct{ *cli.Process }

// Installation installs and removes the service.
type Installation struct {
	*Manager
	ctx context.Context
	// made returns the further files to install, given the XDG directories.
	made    func(dataHome, configHome string) ([]File, error)
	dryRun  bool
	program string
	// units is the service manager's directory. The others are the user's XDG directories.
	units, configHome, dataHome string
	// changed is set if a unit's text changed, moved if one of the console's did. enables are the
	// enabled units.
	changed, moved bool
	enables        []string
	// booted is a directory that exists if systemd runs this machine.
	booted string
}

// Installation determines the places of an installation. made returns the further files,
// given the directories of data and configuration.
func (s *Manager) Installation(ctx context.Context, made func(dataHome, configHome string) ([]File, error), dryRun bool) (*Installation, error) {
	if s.Socket != "" {
		return nil, cli.Usagef("cannot use --socket here: the service is where ocipd.socket listens")
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot tell where this program is: %w", err)
	}
	i := &Installation{Manager: s, ctx: ctx, made: made, dryRun: dryRun, program: program, booted: "/run/systemd/system"}
	for into, place := range map[*string][2]string{&i.configHome: {"XDG_CONFIG_HOME", ".config"}, &i.dataHome: {"XDG_DATA_HOME", ".local/share"}} {
		if *into = s.XDG(place[0], place[1]); *into == "" {
			return nil, errors.New("cannot tell where the service belongs: HOME is not set")
		}
	}
	i.units = filepath.Join(i.configHome, "systemd", "user")
	return i, nil
}

// say reports an action: its name and details.
func (i *Installation) say(did, format string, args ...any) {
	if i.dryRun {
		did = map[string]string{"wrote": "would write", "made": "would make", "ran": "would run", "removed": "would remove", "left": "would leave"}[did]
	}
	fmt.Fprintln(i.Stdout, term.Printable(did+" "+fmt.Sprintf(format, args...)))
}

// File is a file that Install writes and Uninstall removes.
type File struct {
	Path string
	Text []byte
}

// Wanted are the parts that Install adds to the daemon's service.
type Wanted struct {
	// NoStart only writes the files. Runner also starts the runner, and Console the console's
	// sockets.
	NoStart, Runner, Console bool
	// Addresses returns the addresses of the console's page. With dry it makes nothing.
	Addresses func(ctx context.Context, dry bool) ([]string, error)
}

// Install writes the units and their files, and starts the service.
func (i *Installation) Install(want Wanted) error {
	service, err := i.unit(systemd.Service(), "serve")
	if err != nil {
		return err
	}
	commands, err := i.unit(systemd.Runner(), "runner")
	if err != nil {
		return err
	}
	i.enables = []string{systemd.SocketName, systemd.ServiceName}
	if want.Runner {
		i.enables = append(i.enables, systemd.RunnerName)
	}
	if want.Console {
		i.enables = append(i.enables, systemd.ConsoleSocketName)
	}
	files, err := i.made(i.dataHome, i.configHome)
	if err != nil {
		return err
	}
	units := []File{
		{filepath.Join(i.units, systemd.SocketName), []byte(systemd.Socket())},
		{filepath.Join(i.units, systemd.ServiceName), []byte(service)},
		{filepath.Join(i.units, systemd.RunnerName), []byte(commands)},
	}
	where := i.units
	if dir := i.Packaged(); dir != "" && !i.installed() && same(dir, units) {
		// The package upgrades its own files; a copy would override them.
		units, files, where = nil, nil, dir
	}
	if i.changed, err = i.writeUnits(units); err != nil {
		return err
	}
	if !i.changed {
		i.say("left", "the units in %s: they are up to date", where)
	}
	wrote := false
	for _, f := range files {
		changed, err := i.write(f)
		if err != nil {
			return err
		}
		wrote = wrote || changed
	}
	if wrote {
		i.say("wrote", "completion for bash, zsh and fish, and the manual pages, below %s and %s", i.dataHome, i.configHome)
	}
	if err := i.places(); err != nil {
		return err
	}
	if err := i.writeConsole(want); err != nil {
		return err
	}
	if want.NoStart {
		fmt.Fprintln(i.Stdout, "start it with: systemctl --user daemon-reload && systemctl --user enable --now "+strings.Join(i.enables, " "))
		return nil
	}
	return i.start()
}

// writeUnits writes units, and reports whether one changed.
func (i *Installation) writeUnits(units []File) (changed bool, err error) {
	for _, unit := range units {
		wrote, err := i.write(unit)
		if err != nil {
			return changed, err
		}
		if changed = changed || wrote; wrote {
			i.say("wrote", "%s", unit.Path)
		}
	}
	return changed, nil
}

// hasConsole reports whether the console's units are installed.
func (i *Installation) hasConsole() bool {
	return cli.Exists(filepath.Join(i.units, systemd.ConsoleSocketName))
}

// writeConsole writes the console's units if they are wanted, or there already. No package has
// them, because each user's console has a port of its own.
func (i *Installation) writeConsole(want Wanted) error {
	if !want.Console && !i.hasConsole() {
		return nil
	}
	text, err := i.unit(systemd.Console(), "console")
	if err != nil {
		return err
	}
	addresses, err := want.Addresses(i.ctx, i.dryRun)
	if err != nil {
		return err
	}
	i.moved, err = i.writeUnits([]File{
		{filepath.Join(i.units, systemd.ConsoleSocketName), []byte(systemd.ConsoleSocket(addresses))},
		{filepath.Join(i.units, systemd.ConsoleName), []byte(text)},
	})
	return err
}

// same reports whether a directory has exactly these files.
func same(dir string, files []File) bool {
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, filepath.Base(f.Path)))
		if err != nil || !bytes.Equal(text, f.Text) {
			return false
		}
	}
	return true
}

// Packaged is the directory in which a system package has put the service for all users, or "".
//
// Source: systemd.unit(5), Unit File Load Path.
func (s *Manager) Packaged() string {
	var dirs []string
	for dir := range strings.SplitSeq(cmp.Or(s.Getenv("XDG_DATA_DIRS"), "/usr/local/share:/usr/share"), ":") {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range append(dirs, "/usr/local/lib", "/usr/lib") {
		dir = filepath.Join(dir, "systemd", "user")
		if cli.Exists(filepath.Join(dir, systemd.ServiceName)) {
			return dir
		}
	}
	return ""
}

// write writes a file, and reports whether it changed.
func (i *Installation) write(f File) (bool, error) {
	if i.dryRun {
		old, err := os.ReadFile(f.Path)
		return err != nil || !bytes.Equal(old, f.Text), nil
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil { //nolint:gosec // as others make these directories
		return false, fmt.Errorf("cannot write %s: %w", f.Path, err)
	}
	return cli.ReplaceFile(f.Path, f.Text, 0o644)
}

// unit returns the text of a unit with this program in it, and its command.
func (i *Installation) unit(text, command string) (string, error) {
	program, err := quoteExec(i.program)
	if err != nil {
		return "", err
	}
	text = strings.ReplaceAll(text, "="+systemd.Program+" ", "="+program+" ")
	if i.ConfigFile == "" {
		return text, nil
	}
	file, err := filepath.Abs(i.ConfigFile)
	if err != nil {
		return "", fmt.Errorf("cannot tell where --config is: %w", err)
	}
	quoted, err := quoteExec(file)
	if err != nil {
		return "", err
	}
	return strings.Replace(text, "="+program+" "+command+"\n", "="+program+" "+command+" --config "+quoted+"\n", 1), nil
}

// quoteExec quotes a path for a command line in a unit. It refuses paths that need more
// than quotes: nobody uses such paths by accident.
//
// Source: systemd.service(5), Command lines; systemd.unit(5), Specifiers.
func quoteExec(path string) (string, error) {
	for _, r := range path {
		if r < ' ' || r == 0x7f || strings.ContainsRune("\"'\\$;", r) || r == '\ufffd' {
			return "", fmt.Errorf("cannot put %q into a unit: move it to a path without %q", path, r)
		}
	}
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " ") {
		return `"` + path + `"`, nil
	}
	return path, nil
}

// places makes the directories of configuration and state, for their owner alone.
// Otherwise, systemd from 254 on would make the state directory a link to the
// configuration's if only the latter exists at the first start.
func (i *Installation) places() error {
	state := i.XDG("XDG_STATE_HOME", ".local/state")
	for _, dir := range []string{filepath.Join(i.configHome, "openclawos"), filepath.Join(state, "openclawos")} {
		if _, err := os.Stat(dir); err == nil {
			continue
		}
		if !i.dryRun {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("cannot make %s: %w", dir, err)
			}
		}
		i.say("made", "%s", dir)
	}
	return nil
}

// systemctl runs systemctl for the user, and returns its output. An error includes the
// command and the output.
func (i *Installation) systemctl(args ...string) (string, error) {
	return i.Manager.systemctl(i.ctx, args...)
}

// managerTime bounds one action of the service manager. A start may have to verify the whole log.
const managerTime = 16 * time.Minute

func (s *Manager) systemctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, managerTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--user", "--no-pager"}, args...)...)
	cmd.Env = s.Env
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		why := strings.TrimSpace(said.String())
		if why == "" {
			why = err.Error()
		}
		return out.String(), fmt.Errorf("cannot run systemctl --user %s: %s", strings.Join(args, " "), why)
	}
	return out.String(), nil
}

// noManager tells the user the next step if no service manager answers. Without systemd on the machine, the
// installation is complete.
func (i *Installation) noManager(cause error) error {
	if _, err := os.Stat(i.booted); err != nil {
		_, err := fmt.Fprintf(i.Stdout, `all files were written; systemd does not run this machine, so nothing was started
next: have another supervisor, or a terminal, run
    %s serve
`, term.Printable(i.program))
		return err
	}
	fmt.Fprintln(i.Stderr, term.OneLine("ocipd: no service manager answers: "+cause.Error()))
	fmt.Fprintf(i.Stderr, `All files were written, but the service was not started: systemd has no session for you, as after su or in a job. Run
    loginctl enable-linger %s
log in again, and repeat: ocipd service install
`, i.userName())
	return cli.ErrSaid
}

func (i *Installation) userName() string {
	if u, err := user.Current(); err == nil {
		return term.Printable(u.Username)
	}
	return strconv.Itoa(os.Geteuid())
}

// start enables the units, and restarts a service that runs another version.
func (i *Installation) start() error {
	if i.dryRun {
		i.say("ran", "systemctl --user daemon-reload")
		i.say("ran", "systemctl --user enable --now %s", strings.Join(i.enables, " "))
		return nil
	}
	environment, err := i.systemctl("show-environment")
	if err != nil {
		return i.noManager(err)
	}
	i.compareEnvironment(environment)
	stale := i.stale()
	// A service that failed too often would not start. This fails only for units that are
	// not loaded yet.
	_, _ = i.systemctl("reset-failed", systemd.SocketName, systemd.ServiceName)
	if i.moved {
		// Sockets that are open keep their addresses. This fails as well for units not loaded yet.
		_, _ = i.systemctl("stop", systemd.ConsoleSocketName, systemd.ConsoleName)
	}
	for _, args := range [][]string{
		{"daemon-reload"},
		append([]string{"enable", "--now"}, i.enables...),
	} {
		if _, err := i.systemctl(args...); err != nil {
			if slices.Contains(args, systemd.ConsoleSocketName) {
				return fmt.Errorf("%w; interrupt a console that runs in a terminal; the log: journalctl --user -u ocipd -u ocipd-console.socket -n 20", err)
			}
			return fmt.Errorf("%w; its log: journalctl --user -u ocipd -n 20", err)
		}
		i.say("ran", "systemctl --user %s", strings.Join(args, " "))
	}
	if stale {
		if _, err := i.systemctl("restart", systemd.ServiceName); err != nil {
			return fmt.Errorf("%w; its log: journalctl --user -u ocipd -n 20", err)
		}
		i.say("ran", "systemctl --user restart %s: another version was running", systemd.ServiceName)
		// A running runner restarts; its commands continue.
		if _, err := i.systemctl("try-restart", systemd.RunnerName); err != nil {
			return fmt.Errorf("%w; its log: journalctl --user -u ocipd-runner -n 20", err)
		}
		if i.hasConsole() {
			if _, err := i.systemctl("try-restart", systemd.ConsoleName); err != nil {
				return fmt.Errorf("%w; its log: journalctl --user -u ocipd-console -n 20", err)
			}
		}
	}
	fmt.Fprintln(i.Stdout, "the service runs; see: ocipd service status")
	if name := i.userName(); !Lingers(name) {
		fmt.Fprintln(i.Stdout, LastLogout(name))
	}
	i.callable()
	return nil
}

// callable tells the user the next step if a shell does not find the program, as in the session that
// created ~/.local/bin.
func (i *Installation) callable() {
	dir := filepath.Dir(i.program)
	if slices.Contains(filepath.SplitList(i.Getenv("PATH")), dir) {
		return
	}
	fmt.Fprintf(i.Stdout, "%s is not on your PATH; here and now: export PATH=\"%s:$PATH\"\n", term.Printable(dir), term.Printable(dir))
	if dir == filepath.Join(i.Getenv("HOME"), ".local", "bin") {
		fmt.Fprintln(i.Stdout, "most systems put it there at the next login")
	}
}

// stale reports whether a restart would run something else.
func (i *Installation) stale() bool {
	unit, err := i.ShowUnit(i.ctx, systemd.ServiceName)
	if err != nil || unit["ActiveState"] != "active" {
		return false
	}
	if i.changed {
		return true
	}
	running, err := os.Stat("/proc/" + unit["MainPID"] + "/exe")
	if err != nil {
		return true
	}
	installed, err := os.Stat(i.program)
	return err != nil || !os.SameFile(running, installed)
}

// LastLogout says how to keep a user's service running, see [Lingers].
func LastLogout(name string) string {
	return "it stops at your last logout; to keep it running (with sudo if that is refused): loginctl enable-linger " + name
}

// Lingers reports whether a user's services run without a session.
func Lingers(name string) bool {
	_, err := os.Stat(filepath.Join("/var/lib/systemd/linger", name))
	return err == nil
}

// compareEnvironment warns of variables for places that differ in the service's environment.
func (i *Installation) compareEnvironment(environment string) {
	theirs := map[string]string{}
	for line := range strings.SplitSeq(environment, "\n") {
		name, value, _ := strings.Cut(line, "=")
		theirs[name] = value
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "OPENCLAWOS_KERNEL_SOCKET"} {
		if mine := i.Getenv(name); mine != "" && mine != theirs[name] {
			fmt.Fprintf(i.Stderr, "ocipd: %s is %s here, and %s for the service: to pass it on, systemctl --user import-environment %s\n",
				name, term.Printable(mine), orNone(term.Printable(theirs[name])), name)
		}
	}
}

func orNone(text string) string {
	if text == "" {
		return "not set"
	}
	return text
}

// Uninstall stops the service and removes Install's files.
func (i *Installation) Uninstall() error {
	manager := i.dryRun
	if !i.dryRun {
		_, err := i.systemctl("show-environment")
		manager = err == nil
	}
	packaged := i.Packaged()
	ours := i.installed() || packaged != ""
	gone := i.present(packaged)
	if manager && ours {
		if !i.dryRun {
			if _, err := i.systemctl(append([]string{"disable", "--now"}, gone...)...); err != nil {
				return err
			}
		}
		i.say("ran", "systemctl --user disable --now %s", strings.Join(gone, " "))
	}
	files, err := i.made(i.dataHome, i.configHome)
	if err != nil {
		return err
	}
	for _, name := range []string{systemd.SocketName, systemd.ServiceName, systemd.RunnerName, systemd.ConsoleSocketName, systemd.ConsoleName} {
		for _, below := range []string{"", "sockets.target.wants", "default.target.wants"} {
			files = append(files, File{Path: filepath.Join(i.units, below, name)})
		}
	}
	switch removed, err := i.remove(files); {
	case err != nil:
		return err
	case removed:
		i.say("removed", "units, completion and manual pages")
	case !ours:
		fmt.Fprintln(i.Stdout, "nothing of the service is installed")
	}
	if !i.dryRun {
		i.prune(filepath.Join(i.configHome, "openclawos", "ocipd.yaml"))
		i.prune(filepath.Join(i.units, systemd.ServiceName))
	}
	if manager && !i.dryRun {
		if _, err := i.systemctl("daemon-reload"); err != nil {
			return err
		}
		i.say("ran", "systemctl --user daemon-reload")
		// This fails for units that never failed, which are now unloaded.
		_, _ = i.systemctl(append([]string{"reset-failed"}, gone...)...)
	}
	i.sayStays(packaged)
	return nil
}

// remove removes the files that are there, and reports whether there was one.
func (i *Installation) remove(files []File) (removed bool, err error) {
	for _, f := range files {
		if _, err := os.Lstat(f.Path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		removed = true
		if i.dryRun {
			continue
		}
		if err := os.Remove(f.Path); err != nil {
			return removed, fmt.Errorf("cannot remove %s: %w", f.Path, err)
		}
		i.prune(f.Path)
	}
	return removed, nil
}

// sayStays names the files and folders that an uninstallation leaves.
func (i *Installation) sayStays(packaged string) {
	fmt.Fprintln(i.Stdout, "these stay; remove them yourself if you mean to:")
	for _, dir := range [][2]string{
		{"configuration", filepath.Join(i.configHome, "openclawos")},
		{"messages, records and keys", filepath.Join(i.XDG("XDG_STATE_HOME", ".local/state"), "openclawos")},
		{"your changes to the unit", filepath.Join(i.units, systemd.ServiceName+".d")},
		{"the package's units", packaged},
		{"the program", i.program},
	} {
		if _, err := os.Stat(dir[1]); err == nil {
			fmt.Fprintf(i.Stdout, "  %-27s %s\n", dir[0], term.Printable(dir[1]))
		}
	}
}

// present are the units to disable: the daemon's, and those of the others that are installed.
func (i *Installation) present(packaged string) []string {
	units := []string{systemd.SocketName, systemd.ServiceName}
	for _, name := range []string{systemd.RunnerName, systemd.ConsoleSocketName, systemd.ConsoleName} {
		if cli.Exists(filepath.Join(i.units, name)) || packaged != "" && cli.Exists(filepath.Join(packaged, name)) {
			units = append(units, name)
		}
	}
	return units
}

// prune removes the empty directories above a file, up to the service's own.
func (i *Installation) prune(path string) {
	for dir := filepath.Dir(path); strings.HasPrefix(dir, i.configHome+"/") || strings.HasPrefix(dir, i.dataHome+"/"); dir = filepath.Dir(dir) {
		// os.Remove would also remove a symbolic link to a directory.
		if unix.Rmdir(dir) != nil {
			return
		}
	}
}

// installed reports whether a unit is installed.
func (i *Installation) installed() bool {
	for _, name := range []string{systemd.SocketName, systemd.ServiceName} {
		if _, err := os.Lstat(filepath.Join(i.units, name)); err == nil {
			return true
		}
	}
	return false
}
