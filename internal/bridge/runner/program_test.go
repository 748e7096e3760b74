package runner

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/task"
)

// put writes a file into a new folder.
func put(t *testing.T, name string, text []byte, mode os.FileMode) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, text, mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func shell(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// started runs an opened program as a shim does.
func started(t *testing.T, p *program, argv ...string) (string, error) {
	t.Helper()
	gate, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	if _, err := write.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	write.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"runner", "exec", "--", p.path}, argv...)...)
	cmd.ExtraFiles = []*os.File{gate, p.File}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// If somebody overwrites or replaces a program after the check, the new content does not
// run: for a binary, and for a script, which its interpreter opens.
func TestRunsWhatWasLookedAt(t *testing.T) {
	for what, tt := range map[string]struct {
		text []byte
		argv []string
	}{
		"binary": {shell(t), []string{"tool", "-c", "echo GOOD"}},
		"script": {[]byte("#!/bin/sh\necho GOOD\n"), []string{"tool"}},
	} {
		for how, change := range map[string]func(name string) error{
			"in place": func(name string) error { return os.WriteFile(name, []byte("#!/bin/sh\necho EVIL\n"), 0o700) },
			"replaced": func(name string) error {
				if err := os.WriteFile(name+".new", []byte("#!/bin/sh\necho EVIL\n"), 0o700); err != nil {
					return err
				}
				return os.Rename(name+".new", name)
			},
		} {
			t.Run(what+" "+how, func(t *testing.T) {
				t.Parallel()
				name := put(t, "tool", tt.text, 0o700)
				p, err := open(task.Program{Path: name, SHA256: strings.TrimPrefix(digestOf(t, name), "sha256:")})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				if err := change(name); err != nil {
					t.Fatal(err)
				}
				if said, err := started(t, p, tt.argv...); said != "GOOD\n" {
					t.Errorf("it said %q: %v", said, err)
				}
				if f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.Fd()), os.O_WRONLY, 0); err == nil {
					_, err = f.Write([]byte("EVIL"))
					f.Close()
					if err == nil {
						t.Error("what is run can be written to")
					}
				}
			})
		}
	}
}

func TestProgramsThatCannotRunFromMemory(t *testing.T) {
	mine := put(t, "interpreter", shell(t), 0o777)
	if err := os.Chmod(mine, 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		text []byte
		mode os.FileMode
		want string
	}{
		"no format":               {[]byte("echo GOOD\n"), 0o700, "scripts that name their interpreter"},
		"libraries beside it":     {originELF(t), 0o700, "$ORIGIN"},
		"loader of others'":       {loaderELF(t, mine), 0o700, "which others than root can change"},
		"loader in the folder":    {loaderELF(t, "ld.so"), 0o700, `"ld.so", which others than root can change`},
		"interpreter of others'":  {[]byte("#! " + mine + "\necho GOOD\n"), 0o700, "which others than root can change"},
		"another kind of space":   {[]byte("#!/bin/sh\vx\necho GOOD\n"), 0o700, `"/bin/sh\vx", which others than root can change`},
		"interpreter beside it":   {[]byte("#!interpreter\necho GOOD\n"), 0o700, "which others than root can change"},
		"no interpreter":          {[]byte("#!\necho GOOD\n"), 0o700, "names no interpreter"},
		"no right to execute it":  {[]byte("#!/bin/sh\n"), 0o600, "cannot be executed"},
		"no ELF program":          {[]byte(elf.ELFMAG), 0o700, "no ELF program"},
		"a file without anything": {nil, 0o700, "scripts that name their interpreter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := put(t, "tool", tt.text, tt.mode)
			p, err := open(task.Program{Path: name, SHA256: strings.TrimPrefix(digestOf(t, name), "sha256:")})
			if err == nil {
				p.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// An endless program is not read into memory.
func TestProgramsHaveALimit(t *testing.T) {
	name := put(t, "tool", nil, 0o700)
	if err := os.Truncate(name, maxProgram+1); err != nil {
		t.Fatal(err)
	}
	if _, err := open(task.Program{Path: name}); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("got %v", err)
	}
}

// originELF is an ELF file that looks for libraries beside it.
func originELF(t *testing.T) []byte {
	t.Helper()
	const names = "\x00.dynstr\x00.dynamic\x00$ORIGIN/lib\x00"
	var b bytes.Buffer
	write := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: 64, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 1}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	write(&header)
	const at = 64 + 3*64
	write(&elf.Section64{})
	write(&elf.Section64{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: at, Size: uint64(len(names))})
	write(&elf.Section64{Name: 9, Type: uint32(elf.SHT_DYNAMIC), Off: at + uint64(len(names)), Size: 32, Link: 1, Entsize: 16})
	b.WriteString(names)
	write(&elf.Dyn64{Tag: int64(elf.DT_RUNPATH), Val: uint64(strings.Index(names, "$ORIGIN"))})
	write(&elf.Dyn64{})
	return b.Bytes()
}

// loaderELF is an ELF program that another program starts, as a loader of libraries does.
func loaderELF(t *testing.T, loader string) []byte {
	t.Helper()
	var b bytes.Buffer
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	size := uint64(len(loader) + 1)
	for _, v := range []any{&header, &elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: size, Memsz: size}, []byte(loader + "\x00")} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
