package config

import (
	"path/filepath"
	"strings"
)

// The functions below decide where things are, from the configuration and an
// environment that the caller injects (os.Getenv in the daemon). They touch no
// file. A relative XDG directory is ignored, as its specification asks.

// FilePath is where the configuration is looked for when no file is named:
// openclawos/ocipd.yaml in $XDG_CONFIG_HOME, else in $HOME/.config. It is empty
// if neither is set.
func FilePath(getenv func(string) string) string {
	return inHome(getenv, "XDG_CONFIG_HOME", ".config", "ocipd.yaml")
}

// ConfiguredSocket is the app socket that somebody asked for: the --socket flag,
// else $OPENCLAWOS_KERNEL_SOCKET, else $OCIPD_IPC_SOCKET, else ipc.socket of the
// file. [Load] has made all of them ipc.socket; of a configuration that was not
// loaded, the variable is asked here. It is empty if nobody did, and a listener
// passed by systemd then comes before [SocketPath].
func ConfiguredSocket(c *Config, getenv func(string) string) string {
	if c.IPC.Socket != "" {
		return c.IPC.Socket
	}
	return getenv(socketVariable)
}

// SocketPath is the path of the app socket: the configured one, else
// openclawos/kernel.sock in $XDG_RUNTIME_DIR, else in /tmp.
//
// Source: protocol, section 1.
func SocketPath(c *Config, getenv func(string) string) string {
	if path := ConfiguredSocket(c, getenv); path != "" {
		return path
	}
	return filepath.Join(runtimeDir(getenv), "kernel.sock")
}

// runtimeDir is openclawos in $XDG_RUNTIME_DIR, else in /tmp.
func runtimeDir(getenv func(string) string) string {
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "openclawos")
	}
	return "/tmp/openclawos"
}

// RunningPath is the directory in which daemons leave word where they are, see
// [running.Daemon]: running in the directory of the app socket of those that nobody
// asked to have one elsewhere. It is empty for a daemon with its socket elsewhere
// where $XDG_RUNTIME_DIR is not set: what there is besides is everybody's.
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

// databaseFile is the file that a URL names, "" where it names none.
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

// CheckpointsPath is the file in which the log's checkpoints are kept outside it:
// audit.checkpoints, else audit-checkpoints.jsonl beside the database. It is empty
// if neither is known.
func CheckpointsPath(c *Config, dbPath string) string {
	return beside(dbPath, c.Audit.Checkpoints, "audit-checkpoints.jsonl")
}

// beside is the path that is configured, else a name beside the database.
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
