package notify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
)

// busSockets returns where the session bus may be reached, in order of trial,
// as names for a Unix socket: those in DBUS_SESSION_BUS_ADDRESS, else the
// socket at $XDG_RUNTIME_DIR/bus. None at all is [ErrNoDesktop].
func busSockets(getenv func(string) string) ([]string, error) {
	sockets, err := parseAddress(getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err != nil {
		return nil, fmt.Errorf("cannot use DBUS_SESSION_BUS_ADDRESS: %w", err)
	}
	if len(sockets) > 0 {
		return sockets, nil
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		path := filepath.Join(dir, "bus")
		if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			return []string{path}, nil
		}
	}
	return nil, fmt.Errorf("%w: no session bus", ErrNoDesktop)
}

// parseAddress reads the addresses of a server, D-Bus Specification, "Server
// Addresses". Unix sockets alone are used: over the network anybody could be
// the bus. Where there is nothing but "autolaunch:" the answer is empty, as for
// an empty address: this daemon starts no bus.
func parseAddress(address string) (sockets []string, err error) {
	others := false
	for part := range strings.SplitSeq(address, ";") {
		if part == "" {
			continue
		}
		transport, params, ok := strings.Cut(part, ":")
		switch {
		case !ok:
			return nil, errors.New("an address has no transport")
		case transport == "autolaunch":
			continue
		case transport != "unix":
			others = true
			continue
		}
		socket, err := unixSocket(params)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, socket)
	}
	if len(sockets) == 0 && others {
		return nil, errors.New("it names no Unix socket")
	}
	return sockets, nil
}

// unixSocket reads the parameters of a unix: address.
func unixSocket(params string) (string, error) {
	var socket string
	for param := range strings.SplitSeq(params, ",") {
		key, value, ok := strings.Cut(param, "=")
		if !ok {
			return "", errors.New("a parameter of unix: has no value")
		}
		if key != "path" && key != "abstract" {
			continue // guid, and what is said to servers only
		}
		value, err := dbus.UnescapeBusAddressValue(value)
		switch {
		case err != nil:
			return "", fmt.Errorf("the %s of unix: is not escaped as it should be", key)
		case socket != "":
			return "", errors.New("unix: names two sockets")
		case value == "" || strings.ContainsRune(value, 0):
			return "", fmt.Errorf("the %s of unix: cannot be a name", key)
		case key == "abstract":
			socket = "@" + value
		case !filepath.IsAbs(value):
			return "", errors.New("the path of unix: is not absolute")
		default:
			socket = value
		}
	}
	if socket == "" {
		return "", errors.New("unix: names no socket to connect to")
	}
	return socket, nil
}
