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

func TestParseAddress(t *testing.T) {
	tests := []struct {
		address string
		want    []string
		fault   string // a part of the error
	}{
		{"", nil, ""},
		{"autolaunch:", nil, ""},
		{"autolaunch:scope=*user;", nil, ""},
		{"unix:path=/run/user/1000/bus", []string{"/run/user/1000/bus"}, ""},
		{"unix:path=/tmp/a%20b%2cc,guid=0123", []string{"/tmp/a b,c"}, ""},
		{"unix:guid=0123,abstract=/tmp/dbus-x", []string{"@/tmp/dbus-x"}, ""},
		{"tcp:host=evil.example,port=1;unix:path=/a;unix:abstract=b", []string{"/a", "@b"}, ""},
		{"tcp:host=evil.example,port=1", nil, "names no Unix socket"},
		{"unixexec:path=/bin/sh,argv1=-c", nil, "names no Unix socket"},
		{"/run/user/1000/bus", nil, "no transport"},
		{"unix:", nil, "has no value"},
		{"unix:path", nil, "has no value"},
		{"unix:path=", nil, "cannot be a name"},
		{"unix:path=/a%00b", nil, "cannot be a name"},
		{"unix:path=/a%2", nil, "not escaped"},
		{"unix:path=bus", nil, "not absolute"},
		{"unix:path=/a,abstract=b", nil, "two sockets"},
		{"unix:runtime=yes", nil, "no socket to connect to"},
	}
	for _, tt := range tests {
		t.Run(tt.address, func(t *testing.T) {
			got, err := parseAddress(tt.address)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("error %v, want %q", err, tt.fault)
			}
		})
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"unix:path=/a,guid=0;unix:abstract=b", "autolaunch:;tcp:host=a", "unix:path=%2f%00", ";:,=", "unix:path=/a%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		sockets, err := parseAddress(address)
		if err != nil && sockets != nil {
			t.Fatal("an answer and an error")
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
