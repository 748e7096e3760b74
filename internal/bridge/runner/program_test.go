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
	"github.com/openclawos/ocipd/internal/task/commandfiles"
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

// opened opens a program as a shim does, for a command in the program's folder.
func opened(t *testing.T, name string, env map[string]string) (*program, error) {
	t.Helper()
	all := commandfiles.Planned(&task.Action{Env: env})
	at := commandfiles.Place{Workspace: filepath.Dir(name), Folder: filepath.Dir(name)}
	return open(task.Program{Path: name, SHA256: strings.TrimPrefix(digestOf(t, name), "sha256:")}, at, all)
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
				p, err := opened(t, name, nil)
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
	const theirs = "which others than root can change"
	mine := put(t, "interpreter", shell(t), 0o777)
	if err := os.Chmod(mine, 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	dir := filepath.Dir(mine)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	text := func(text string) []byte { return []byte(text + "\necho GOOD\n") }
	tags := func(list ...any) []byte { return dynamicELF(t, "", list...) }
	for name, tt := range map[string]struct {
		text []byte
		mode os.FileMode
		env  map[string]string
		want string
	}{
		"no format":               {text("echo GOOD"), 0o700, nil, "scripts that name their interpreter"},
		"loader of others'":       {dynamicELF(t, mine), 0o700, nil, theirs},
		"loader in the folder":    {dynamicELF(t, "ld.so"), 0o700, nil, `"ld.so", ` + theirs},
		"interpreter of others'":  {text("#! " + mine), 0o700, nil, theirs},
		"another kind of space":   {text("#!/bin/sh\vx"), 0o700, nil, `"/bin/sh\vx", ` + theirs},
		"interpreter beside it":   {text("#!interpreter"), 0o700, nil, theirs},
		"no interpreter":          {text("#!"), 0o700, nil, "names no interpreter"},
		"no right to execute it":  {text("#!/bin/sh"), 0o600, nil, "cannot be executed"},
		"no ELF program":          {[]byte(elf.ELFMAG), 0o700, nil, "no ELF program"},
		"a file without anything": {nil, 0o700, nil, "scripts that name their interpreter"},

		// What a first line names besides the interpreter.
		"script as an argument":       {text("#!/bin/sh " + mine), 0o700, nil, mine},
		"script that may come":        {text("#!/bin/sh missing.sh"), 0o700, nil, "missing.sh\", " + theirs},
		"script behind an option":     {text("#!/bin/sh -e " + mine), 0o700, nil, mine},
		"script attached to a letter": {text("#!/usr/bin/awk -f" + mine), 0o700, nil, mine},
		"script that may come there":  {text("#!/usr/bin/awk -f" + dir + "/missing"), 0o700, nil, "missing"},
		"through env":                 {text("#!/usr/bin/env " + mine), 0o700, nil, mine},
		"through env -S":              {text("#!/usr/bin/env -S " + mine), 0o700, nil, mine},
		"argument through env -S":     {text("#!/usr/bin/env -S sh " + mine), 0o700, nil, mine},
		"variable through env -S":     {text("#!/usr/bin/env -S LD_PRELOAD=" + mine + " sh"), 0o700, nil, "only names are read"},
		"quotes through env -S":       {text("#!/usr/bin/env -S \"sh\""), 0o700, nil, "only names are read"},
		"option of env":               {text("#!/usr/bin/env -i sh"), 0o700, nil, "only names are read"},
		"by PATH":                     {text("#!/usr/bin/env interpreter"), 0o700, map[string]string{"PATH": "/usr/bin:" + dir}, dir},
		"by PATH before root's":       {text("#!/usr/bin/env sh"), 0o700, map[string]string{"PATH": dir + ":/usr/bin:/bin"}, dir},
		"by PATH of the folder":       {text("#!/usr/bin/env sh"), 0o700, map[string]string{"PATH": ":/usr/bin"}, `the folder ""`},
		"by no PATH":                  {text("#!/usr/bin/env interpreter"), 0o700, nil, "in no folder of PATH"},
		"a line without an end":       {[]byte("#!/bin/sh " + strings.Repeat(" ", 300) + mine), 0o700, nil, "longer than"},

		// What the dynamic loader is given.
		"libraries beside it":       {tags(elf.DT_RUNPATH, "$ORIGIN/lib"), 0o700, nil, "$ORIGIN"},
		"libraries of others'":      {tags(elf.DT_RUNPATH, "/usr/lib:"+dir), 0o700, nil, dir},
		"libraries by RPATH":        {tags(elf.DT_RPATH, dir), 0o700, nil, dir},
		"libraries that may come":   {tags(elf.DT_RUNPATH, dir+"/missing"), 0o700, nil, "missing"},
		"libraries of the folder":   {tags(elf.DT_RUNPATH, "/usr/lib:"), 0o700, nil, `the folder ""`},
		"libraries of a subfolder":  {tags(elf.DT_RUNPATH, "lib"), 0o700, nil, `the folder "lib"`},
		"libraries of a system":     {tags(elf.DT_RUNPATH, "/usr/$LIB"), 0o700, nil, `"/usr/$LIB"`},
		"library of others'":        {tags(elf.DT_NEEDED, mine), 0o700, nil, mine},
		"library of the folder":     {tags(elf.DT_NEEDED, "./libgo.so"), 0o700, nil, `"./libgo.so", ` + theirs},
		"audit":                     {tags(elf.DT_AUDIT, mine), 0o700, nil, mine},
		"audit of what it needs":    {tags(elf.DT_DEPAUDIT, "libc.so.6:"+mine), 0o700, nil, mine},
		"filter":                    {tags(elf.DT_FILTER, mine), 0o700, nil, mine},
		"auxiliary":                 {tags(elf.DT_AUXILIARY, mine), 0o700, nil, mine},
		"text elsewhere":            {tags(elf.DT_NEEDED, uint64(1<<20)), 0o700, nil, "not in it"},
		"LD_PRELOAD":                {shell(t), 0o700, map[string]string{"LD_PRELOAD": "libc.so.6 " + mine}, "the variable LD_PRELOAD names"},
		"LD_AUDIT":                  {text("#!/bin/sh"), 0o700, map[string]string{"LD_AUDIT": mine}, "the variable LD_AUDIT names"},
		"LD_LIBRARY_PATH":           {shell(t), 0o700, map[string]string{"LD_LIBRARY_PATH": "/usr/lib;" + dir}, "the variable LD_LIBRARY_PATH names"},
		"LD_LIBRARY_PATH of folder": {shell(t), 0o700, map[string]string{"LD_LIBRARY_PATH": "/usr/lib:"}, "the variable LD_LIBRARY_PATH names"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := put(t, "tool", tt.text, tt.mode)
			if err := os.Chmod(filepath.Dir(name), 0o777); err != nil { // a folder of others', also for root
				t.Fatal(err)
			}
			p, err := opened(t, name, tt.env)
			if err == nil {
				p.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Programs that only run root's files with them run, as before.
func TestProgramsThatRunRootsFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		text []byte
		env  map[string]string
	}{
		"interpreter":           {[]byte("#!/bin/sh\necho GOOD\n"), nil},
		"option":                {[]byte("#! /bin/sh -eu\necho GOOD\n"), nil},
		"no option":             {[]byte("#!/bin/sh -\necho GOOD\n"), nil},
		"env":                   {[]byte("#!/usr/bin/env sh\necho GOOD\n"), nil},
		"env with an option":    {[]byte("#!/usr/bin/env -S sh -eu\necho GOOD\n"), nil},
		"env by another PATH":   {[]byte("#!/usr/bin/env sh\necho GOOD\n"), map[string]string{"PATH": "/usr/missing:/usr/bin:/bin"}},
		"PATH of no matter":     {[]byte("#!/bin/sh\necho GOOD\n"), map[string]string{"PATH": "/tmp:/usr/bin:/bin"}},
		"no line":               {[]byte("#!/bin/true"), nil},
		"libraries of root's":   {dynamicELF(t, "", elf.DT_RUNPATH, "/usr/lib:/usr/lib/missing", elf.DT_NEEDED, "libc.so.6"), nil},
		"variables of root's":   {shell(t), map[string]string{"LD_LIBRARY_PATH": "/usr/lib", "LD_BIND_NOW": "1"}},
		"a program of one file": {dynamicELF(t, ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := opened(t, put(t, "tool", tt.text, 0o700), tt.env)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if !strings.Contains(string(tt.text), "GOOD") || bytes.HasPrefix(tt.text, []byte(elf.ELFMAG)) {
				return
			}
			if said, err := started(t, p, "tool"); said != "GOOD\n" {
				t.Errorf("it said %q: %v", said, err)
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
	if _, err := open(task.Program{Path: name}, commandfiles.Place{}, nil); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("got %v", err)
	}
}

// dynamicELF is an ELF program without sections, with a loader if that is named, and with tags for it:
// pairs of a tag and its text, or the text's place in the table of texts.
func dynamicELF(t *testing.T, loader string, tags ...any) []byte {
	t.Helper()
	texts, table := "\x00", []elf.Dyn64{}
	for i := 0; i+1 < len(tags); i += 2 {
		one := elf.Dyn64{Tag: int64(tags[i].(elf.DynTag)), Val: uint64(len(texts))}
		switch text := tags[i+1].(type) {
		case string:
			texts += text + "\x00"
		case uint64:
			one.Val = text
		}
		table = append(table, one)
	}
	const headers = 64 + 3*56
	size, interp := uint64(16*(len(table)+2)), uint64(len(loader)+1)
	strtab := headers + size + interp
	table = append(table, elf.Dyn64{Tag: int64(elf.DT_STRTAB), Val: strtab + 0x1000}, elf.Dyn64{})
	whole := strtab + uint64(len(texts))
	first := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: headers + size, Filesz: interp, Memsz: interp}
	if loader == "" {
		first.Type = uint32(elf.PT_NULL)
	}
	var b bytes.Buffer
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 3}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	for _, v := range []any{
		&header, &first,
		&elf.Prog64{Type: uint32(elf.PT_LOAD), Vaddr: 0x1000, Filesz: whole, Memsz: whole},
		&elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Off: headers, Vaddr: headers + 0x1000, Filesz: size, Memsz: size},
		table, []byte(loader + "\x00" + texts),
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
