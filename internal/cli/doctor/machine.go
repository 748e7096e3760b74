package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"golang.org/x/sys/unix"
)

// machine checks which facts about peers the kernel can report.
func machine(*Examiner) []Diagnosis {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return []Diagnosis{failed("cannot tell which kernel this is: %v", err).advise("run it on Linux, outside of what hides that, such as a sandbox")}
	}
	release := "Linux " + unix.ByteSliceToString(name.Release[:])
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return []Diagnosis{failed("%s makes no Unix sockets: %v", release, err).advise("run it outside of what keeps them away, such as a sandbox")}
	}
	defer closeAll(pair[:]...)
	cred, err := unix.GetsockoptUcred(pair[0], unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(cred.Uid) != os.Geteuid() {
		return []Diagnosis{failed("%s does not tell who is at the other end of a socket (SO_PEERCRED)", release).
			advise("run the daemon outside of what hides it, such as a sandbox")}
	}
	pidfd, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, soPeerPidfd)
	if err != nil {
		return []Diagnosis{passed("%s: peer credentials available; processes are identified by their start time", release).
			advise("Linux 6.5 pins them by a pidfd, which is stronger where agents are bound to executables")}
	}
	closeAll(pidfd)
	return []Diagnosis{passed("%s: peer credentials and pidfd available", release)}
}

// soPeerPidfd is SO_PEERPIDFD of Linux 6.5.
//
// Source: include/uapi/asm-generic/socket.h.
const soPeerPidfd = 77

func closeAll(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written to them
	}
}

const (
	// maxBehind is how far the clock may be behind the last record. Until it catches up,
	// new records get that record's time, because time never goes back in a log.
	maxBehind = time.Minute
	// slack is the permitted difference from the time between two checks.
	slack = 2 * time.Second
)

// clock checks the clock against the log and the time service.
func (d *Examiner) clock() (found []Diagnosis) {
	if last, err := d.lastTime(); err == nil && !last.IsZero() {
		switch behind := last.Sub(d.now()); {
		case behind > maxBehind:
			found = append(found, failed("the clock is %s behind the last record (%s): it jumped back, or ran ahead before", term.Age(behind), last.Local().Format(time.DateTime)).
				advise("set the clock; until it has caught up, records keep the time of that one"))
		case behind > slack:
			found = append(found, warned("the clock is %s behind the last record", term.Age(behind)).advise("it catches up by itself; look at the time service if it stays"))
		}
	}
	service := "kept by a time service"
	var timex unix.Timex
	_, err := unix.Adjtimex(&timex)
	switch {
	case err != nil:
		service = fmt.Sprintf("whether a time service keeps it cannot be told here (%v)", err)
	case timex.Status&unix.STA_UNSYNC != 0:
		found = append(found, warned("the clock was not set by a time service since the machine started, or not for hours").
			advise("timedatectl says whether one runs: timedatectl set-ntp true starts it, and it needs a server that it reaches; records are evidence of when"))
	}
	return orWell(found, passed("%s, %s", d.now().Format(time.RFC3339), service))
}

// lastTime is the time of the last record; zero if there is none.
func (d *Examiner) lastTime() (time.Time, error) {
	if d.live != nil {
		return d.live.Audit.Time, nil
	}
	r, err := d.openLog()
	if err != nil {
		return time.Time{}, err
	}
	defer r.Close()
	head, err := r.CheckTail(d.ctx)
	return head.Time, err
}

// Limits for a disk's time for one commit.
const (
	// tooFast is faster than any disk that really stores the data.
	tooFast = 20 * time.Microsecond
	// tooSlow is noticeable in each message.
	tooSlow = 20 * time.Millisecond
	// syncs is the number of measured commits, of commitBytes each.
	syncs       = 50
	commitBytes = 4096
)

