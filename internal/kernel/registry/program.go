package registry

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/plainfile"
)

// programs caches the digests of programs that have registered or act by grants.
type programs struct {
	mu    sync.Mutex
	known map[programFile]string
}

// programFile identifies a program at the time of its digest. A write changes it.
type programFile struct {
	device, inode    uint64
	size             int64
	changed, written syscall.Timespec
}

const (
	// maxProgram is the largest program that gets a digest, in bytes.
	maxProgram = 512 << 20
	// somePrograms is the size of the cache.
	somePrograms = 256
)

// running caches the programs that this process has seen.
var running = &programs{known: make(map[programFile]string)}

// own is the program that this process runs, even if its file was replaced since, with its digest:
// "" if it cannot be read.
var own = sync.OnceValue(func() (is struct {
	programFile
	digest string
}) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return is
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return is
	}
	digest, err := plainfile.SHA256(f)
	if err == nil {
		is.programFile, is.digest = fileOf(info), digest
	}
	return is
})

// OwnProgram returns the SHA-256 of the program that this process runs, in the form of records, or
// "" if it cannot be read. The version alone does not tell two builds apart.
func OwnProgram() string {
	if own().digest == "" {
		return ""
	}
	return "sha256:" + own().digest
}

// Program returns the program that a process runs: its path, and the SHA-256 of the running program
// in the form of records, even if another file has its name by now. Both are "" if the daemon may
// not look at the process, and the digest is "" for a program above [maxProgram].
func Program(peer api.Peer) (path, digest string) {
	path, err := peer.Executable()
	if err != nil {
		return "", ""
	}
	_, _, pid := peer.Credentials()
	sum, err := running.digest(fmt.Sprintf("/proc/%d/exe", pid))
	if again, gone := peer.Executable(); gone != nil || again != path {
		// The number belongs to another process by now, or the process runs another program.
		return "", ""
	}
	if err == nil && sum != "" {
		digest = "sha256:" + sum
	}
	return path, digest
}

func (p *programs) digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxProgram {
		return "", err
	}
	file := fileOf(info)
	// Clients that are ocipd itself run the daemon's program.
	if is := own(); is.digest != "" && is.programFile == file {
		return is.digest, nil
	}
	p.mu.Lock()
	known := p.known[file]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	digest, err := plainfile.SHA256(f)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= somePrograms {
		p.known = make(map[programFile]string)
	}
	p.known[file] = digest
	return digest, nil
}

func fileOf(info fs.FileInfo) programFile {
	s := info.Sys().(*syscall.Stat_t) // always of this type for a file of the system
	return programFile{device: s.Dev, inode: s.Ino, size: s.Size, changed: s.Ctim, written: s.Mtim}
}
