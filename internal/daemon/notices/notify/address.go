package notify

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
)

// busSockets returns the possible Unix sockets of the session bus, in order of trial: those
// in DBUS_SESSION_BUS_ADDRESS (D-Bus Specification, "Server Addresses"), else the socket at
// $XDG_RUNTIME_DIR/bus. It skips other addresses: over the network anybody could be the
// bus, and autolaunch: would start one. None at all is [ErrNoDesktop].
func busSockets(getenv func(string) string) (sockets []string, err error) {
	for address := range strings.SplitSeq(getenv("DBUS_SESSION_BUS_ADDRESS"), ";") {
		params, ok := strings.CutPrefix(address, "unix:")
		if !ok {
			continue
		}
		for param := range strings.SplitSeq(params, ",") {
			key, value, _ := strings.Cut(param, "=")
			if key != "path" && key != "abstract" {
				continue // guid, and options for servers
			}
			value, err := dbus.UnescapeBusAddressValue(value)
			if err != nil || value == "" || strings.ContainsRune(value, 0) || key == "path" && !filepath.IsAbs(value) {
				return nil, fmt.Errorf("cannot use DBUS_SESSION_BUS_ADDRESS: the %s of unix: is no name of a socket", key)
			}
			if key == "abstract" {
				value = "@" + value
			}
			sockets = append(sockets, value)
		}
	}
	if dir := getenv("XDG_RUNTIME_DIR"); len(sockets) == 0 && filepath.IsAbs(dir) {
		path := filepath.Join(dir, "bus")
		if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			sockets = append(sockets, path)
		}
	}
	if len(sockets) == 0 {
		return nil, fmt.Errorf("%w: no session bus", ErrNoDesktop)
	}
	return sockets, nil
}
