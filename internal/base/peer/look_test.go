//go:build linux

package peer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A process is found by its name, with its user, its program and its ancestors.
func TestLook(t *testing.T) {
	cmd := exec.Command(program(t))
	cmd.Env = append(os.Environ(), helperSleeps+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := name(t, int32(cmd.Process.Pid))
	s, err := Look(child)
	if err != nil || s.PID != int32(cmd.Process.Pid) || s.UID != uint32(os.Getuid()) || s.Exe == "" || s.Line[0] != child || s.Line[1] != name(t, int32(os.Getpid())) || s.Line[len(s.Line)-1] != name(t, 1) {
		t.Errorf("a child is %+v, %v", s, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := Look(child); !errors.Is(err, ErrGone) {
		t.Errorf("a child that has ended: %v", err)
	}
	if _, err := Look(strconv.Itoa(os.Getpid()) + "@1"); !errors.Is(err, ErrGone) {
		t.Errorf("an earlier process of the same number: %v", err)
	}
	for _, bad := range []string{"", "7", "@", "x@1", "0@1", "-1@1", "+1@1", "01@1", "1", "99999999999@1"} {
		if s, err := Look(bad); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

// A thread is not its process: its own number must not hide an app's process.
func TestLookAtAThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	if tid == os.Getpid() {
		// The first thread has the number of the process. Another goroutine locks another thread.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			lookAtThread(t, unix.Gettid())
		}()
		<-done
		return
	}
	lookAtThread(t, tid)
}

func lookAtThread(t *testing.T, tid int) {
	thread, err := NameOf(tid)
	if err != nil {
		t.Error(err)
		return
	}
	if s, err := Look(thread); err == nil || !strings.Contains(err.Error(), "thread of process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("thread %s of process %d is %+v, %v", thread, os.Getpid(), s, err)
	}
}

// A process of another user is shown as that user's.
func TestLookAtAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of others")
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	// The other user cannot enter the folder of links.
	if sleep, err = filepath.EvalSymlinks(sleep); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sleep, "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64001, Gid: 64001}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if s, err := Look(name(t, int32(cmd.Process.Pid))); err != nil || s.UID != 64001 || !slices.Contains(s.Line, name(t, int32(os.Getpid()))) {
		t.Errorf("it is %+v, %v", s, err)
	}
}

func TestParseStatus(t *testing.T) {
	for status, want := range map[string]string{
		"Tgid:\t7\nUid:\t5\t5\t5\t5\n": "", "Name:\tUid: 1\nTgid:\t7\nUid:\t5 5 5 5\n": "",
		"Tgid:\t7\nUid:\t5\t0\t5\t5\n": ErrSeveralUsers.Error(), "Tgid:\t6\nUid:\t5\t5\t5\t5\n": "it is a thread of process 6",
		"": "malformed", "Uid:\t5\t5\t5\t5\n": "malformed", "Tgid:\t7\nUid:\t5\t5\t5\n": "malformed", "Tgid:\t7\nUid:\tx\tx\tx\tx\n": "malformed", "Tgid:\t7\nUid:\t-1\t-1\t-1\t-1\n": "malformed",
	} {
		uid, err := parseStatus(status, 7)
		if want == "" && (err != nil || uid != 5) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %d, %v", status, uid, err)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add("Name:\tsh\nTgid:\t7\nUid:\t1000\t1000\t1000\t1000\n", int32(7))
	f.Fuzz(func(t *testing.T, status string, pid int32) {
		if uid, err := parseStatus(status, pid); err == nil && (!strings.Contains(status, "Tgid:") || !strings.Contains(status, strconv.Itoa(int(pid)))) {
			t.Errorf("%q is of user %d", status, uid)
		}
	})
}
