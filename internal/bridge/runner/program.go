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

	"github.com/openclawos/ocipd/internal/base/plainfile"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/commandfiles"
	"golang.org/x/sys/unix"
)

// maxProgram bounds a program that runs from memory.
const maxProgram = 1 << 30

// given is the path of a command's program: the second extra file of [Exec].
const given = "/proc/self/fd/4"

// program is the program of a command: hashed bytes that nobody can change any more.
type program struct {
	*os.File
	// path is the path to execute.
	path string
}

// open prepares an approved program, and refuses a changed one, and one that runs other files with
// it which others than root can change. A program that only root
// can change runs in place. Any other is hashed while it is copied into a sealed memory
// file, and runs from there, so a later change to the file or its name has no effect.
func open(p task.Program, at commandfiles.Place, env map[string]string) (*program, error) {
	f, err := plainfile.Open(p.Path)
	if err != nil {
		return nil, fmt.Errorf("the program: %w", err)
	}
	if !commandfiles.Sealed(p.Path) {
		sum, err := plainfile.SHA256(f)
		var begin [2]byte
		if err == nil {
			_, err = f.ReadAt(begin[:], 0)
		}
		if err == nil && sum == p.SHA256 {
			err = at.Start(f, p.Path, env)
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
		if err == nil {
			err = at.Start(copied, p.Path, env)
		}
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
			return errors.New(commandfiles.FromMemory + "it has no rights of its own (setuid, setgid, file capabilities)")
		}
	}
	begin := make([]byte, len(elf.ELFMAG))
	if _, err := copied.ReadAt(begin, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.HasPrefix(begin, []byte("#!")) && string(begin) != elf.ELFMAG {
		return errors.New(commandfiles.FromMemory + "nothing runs but ELF programs and scripts that name their interpreter (#!)")
	}
	return nil
}
