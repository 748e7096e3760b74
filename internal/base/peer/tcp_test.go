//go:build linux

package peer

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// accepted makes a connection over TCP.
func accepted(t *testing.T, network, address string) (dialled *net.TCPConn, client, server netip.AddrPort) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return c.(*net.TCPConn), s.RemoteAddr().(*net.TCPAddr).AddrPort(), s.LocalAddr().(*net.TCPAddr).AddrPort()
}

func TestOfTCP(t *testing.T) {
	self, err := NameOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		t.Run(network, func(t *testing.T) {
			dialled, client, server := accepted(t, network, address)
			got, err := OfTCP(client, server)
			if err != nil || got.UID != uint32(os.Geteuid()) || !slices.Equal(got.Holders, []string{self}) {
				t.Fatalf("OfTCP() = %+v, %v", got, err)
			}
			if uid, err := OwnerOfTCP(client, server); err != nil || uid != uint32(os.Geteuid()) {
				t.Errorf("OwnerOfTCP() = %d, %v", uid, err)
			}

			// A second process that has the socket is named too.
			file, err := dialled.File()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("cat")
			cmd.ExtraFiles = []*os.File{file}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Skip(err)
			}
			file.Close()
			child, err := NameOf(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := OfTCP(client, server); err != nil || len(got.Holders) != 2 || !slices.Contains(got.Holders, child) {
				t.Errorf("shared: OfTCP() = %+v, %v", got, err)
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}

			// The socket is gone, also if another one listens at its port.
			dialled.Close()
			if got, err := OfTCP(client, server); !errors.Is(err, ErrGone) {
				t.Errorf("closed: OfTCP() = %+v, %v", got, err)
			}
			if uid, err := OwnerOfTCP(client, server); !errors.Is(err, ErrGone) {
				t.Errorf("closed: OwnerOfTCP() = %d, %v", uid, err)
			}
			other := netip.AddrPortFrom(server.Addr(), server.Port()+1)
			if got, err := OfTCP(client, other); !errors.Is(err, ErrGone) {
				t.Errorf("no such connection: OfTCP() = %+v, %v", got, err)
			}
			if got, err := OfTCP(server, client); err == nil && !slices.Equal(got.Holders, []string{self}) {
				t.Errorf("the own end: OfTCP() = %+v", got)
			}
			if got, err := OfTCP(server, other); !errors.Is(err, ErrGone) {
				t.Errorf("a listener: OfTCP() = %+v, %v", got, err)
			}
		})
	}
}

func FuzzDiag(f *testing.F) {
	id := sockID(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2"))
	good := make([]byte, unix.SizeofNlMsghdr+diagAnswer)
	good[4] = sockDiagByFamily
	copy(good[unix.SizeofNlMsghdr+4:], id)
	good[unix.SizeofNlMsghdr+68] = 7
	f.Add(good)
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255})
	f.Fuzz(func(t *testing.T, answer []byte) {
		inode, _, err := parseDiag(answer, id)
		if err == nil && inode != 0 && !slices.Equal(answer[unix.SizeofNlMsghdr+4:][:36], id[:36]) {
			t.Errorf("%x is about another socket", answer)
		}
	})
}
