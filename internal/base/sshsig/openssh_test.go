package sshsig

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// These tests compare the package with the real ssh-keygen and ssh-agent.

// openSSH is a folder to run the programs of OpenSSH in.
type openSSH struct {
	dir string
}

func newOpenSSH(t *testing.T) openSSH {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not in PATH")
	}
	// A socket's path may have 107 bytes, too few for that of t.TempDir.
	dir, err := os.MkdirTemp("", "sshsig")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return openSSH{dir}
}

// run runs a program to its end.
func (o openSSH) run(stdin []byte, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin = o.dir, bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (o openSSH) must(t *testing.T, stdin []byte, name string, args ...string) {
	t.Helper()
	if _, err := o.run(stdin, name, args...); err != nil {
		t.Fatal(err)
	}
}

func (o openSSH) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (o openSSH) read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(o.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func (o openSSH) publicKey(t *testing.T, name string) ssh.PublicKey {
	t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey(o.read(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// verify is ssh-keygen -Y verify of message, at noon.
func (o openSSH) verify(t *testing.T, lines string, armored []byte, principal string, message []byte) error {
	t.Helper()
	o.write(t, "allowed_signers", []byte(lines+"\n"))
	o.write(t, "sig", armored)
	_, err := o.run(message, "ssh-keygen", "-Y", "verify", "-f", "allowed_signers", "-I", principal,
		"-n", namespace, "-s", "sig", "-O", "verify-time="+noon.Format("20060102150405Z"))
	return err
}

// keyTypes are arguments of ssh-keygen -t.
func keyTypes() map[string][]string {
	return map[string][]string{
		"ed25519": {"ed25519"}, "ecdsa256": {"ecdsa", "-b", "256"}, "ecdsa384": {"ecdsa", "-b", "384"},
		"ecdsa521": {"ecdsa", "-b", "521"}, "rsa": {"rsa", "-b", "2048"},
	}
}

func TestOpenSSHBothWays(t *testing.T) {
	for name, args := range keyTypes() {
		t.Run(name, func(t *testing.T) {
			o := newOpenSSH(t)
			o.must(t, nil, "ssh-keygen", append([]string{"-q", "-N", "", "-f", "id", "-t"}, args...)...)
			line := listLine("alice@example.com", `namespaces="`+namespace+`"`, o.publicKey(t, "id.pub"))
			s := list(t, line)

			for _, hash := range []string{"sha256", "sha512"} {
				o.write(t, "message", message)
				o.must(t, nil, "ssh-keygen", "-q", "-Y", "sign", "-f", "id", "-n", namespace, "-O", "hashalg="+hash, "message")
				armored := o.read(t, "message.sig")
				if err := os.Remove(filepath.Join(o.dir, "message.sig")); err != nil {
					t.Fatal(err)
				}
				if got, err := s.VerifyAs("alice@example.com", armored, message, namespace, noon); err != nil {
					t.Errorf("%s by ssh-keygen: %v", hash, err)
				} else if fingerprint, err := o.run(nil, "ssh-keygen", "-l", "-f", "id.pub"); err != nil || !strings.Contains(fingerprint, got.Fingerprint) {
					t.Errorf("got fingerprint %s, want %s, %v", got.Fingerprint, fingerprint, err)
				}
				_, err := s.Verify(armored, append(bytes.Clone(message), '!'), namespace, noon)
				expect(t, err, ErrBadSignature)
				_, err = s.Verify(armored, message, "git", noon)
				expect(t, err, ErrNamespace)
			}

			private, err := ssh.ParsePrivateKey(o.read(t, "id"))
			if err != nil {
				t.Fatal(err)
			}
			armored := sign(t, private)
			if err := o.verify(t, line, armored, "alice@example.com", message); err != nil {
				t.Error(err)
			}
			if o.verify(t, line, armored, "alice@example.com", []byte("something else")) == nil {
				t.Error("ssh-keygen accepts another message")
			}
			if o.verify(t, line, armored, "bob@example.com", message) == nil {
				t.Error("ssh-keygen accepts another principal")
			}
		})
	}
}

// TestOpenSSHFIDO has ssh-keygen confirm that the authenticator of these tests
// signs as a real one does. It does not ask for a touch.
func TestOpenSSHFIDO(t *testing.T) {
	o := newOpenSSH(t)
	for _, keyType := range []string{ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256} {
		for _, flags := range []byte{0, flagPresent, flagPresent | flagVerified} {
			device := newAuthenticator(t, keyType, flags)
			line := listLine("alice", "", device.PublicKey())
			armored := sign(t, device)
			if err := o.verify(t, line, armored, "alice", message); err != nil {
				t.Errorf("%s, flags %b: %v", keyType, flags, err)
			}
			if o.verify(t, line, armored, "alice", []byte("something else")) == nil {
				t.Errorf("%s, flags %b: ssh-keygen accepts another message", keyType, flags)
			}
		}
	}
}

func TestOpenSSHCertificates(t *testing.T) {
	for name, args := range keyTypes() {
		t.Run(name, func(t *testing.T) {
			o := newOpenSSH(t)
			for _, key := range []string{"authority", "id"} {
				o.must(t, nil, "ssh-keygen", append([]string{"-q", "-N", "", "-f", key, "-t"}, args...)...)
			}
			o.must(t, nil, "ssh-keygen", "-q", "-s", "authority", "-I", "laptop", "-n", "alice@example.com,root",
				"-z", "7", "-V", "20260101000000Z:20270101000000Z", "id.pub")
			line := listLine("*@example.com", "cert-authority", o.publicKey(t, "authority.pub"))
			s := list(t, line)

			o.write(t, "message", message)
			o.must(t, nil, "ssh-keygen", "-q", "-Y", "sign", "-f", "id-cert.pub", "-n", namespace, "message")
			armored := o.read(t, "message.sig")
			got, err := s.Verify(armored, message, namespace, noon)
			if err != nil || got.Principal != "alice@example.com" || got.CertificateID != "laptop" || got.Serial != 7 {
				t.Errorf("by ssh-keygen: %+v, %v", got, err)
			}
			_, err = s.Verify(armored, message, namespace, noon.AddDate(1, 0, 0))
			expect(t, err, ErrExpired)

			private, err := ssh.ParsePrivateKey(o.read(t, "id"))
			if err != nil {
				t.Fatal(err)
			}
			certified, err := ssh.NewCertSigner(o.publicKey(t, "id-cert.pub").(*ssh.Certificate), private)
			if err != nil {
				t.Fatal(err)
			}
			armored = sign(t, certified)
			if err := o.verify(t, line, armored, "alice@example.com", message); err != nil {
				t.Error(err)
			}
			if o.verify(t, line, armored, "root", message) == nil {
				t.Error("ssh-keygen accepts a principal that is not on the line")
			}
		})
	}
}

// TestOpenSSHAgrees asks ssh-keygen and this package the same questions about the list.
func TestOpenSSHAgrees(t *testing.T) {
	o := newOpenSSH(t)
	signer, authority := ed25519Signer(t, "alice"), ed25519Signer(t, "authority")
	key, other := signer.PublicKey(), ed25519Signer(t, "bob").PublicKey()
	alone := sign(t, signer)
	certified := sign(t, certify(t, signer, authority, nil))
	local := func(t time.Time, layout string) string { return t.In(time.Local).Format(layout) }
	const seconds, minutes, day = "20060102150405", "200601021504", "20060102"
	yes, no := 0, 0
	for _, armored := range [][]byte{alone, certified} {
		for _, line := range []string{
			listLine("alice@example.com", "", key),
			listLine("alice@example.com", "", other),
			listLine("alice@example.com", "", other) + "\n" + listLine("alice@example.com", "", key),
			listLine("alice@example.com", `namespaces="git"`, key) + "\n" + listLine("alice@example.com", "", key),
			listLine("*", "", key),
			listLine("*@example.com", "", key),
			listLine("?lice@*", "", key),
			listLine("bob,,alice@example.com", "", key),
			listLine("*@example.com,!alice@example.com", "", key),
			listLine("!alice@example.com,*@example.com", "", key),
			listLine("!*@example.org,*", "", key),
			listLine(`"alice@example.com"`, "", key),
			listLine(`"root user,alice@example.com"`, "", key),
			listLine("Alice@example.com", "", key),
			strings.ReplaceAll(listLine("alice@example.com", "", key), " ", " \t"),
			"# comment\n\n  \t\n" + listLine("alice@example.com", "", key) + " comment",
			listLine("alice@example.com", `namespaces="`+namespace+`"`, key),
			listLine("alice@example.com", `NameSpaces="approval@*"`, key),
			listLine("alice@example.com", `namespaces="git,file"`, key),
			listLine("alice@example.com", `namespaces="*,!approval@example.com"`, key),
			listLine("alice@example.com", `valid-after="20260313Z"`, key),
			listLine("alice@example.com", `valid-after="20260314Z"`, key),
			listLine("alice@example.com", `valid-after="202603131200Z"`, key),
			listLine("alice@example.com", `valid-after="202603131201Z"`, key),
			listLine("alice@example.com", `valid-after="20260313120000Z"`, key),
			listLine("alice@example.com", `valid-after="20260313120001Z"`, key),
			listLine("alice@example.com", `valid-before="20260313Z"`, key),
			listLine("alice@example.com", `valid-before="20260314Z"`, key),
			listLine("alice@example.com", `valid-before="20260313120000Z"`, key),
			listLine("alice@example.com", `valid-before="20260313115959Z"`, key),
			listLine("alice@example.com", `valid-after="20260313Z",valid-before="20260314Z",namespaces="*"`, key),
			listLine("alice@example.com", `valid-after="`+local(noon, seconds)+`"`, key),
			listLine("alice@example.com", `valid-after="`+local(noon.Add(time.Second), seconds)+`"`, key),
			listLine("alice@example.com", `valid-before="`+local(noon, minutes)+`"`, key),
			listLine("alice@example.com", `valid-before="`+local(noon.Add(-time.Minute), minutes)+`"`, key),
			listLine("alice@example.com", `valid-after="`+local(noon.AddDate(0, 0, 1), day)+`"`, key),
			listLine("alice@example.com", "cert-authority", key),
			listLine("alice@example.com", "cert-authority", authority.PublicKey()),
			listLine("*@example.com", "CERT-Authority", authority.PublicKey()),
			listLine("*@example.com,!alice@*", "cert-authority", authority.PublicKey()),
			listLine("*", `cert-authority,namespaces="git"`, authority.PublicKey()),
			listLine("*", `cert-authority,valid-before="20260313Z"`, authority.PublicKey()),
			listLine("*", "", authority.PublicKey()),
		} {
			for _, principal := range []string{"alice@example.com", "bob@example.com", "root@example.net"} {
				_, err := list(t, line).VerifyAs(principal, armored, message, namespace, noon)
				theirs := o.verify(t, line, armored, principal, message)
				if (err == nil) != (theirs == nil) {
					t.Errorf("%s for %s: got %v, and of ssh-keygen %v", line, principal, err, theirs)
				}
				if err == nil {
					yes++
				} else {
					no++
				}
			}
		}
	}
	if yes < 20 || no < 20 {
		t.Errorf("%d accepted and %d refused: the questions are too easy", yes, no)
	}
}

// TestOpenSSHIsMilder documents the cases that ssh-keygen accepts and this package refuses.
func TestOpenSSHIsMilder(t *testing.T) {
	o := newOpenSSH(t)
	authority := ed25519Signer(t, "authority")
	certified := certify(t, ed25519Signer(t, "alice"), authority, func(c *ssh.Certificate) {
		c.CriticalOptions = map[string]string{"force-command": "true"}
	})
	line := listLine("*", "cert-authority", authority.PublicKey())
	armored := sign(t, certified)
	if err := o.verify(t, line, armored, "alice@example.com", message); err != nil {
		t.Errorf("ssh-keygen has learnt it: %v", err)
	}
	_, err := list(t, line).VerifyAs("alice@example.com", armored, message, namespace, noon)
	expect(t, err, ErrCertificate)
}

func TestOpenSSHAgent(t *testing.T) {
	o := newOpenSSH(t)
	client := o.startAgent(t)
	for name, args := range keyTypes() {
		o.must(t, nil, "ssh-keygen", append([]string{"-q", "-N", "", "-f", name, "-t"}, args...)...)
		private, err := ssh.ParseRawPrivateKey(o.read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Add(agent.AddedKey{PrivateKey: private, Comment: name}); err != nil {
			t.Fatal(err)
		}
	}
	o.must(t, nil, "ssh-keygen", "-q", "-s", "ed25519", "-I", "laptop", "-n", "alice", "-V", "20260101000000Z:20270101000000Z", "rsa.pub")
	trusted := listLine("alice", "cert-authority", o.publicKey(t, "ed25519.pub"))

	for name := range keyTypes() {
		key := o.publicKey(t, name+".pub")
		line := listLine("alice", "", key)
		for _, wanted := range []string{ssh.FingerprintSHA256(key), string(ssh.MarshalAuthorizedKey(key)), filepath.Join(o.dir, name+".pub")} {
			signer, err := AgentSigner(client, wanted)
			if err != nil {
				t.Fatalf("%s: %v", wanted, err)
			}
			armored := sign(t, signer)
			if _, err := list(t, line).VerifyAs("alice", armored, message, namespace, noon); err != nil {
				t.Errorf("%s: %v", wanted, err)
			}
			if err := o.verify(t, line, armored, "alice", message); err != nil {
				t.Errorf("%s: %v", wanted, err)
			}
		}
	}
	signer, err := AgentSigner(client, filepath.Join(o.dir, "rsa-cert.pub"))
	if err != nil {
		t.Fatal(err)
	}
	armored := sign(t, signer)
	if got, err := list(t, trusted).Verify(armored, message, namespace, noon); err != nil || got.CertificateID != "laptop" {
		t.Errorf("certificate: %+v, %v", got, err)
	}
	if err := o.verify(t, trusted, armored, "alice", message); err != nil {
		t.Errorf("certificate: %v", err)
	}

	if err := client.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := Sign(signer, message, namespace); err == nil || !strings.HasPrefix(err.Error(), "cannot sign with key SHA256:") {
		t.Errorf("a key that was removed: %v", err)
	}
}

// startAgent starts an ssh-agent and returns a client of it.
func (o openSSH) startAgent(t *testing.T) agent.ExtendedAgent {
	t.Helper()
	socket := filepath.Join(o.dir, "agent.sock")
	cmd := exec.Command("ssh-agent", "-D", "-a", socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// It prints its address when it listens.
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, socket) {
		t.Fatalf("ssh-agent said %q, %v", line, err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return agent.NewClient(conn)
}
