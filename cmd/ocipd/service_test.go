package main

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/doctor"
	"github.com/openclawos/ocipd/internal/cli/service"
	"github.com/openclawos/ocipd/systemd"
)

// manager puts a service manager into a clinic that records its commands.
func (c *clinic) manager() (asked func() string) {
	c.t.Helper()
	c.write("bin/systemctl", "#!/bin/sh\nprintf '%s\\n' \"$*\" >>"+c.path("asked")+"\n", 0o700)
	c.t.Setenv("PATH", c.path("bin")+":"+os.Getenv("PATH"))
	c.env = append(c.env, "PATH="+os.Getenv("PATH"))
	return func() string { return string(c.read("asked")) }
}

// files are the paths below a place, directories and files.
func (c *clinic) files(place string) (paths []string) {
	c.t.Helper()
	c.must(filepath.WalkDir(c.path(place), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != c.path(place) {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

// packageUnits puts the units for this program in a package's place.
func (c *clinic) packageUnits() {
	c.t.Helper()
	program, err := os.Executable()
	c.must(err)
	c.write("share/systemd/user/ocipd.socket", systemd.Socket(), 0o600)
	c.write("share/systemd/user/ocipd.service", strings.ReplaceAll(systemd.Service(), "="+systemd.Program+" ", "="+program+" "), 0o600)
	c.write("share/systemd/user/ocipd-runner.service", strings.ReplaceAll(systemd.Runner(), "="+systemd.Program+" ", "="+program+" "), 0o600)
	c.env = append(c.env, "XDG_DATA_DIRS="+c.path("share"))
}

func TestServiceUninstallLeavesNothing(t *testing.T) {
	c := newClinic(t)
	c.manager()
	// Earlier files stay, including an empty directory behind a link.
	c.write(".config/fish/config.fish", "", 0o600)
	c.must(os.MkdirAll(c.path("dotfiles"), 0o700))
	c.must(os.MkdirAll(c.path(".local/share/zsh"), 0o700))
	c.must(os.Symlink(c.path("dotfiles"), c.path(".local/share/zsh/site-functions")))
	want := []string{
		c.path(".config/fish"), c.path(".config/fish/config.fish"),
		c.path(".local/share/zsh"), c.path(".local/share/zsh/site-functions"),
	}
	for _, args := range [][]string{{"service", "install"}, {"service", "uninstall"}} {
		if code, out, said := c.ocipd(args...); code != cli.ExitDone {
			t.Fatalf("%v exits %d: %s%s", args, code, out, said)
		}
		if args[1] == "install" && len(c.files(".config/systemd")) == 0 {
			t.Fatal("nothing was installed")
		}
	}
	if found := append(c.files(".config"), c.files(".local/share")...); !slices.Equal(found, want) {
		t.Errorf("there is %v, want %v", found, want)
	}
}

// TestServiceOfAPackage has the units in a package's place.
func TestServiceOfAPackage(t *testing.T) {
	c := newClinic(t)
	asked := c.manager()
	c.packageUnits()
	if code, out, said := c.ocipd("service", "install"); code != cli.ExitDone || !strings.Contains(out, "left the units in "+c.path("share")) {
		t.Fatalf("install exits %d: %s%s", code, out, said)
	}
	if found := c.files(".config"); !slices.Equal(found, []string{c.path(".config/openclawos")}) {
		t.Errorf("install writes %v beside the package", found)
	}
	if want := "--user --no-pager enable --now ocipd.socket ocipd.service\n"; !strings.Contains(asked(), want) {
		t.Errorf("the manager was asked %q, want %q", asked(), want)
	}
	code, out, said := c.ocipd("service", "uninstall")
	if code != cli.ExitDone || !strings.Contains(out, c.path("share")) || strings.Contains(out, "nothing of the service") {
		t.Errorf("uninstall exits %d: %s%s", code, out, said)
	}
	if want := "--user --no-pager disable --now ocipd.socket ocipd.service ocipd-runner.service\n"; !strings.Contains(asked(), want) {
		t.Errorf("the manager was asked %q, want %q", asked(), want)
	}
	if !cli.Exists(c.path("share/systemd/user/ocipd.service")) {
		t.Error("the package's unit is gone")
	}

	// Another configuration takes a separate unit.
	c.write("other.yaml", clinicYAML, 0o600)
	if code, out, said := c.ocipd("--config", c.path("other.yaml"), "service", "install", "--no-start"); code != cli.ExitDone ||
		!cli.Exists(c.path(".config/systemd/user/ocipd.service")) {
		t.Errorf("install exits %d: %s%s", code, out, said)
	}
}

// TestDoctorStartsNoService has the manager hold the sockets of a package's service that is
// not started: a connection would start it.
func TestDoctorStartsNoService(t *testing.T) {
	c := lived(t)
	c.manager()
	c.packageUnits()
	c.write("bin/systemctl", "#!/bin/sh\ncase \"$*\" in *ocipd.socket*) echo ActiveState=active;; *) echo ActiveState=inactive;; esac\n", 0o700)
	if found := c.ask("daemon"); len(found) != 1 || !said(found, "", doctor.Pass, "it starts when somebody connects") {
		t.Errorf("found %+v", found)
	}
}

// TestDoctorOfALaptop checks that there is no advice to change a service that ends with the session.
func TestDoctorOfALaptop(t *testing.T) {
	c := lived(t)
	c.manager()
	c.write("bin/systemctl", "#!/bin/sh\nprintf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\nUnitFileState=enabled\\n'\n", 0o700)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	found := c.ask("service")
	if len(found) != 1 || found[0].Health != doctor.Pass {
		t.Fatalf("found %+v", found)
	}
	if !service.Lingers(me.Username) && !strings.Contains(found[0].Advice, "loginctl enable-linger") {
		t.Errorf("it does not say how to have it stay: %+v", found[0])
	}
}

func TestServiceInstallSaysHowToCallIt(t *testing.T) {
	c := newClinic(t)
	c.manager()
	program, err := os.Executable()
	c.must(err)
	hint := "export PATH=\"" + filepath.Dir(program) + ":$PATH\""
	if _, out, _ := c.ocipd("service", "install"); !strings.Contains(out, hint) {
		t.Errorf("install says %q, want %q", out, hint)
	}
	c.env = append(c.env, "PATH="+filepath.Dir(program)+":/usr/bin")
	if _, out, _ := c.ocipd("service", "install"); strings.Contains(out, hint) {
		t.Errorf("install says %q though the program is found", out)
	}
}
