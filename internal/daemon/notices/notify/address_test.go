package notify

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	tests := []struct {
		address string
		want    []string
		fault   string // a part of the error
	}{
		{"", nil, "no session bus"},
		{"autolaunch:", nil, "no session bus"},
		{"autolaunch:scope=*user;", nil, "no session bus"},
		{"unix:path=/run/user/1000/bus", []string{"/run/user/1000/bus"}, ""},
		{"unix:path=/tmp/a%20b%2cc,guid=0123", []string{"/tmp/a b,c"}, ""},
		{"unix:guid=0123,abstract=/tmp/dbus-x", []string{"@/tmp/dbus-x"}, ""},
		{"tcp:host=evil.example,port=1;unix:path=/a;unix:abstract=b", []string{"/a", "@b"}, ""},
		{"tcp:host=evil.example,port=1", nil, "no session bus"},
		{"unixexec:path=/bin/sh,argv1=-c", nil, "no session bus"},
		{"/run/user/1000/bus", nil, "no session bus"},
		{"unix:", nil, "no session bus"},
		{"unix:path", nil, "no name of a socket"},
		{"unix:path=", nil, "no name of a socket"},
		{"unix:path=/a%00b", nil, "no name of a socket"},
		{"unix:path=/a%2", nil, "no name of a socket"},
		{"unix:path=bus", nil, "no name of a socket"},
		{"unix:runtime=yes", nil, "no session bus"},
	}
	for _, tt := range tests {
		t.Run(tt.address, func(t *testing.T) {
			got, err := busSockets(only("DBUS_SESSION_BUS_ADDRESS", tt.address))
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("error %v, want %q", err, tt.fault)
			}
		})
	}
}

func only(name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
}

func FuzzAddresses(f *testing.F) {
	for _, seed := range []string{"unix:path=/a,guid=0;unix:abstract=b", "autolaunch:;tcp:host=a", "unix:path=%2f%00", ";:,=", "unix:path=/a%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		sockets, err := busSockets(only("DBUS_SESSION_BUS_ADDRESS", address))
		if (err != nil) != (len(sockets) == 0) {
			t.Fatalf("%q with %v", sockets, err)
		}
		for _, socket := range sockets {
			if len(socket) < 1 || socket[0] != '/' && socket[0] != '@' || strings.ContainsRune(socket, 0) {
				t.Fatalf("socket %q", socket)
			}
		}
	})
}

func TestBusSockets(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := t.TempDir()
	if err := os.WriteFile(filepath.Join(file, "bus"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	tests := []struct {
		name string
		env  map[string]string
		want []string
	}{
		{"address", map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/a", "XDG_RUNTIME_DIR": dir}, []string{"/a"}},
		{"runtime directory", map[string]string{"XDG_RUNTIME_DIR": dir}, []string{dir + "/bus"}},
		{"autolaunch", map[string]string{"DBUS_SESSION_BUS_ADDRESS": "autolaunch:", "XDG_RUNTIME_DIR": dir}, []string{dir + "/bus"}},
		{"another transport", map[string]string{"DBUS_SESSION_BUS_ADDRESS": "tcp:host=evil.example,port=1", "XDG_RUNTIME_DIR": dir}, []string{dir + "/bus"}},
		{"nothing", nil, nil},
		{"no socket there", map[string]string{"XDG_RUNTIME_DIR": file}, nil},
		{"nothing there", map[string]string{"XDG_RUNTIME_DIR": t.TempDir()}, nil},
		{"not absolute", map[string]string{"XDG_RUNTIME_DIR": "."}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := busSockets(func(name string) string { return tt.env[name] })
			if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
			if err != nil && !errors.Is(err, ErrNoDesktop) {
				t.Errorf("error %v, want %v", err, ErrNoDesktop)
			}
		})
	}
}