// disk checks the file system of the database: its kind, its free space and the time of an fsync.
func (d *Examiner) disk() (found []Diagnosis) {
	dir := d.places.state
	for !cli.Exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return []Diagnosis{failed("cannot look at the disk of %s: %v", dir, err).advise("see that you may read the directories above it")}
	}
	kind, remote := fileSystem(uint32(st.Type))
	if remote {
		found = append(found, failed("%s is on %s, where SQLite's locks do not hold", dir, kind).advise("put the state on a disk of this machine: store.url"))
	}
	free := int64(st.Bavail) * st.Bsize
	found = append(found, d.room(free)...)
	if st.Files > 0 && st.Ffree < 1000 {
		found = append(found, failed("the disk of %s has room for %d more files", dir, st.Ffree).advise("remove files there"))
	}
	times, err := measureSync(d.ctx.Err, dir)
	if err != nil {
		return append(found, failed("cannot write to the disk: %v", err).advise("see that %s can be written by you and has room, or put the state elsewhere (store.url)", dir))
	}
	p50, p99 := times[len(times)/2], times[len(times)*99/100]
	took := fmt.Sprintf("an fsync takes %s (p50), %s (p99)", term.Round(p50), term.Round(p99))
	switch {
	case kind == "tmpfs":
		found = append(found, warned("%s is on tmpfs: %s, and a restart of the machine loses everything", dir, took).advise("put the state on a disk: store.url"))
	case p50 < tooFast:
		found = append(found, warned("%s: no disk is that fast, so this one may lose what it says it has", took).
			advise("look for a write cache without a battery, libeatmydata, or a virtual disk that ignores flushes (cache=unsafe)"))
	case p50 > tooSlow:
		found = append(found, warned("%s: every message waits for one", took).advise("put the state on another disk: store.url"))
	}
	return orWell(found, passed("%s free on %s; %s", term.Mebibytes(free), kind, took))
}

// room compares the free space with the configuration.
func (d *Examiner) room(free int64) (found []Diagnosis) {
	c := &d.cfg.Store
	const advice = "make room, or have old records removed: ocipd audit retire, audit.keep"
	switch {
	case free < int64(c.MinFreeBytes):
		found = append(found, failed("%s are free, and store.min_free_bytes asks for %s: nothing new is taken up", term.Mebibytes(free), term.Mebibytes(int64(c.MinFreeBytes))).advise(advice))
	case free < int64(c.WarnFreeBytes):
		found = append(found, warned("%s are free, less than store.warn_free_bytes (%s)", term.Mebibytes(free), term.Mebibytes(int64(c.WarnFreeBytes))).advise(advice))
	}
	info, err := os.Stat(d.places.database + ".reserve")
	if kept := err == nil && info.Size() == int64(c.ReserveBytes); !kept && c.ReserveBytes > 0 && cli.Exists(d.places.database) {
		found = append(found, warned("the reserve for the last records (%s) is not kept", term.Mebibytes(int64(c.ReserveBytes))).
			advise("it comes back by itself when the daemon runs and there is room"))
	}
	return found
}

// fileSystems are the kinds of file systems.
//
// Source: statfs(2), include/uapi/linux/magic.h.
var fileSystems = map[uint32]struct {
	name   string
	remote bool
}{
	unix.EXT4_SUPER_MAGIC: {"ext4", false}, unix.XFS_SUPER_MAGIC: {"xfs", false}, unix.BTRFS_SUPER_MAGIC: {"btrfs", false}, unix.TMPFS_MAGIC: {"tmpfs", false},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlayfs", false}, unix.NFS_SUPER_MAGIC: {"NFS", true}, unix.SMB_SUPER_MAGIC: {"SMB", true}, unix.CIFS_SUPER_MAGIC: {"SMB", true},
	unix.SMB2_SUPER_MAGIC: {"SMB", true}, unix.V9FS_MAGIC: {"9P", true}, unix.CEPH_SUPER_MAGIC: {"Ceph", true},
}

// fileSystem returns the name of a kind of file system, and whether it is remote.
func fileSystem(magic uint32) (name string, remote bool) {
	kind, known := fileSystems[magic]
	if !known {
		return fmt.Sprintf("a file system of kind %#x", magic), false
	}
	return kind.name, kind.remote
}

// measureSync appends and syncs as commits do, and returns the times, shortest first. It
// ends early if stop returns an error.
func measureSync(stop func() error, dir string) (times []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".ocipd-doctor-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	text := make([]byte, commitBytes)
	for range syncs {
		if err := stop(); err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := f.Write(text); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times, nil
}
