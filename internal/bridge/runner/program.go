package runner

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/openclawos/ocipd/internal/base/place"
	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"golang.org/x/sys/unix"
)

// maxProgram bounds a program that runs from memory. maxFirstLine bounds the line in which
// a script names its interpreter, as in the kernel.
const (
	maxProgram   = 1 << 30
	maxFirstLine = 256
)

// given is the path of a command's program: the second extra file of [Exec].
const given = "/proc/self/fd/4"

// program is the program of a command: hashed bytes that nobody can change any more.
type program struct {
	*os.File
	// path is the path to execute.
	path string
}

// open prepares an approved program, and refuses a changed one. A program that only root
// can change runs in place. Any other is hashed while it is copied into a sealed memory
// file, and runs from there, so a later change to the file or its name has no effect.
func open(p task.Program) (*program, error) {
	f, err := plainfile.Open(p.Path)
	if err != nil {
		return nil, fmt.Errorf("the program: %w", err)
	}
	if os.Geteuid() != 0 && place.Roots(p.Path) {
		sum, err := plainfile.SHA256(f)
		var begin [2]byte
		if err == nil {
			_, err = f.ReadAt(begin[:], 0)
		}
		r := &program{File: f, path: given}
		if string(begin[:]) == "#!" {
			r.path = p.Path
		}
		return r.checked(p, sum, err)
	}
	defer f.Close()
	copied, sum, err := seal(f)
	if err == nil && sum == p.SHA256 {
		err = runsFromMemory(f, copied)
	}
	return (&program{File: copied, path: given}).checked(p, sum, err)
}

// checked returns the program, or an error if it failed or is not p.
func (r *program) checked(p task.Program, sum string, err error) (*program, error) {
	switch {
	case err != nil:
		err = fmt.Errorf("the program %s: %w", p.Path, err)
	case sum != p.SHA256:
		err = fmt.Errorf("the program %s is not the one that was approved", p.Path)
	default:
		return r, nil
	}
	if r.File != nil {
		r.Close() //nolint:errcheck // nothing was written
	}
	return nil, err
}

// seal copies a file into memory that cannot be changed any more, and returns the digest of
// the copy in hex.
func seal(f *os.File) (copied *os.File, sum string, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if info.Size() > maxProgram {
		return nil, "", fmt.Errorf("it is run from memory, and has more than %d bytes", maxProgram)
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("program", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		// Before Linux 6.3, every memory file is executable.
		fd, err = unix.MemfdCreate("program", flags)
	}
	if err != nil {
		return nil, "", fmt.Errorf("this system has nothing run from memory (vm.memfd_noexec): %w", err)
	}
	copied = os.NewFile(uintptr(fd), "program")
	h := sha256.New()
	if _, err = io.Copy(io.MultiWriter(copied, h), io.LimitReader(f, info.Size())); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		copied.Close() //nolint:errcheck // nobody uses it
		return nil, "", err
	}
	return copied, hex.EncodeToString(h.Sum(nil)), nil
}

// fromMemory begins the reason why a copy would not behave like its program.
const fromMemory = "it would be run from memory, since others than root can change it, and there "

// runsFromMemory says why a copy of a program would not behave like the program in its place.
func runsFromMemory(f, copied *os.File) error {
	if err := unix.Faccessat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("it cannot be executed: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		_, err := unix.Fgetxattr(int(f.Fd()), "security.capability", nil)
		if err == nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			return errors.New(fromMemory + "it has no rights of its own (setuid, setgid, file capabilities)")
		}
	}
	begin := make([]byte, maxFirstLine)
	n, err := copied.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	begin = begin[:n]
	if line, ok := bytes.CutPrefix(begin, []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		// The system ends the name at these two characters alone.
		words := strings.FieldsFunc(string(line), func(r rune) bool { return r == ' ' || r == '\t' })
		if len(words) == 0 {
			return errors.New("it is a script, and its first line names no interpreter")
		}
		if !place.Roots(words[0]) {
			return fmt.Errorf("it is a script for %q, which others than root can change: name that one as the program, and the script as its argument", words[0])
		}
		return nil
	}
	if !bytes.HasPrefix(begin, []byte(elf.ELFMAG)) {
		return errors.New(fromMemory + "nothing runs but ELF programs and scripts that name their interpreter (#!)")
	}
	return elfRunsFromMemory(copied)
}

// elfRunsFromMemory is [runsFromMemory] for the copy of an ELF program.
func elfRunsFromMemory(copied *os.File) error {
	e, err := elf.NewFile(copied)
	if err != nil {
		return fmt.Errorf("it is no ELF program: %w", err)
	}
	for _, part := range e.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		// The system starts this program in place of the copy, and opens it by its name.
		name, err := io.ReadAll(io.LimitReader(part.Open(), unix.PathMax))
		if err != nil {
			return fmt.Errorf("it is no ELF program: %w", err)
		}
		name, _, _ = bytes.Cut(name, []byte{0})
		if loader := string(name); !place.Roots(loader) {
			return fmt.Errorf("it is started by the program %q, which others than root can change", loader)
		}
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		// A program without a list of libraries needs none.
		paths, _ := e.DynString(tag)
		for _, path := range paths {
			if strings.Contains(path, "$ORIGIN") || strings.Contains(path, "${ORIGIN}") {
				return fmt.Errorf("%sit does not find its libraries (%s %s)", fromMemory, tag, path)
			}
		}
	}
	return nil
}
