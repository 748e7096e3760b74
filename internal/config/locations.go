package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The functions below determine places from the configuration and an environment that the
// caller injects (os.Getenv in the daemon). They touch no file. They ignore a relative XDG
// directory, as its specification demands.

// FilePath is the default place of the configuration: openclawos/ocipd.yaml in
// $XDG_CONFIG_HOME, else in $HOME/.config. It is empty if neither is set.
func FilePath(getenv func(string) string) string {
	return inHome(getenv, "XDG_CONFIG_HOME", ".config", "ocipd.yaml")
}

// ConfiguredSocket is the requested app socket: the --socket flag, else
// $OPENCLAWOS_KERNEL_SOCKET, else $OCIPD_IPC_SOCKET, else ipc.socket of the file. [Load] puts
// all of them into ipc.socket; for a configuration that was not loaded, this reads the variable.
// It is empty if none is set; a listener from systemd then has precedence over [SocketPath].
func ConfiguredSocket(c *Config, getenv func(string) string) string {
	if c.IPC.Socket != "" {
		return c.IPC.Socket
	}
	return getenv(socketVariable)
}

// SocketPath is the path of the app socket: the configured one, else
// openclawos/kernel.sock in $XDG_RUNTIME_DIR, else openclawos-UID/kernel.sock in /tmp.
//
// Source: protocol, section 1.
func SocketPath(c *Config, getenv func(string) string) string {
	if path := ConfiguredSocket(c, getenv); path != "" {
		return path
	}
	return filepath.Join(runtimeDir(getenv), "kernel.sock")
}

// runtimeDir is openclawos in $XDG_RUNTIME_DIR, else openclawos- and the user's number in /tmp, so
// that each user has a directory.
func runtimeDir(getenv func(string) string) string {
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "openclawos")
	}
	return "/tmp/openclawos-" + strconv.Itoa(os.Geteuid())
}

// HooksPath is the socket of the user's gate for hooks of agent runtimes: hooks.sock in the default
// directory of app sockets.
func HooksPath(getenv func(string) string) string {
	return filepath.Join(runtimeDir(getenv), "hooks.sock")
}

// RunningPath is the directory of the daemons' place files, see [running.Daemon]:
// running in the default directory of app sockets. It is empty for a daemon with its
// socket elsewhere if $XDG_RUNTIME_DIR is not set, because /tmp belongs to everybody.
func RunningPath(socket string, getenv func(string) string) string {
	dir := runtimeDir(getenv)
	if !filepath.IsAbs(getenv("XDG_RUNTIME_DIR")) && filepath.Dir(socket) != dir {
		return ""
	}
	return filepath.Join(dir, "running")
}

// OperatorPath is the path of the operator socket, beside the app socket.
func OperatorPath(kernelPath string) string {
	return filepath.Join(filepath.Dir(kernelPath), "operator.sock")
}

// ConsolePath is the path of the console's socket for commands, beside the app socket.
func ConsolePath(kernelPath string) string {
	return filepath.Join(filepath.Dir(kernelPath), "console.sock")
}

// DatabasePath is the file of the embedded database. With store.url empty it is
// openclawos/ocipd.db in $XDG_STATE_HOME, else in $HOME/.local/state, and empty
// if neither is set. A store.url that is a path, or one behind "sqlite:" or
// "file:", is that path; any other URL is no file, and the answer is empty.
func DatabasePath(c *Config, getenv func(string) string) string {
	if c.Store.URL == "" {
		return inHome(getenv, "XDG_STATE_HOME", filepath.Join(".local", "state"), "ocipd.db")
	}
	return databaseFile(c.Store.URL)
}

// databaseFile is the file in a URL, or "".
func databaseFile(url string) string {
	scheme, path, ok := strings.Cut(url, ":")
	switch {
	case !ok || strings.Contains(scheme, "/"):
		return url
	case scheme == "sqlite" || scheme == "file":
		path, _, _ = strings.Cut(path, "?")
		return strings.TrimPrefix(path, "//")
	}
	return ""
}

// MirrorPath is the file of the audit mirror: audit.mirror, else audit.jsonl
// beside the database. It is empty if neither is known.
func MirrorPath(c *Config, dbPath string) string {
	return beside(dbPath, c.Audit.Mirror, "audit.jsonl")
}

// KeysPath is the directory of the daemon's keys: audit.keys, else keys beside the
// database. It is empty if neither is known.
func KeysPath(c *Config, dbPath string) string { return beside(dbPath, c.Audit.Keys, "keys") }

// CheckpointsPath is the file of the log's checkpoints outside the log: audit.checkpoints,
// else audit-checkpoints.jsonl beside the database. It is empty if neither is known.
func CheckpointsPath(c *Config, dbPath string) string {
	return beside(dbPath, c.Audit.Checkpoints, "audit-checkpoints.jsonl")
}

// beside is the configured path, or else a name beside the database.
func beside(dbPath, configured, name string) string {
	if configured != "" || dbPath == "" {
		return configured
	}
	return filepath.Join(filepath.Dir(dbPath), name)
}

func inHome(getenv func(string) string, variable, below, name string) string {
	dir := getenv(variable)
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, below)
	}
	return filepath.Join(dir, "openclawos", name)
}
