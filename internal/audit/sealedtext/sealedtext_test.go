package sealedtext

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

// identity makes a private key, in a file as age-keygen writes it.
func identity(tb testing.TB) (public, file string) {
	tb.Helper()
	k := must[*age.X25519Identity](tb)(age.GenerateX25519Identity())
	return k.Recipient().String(), keyFile(tb, "# public key: "+k.Recipient().String()+"\n"+k.String()+"\n")
}

func keyFile(tb testing.TB, text string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "identity.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

func TestSealedTextIsForItsRecipients(t *testing.T) {
	one, oneFile := identity(t)
	two, twoFile := identity(t)
	_, strangerFile := identity(t)
	r := must[*Recipients](t)(ParseRecipients(one, two))
	for _, text := range []string{"", "text", strings.Repeat("ein längerer Text\n", 20_000)} {
		sealed := must[string](t)(r.Seal(text))
		if !strings.HasPrefix(sealed, "age:") || text != "" && strings.Contains(sealed, text) {
			t.Fatalf("sealed is %.80q", sealed)
		}
		for _, file := range []string{oneFile, twoFile} {
			if got := must[string](t)(Unseal(file, sealed)); got != text {
				t.Errorf("got %.80q back", got)
			}
		}
		if _, err := Unseal(strangerFile, sealed); !errors.Is(err, ErrNotRecipient) {
			t.Errorf("a stranger: %v", err)
		}
		if again := must[string](t)(r.Seal(text)); again == sealed {
			t.Error("sealed twice is the same twice")
		}
	}
}

func TestHybridRecipient(t *testing.T) {
	k := must[*age.HybridIdentity](t)(age.GenerateHybridIdentity())
	r := must[*Recipients](t)(ParseRecipients(k.Recipient().String()))
	file := keyFile(t, k.String()+"\n")
	if got := must[string](t)(Unseal(file, must[string](t)(r.Seal("text")))); got != "text" {
		t.Errorf("got %q back", got)
	}
	other, _ := identity(t)
	_, err := ParseRecipients(other, k.Recipient().String())
	refused(t, err, "cannot seal")
}

func TestSealedTextThatWasChanged(t *testing.T) {
	public, file := identity(t)
	sealed := must[string](t)(must[*Recipients](t)(ParseRecipients(public)).Seal("a text"))
	for i := len(sealScheme); i < len(sealed); i++ {
		other := byte('A')
		if sealed[i] == other {
			other = 'B'
		}
		changed := sealed[:i] + string(other) + sealed[i+1:]
		if got, err := Unseal(file, changed); err == nil && got != "a text" {
			t.Fatalf("byte %d changed: unsealed as %q", i, got)
		}
		if got, err := Unseal(file, sealed[:i]); err == nil {
			t.Fatalf("cut at byte %d: unsealed as %q", i, got)
		}
	}
	_, err := Unseal(file, "a text")
	refused(t, err, "not sealed")
}

func TestWhatIsNoRecipient(t *testing.T) {
	public, file := identity(t)
	private := strings.Split(string(must[[]byte](t)(os.ReadFile(file))), "\n")[1]
	for text, want := range map[string]string{
		"":                           "age-keygen",
		"alice@example.com":          "age-keygen",
		"age1":                       "age1",
		public[:len(public)-1] + "b": "cannot use the recipient",
		private:                      "private key",
		"ssh-ed25519 AAAA":           "age-keygen",
	} {
		_, err := ParseRecipients(text)
		refused(t, err, want)
		if text == private && strings.Contains(err.Error(), private) {
			t.Error("the error says the private key")
		}
	}
	_, err := ParseRecipients()
	refused(t, err, "nobody")
}

func TestWhatIsNoIdentity(t *testing.T) {
	public, _ := identity(t)
	for _, text := range []string{"", "# nothing\n", public + "\n", "AGE-SECRET-KEY-1XXXX\n", "-----BEGIN OPENSSH PRIVATE KEY-----\n"} {
		_, err := ReadIdentities(keyFile(t, text))
		refused(t, err, "age-keygen")
		if strings.Contains(err.Error(), "XXXX") {
			t.Errorf("the error says what was read: %v", err)
		}
	}
	_, err := ReadIdentities(filepath.Join(t.TempDir(), "none"))
	refused(t, err, "cannot read the identity")
}

func FuzzUnseal(f *testing.F) {
	public, file := identity(f)
	r := must[*Recipients](f)(ParseRecipients(public))
	keys := must[Identities](f)(ReadIdentities(file))
	f.Add(must[string](f)(r.Seal("a text")))
	f.Add("age:")
	f.Add("age:YWdlLWVuY3J5cHRpb24ub3JnL3YxCg==")
	f.Fuzz(func(t *testing.T, sealed string) {
		text, err := keys.Unseal(sealed)
		if err == nil && text != "a text" {
			t.Errorf("unsealed what was never sealed: %q", text)
		}
	})
}

func FuzzParseRecipients(f *testing.F) {
	public, _ := identity(f)
	for _, text := range []string{public, "", "age1", "age1pq1", "AGE-SECRET-KEY-1", strings.ToUpper(public)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRecipients(text)
		if err != nil {
			return
		}
		if _, err := r.Seal("text"); err != nil {
			t.Errorf("%q is accepted, and nothing can be sealed to it: %v", text, err)
		}
	})
}

func must[T any](tb testing.TB) func(T, error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want one that says %q", err, want)
	}
}
