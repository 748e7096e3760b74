package keyring

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/mod/sumdb/note"
)

// signs checks that a public key accepts the signatures of a key.
func signs(t *testing.T, signer note.Signer, public string) {
	t.Helper()
	verifier := must[note.Verifier](t)(note.NewVerifier(public))
	signed := must[[]byte](t)(note.Sign(&note.Note{Text: "text\n"}, signer))
	if _, err := note.Open(signed, note.VerifierList(verifier)); err != nil {
		t.Errorf("%s does not accept what %s signed: %v", public, signer.Name(), err)
	}
}

func TestSigningKeyIsMadeOnceAndStays(t *testing.T) {
	dir := place(t)
	s := opened(t, dir)
	if !strings.HasPrefix(s.Verifier(), logName+"+") {
		t.Errorf("the public key is %s, want the log's name in front", s.Verifier())
	}
	signs(t, s.Note(), s.Verifier())
	again := opened(t, dir)
	if again.Verifier() != s.Verifier() {
		t.Errorf("the key was %s and is %s", s.Verifier(), again.Verifier())
	}
	signs(t, again.Note(), s.Verifier())
	text := must[[]byte](t)(os.ReadFile(filepath.Join(dir, publicFile)))
	if string(text) != s.Verifier()+"\n" {
		t.Errorf("%s holds %q", publicFile, text)
	}
	// The public file is a copy, and is repaired.
	if err := os.WriteFile(filepath.Join(dir, publicFile), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	opened(t, dir)
	if healed := must[[]byte](t)(os.ReadFile(filepath.Join(dir, publicFile))); string(healed) != string(text) {
		t.Errorf("%s holds %q", publicFile, healed)
	}
}

func TestKeyOfAnotherLogIsRefused(t *testing.T) {
	dir := place(t)
	opened(t, dir)
	_, err := OpenSigner(dir, "ocipd/another", rand.Reader)
	refused(t, err, logName, "ocipd/another")
	_, err = OpenSigner(place(t), "two words", rand.Reader)
	refused(t, err, "two words")
}

func TestLostKeyIsNotReplacedUnasked(t *testing.T) {
	dir := place(t)
	opened(t, dir)
	if err := os.Remove(filepath.Join(dir, signingFile)); err != nil {
		t.Fatal(err)
	}
	_, err := OpenSigner(dir, logName, rand.Reader)
	refused(t, err, signingFile, "backup", publicFile)
	if err := os.Remove(filepath.Join(dir, publicFile)); err != nil {
		t.Fatal(err)
	}
	opened(t, dir)
}

func TestNoRandomnessNoKey(t *testing.T) {
	dir := place(t)
	_, err := OpenSigner(dir, logName, iotest.ErrReader(errors.New("no entropy")))
	refused(t, err, "no entropy")
	if _, err := os.Lstat(filepath.Join(dir, signingFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key file was written: %v", err)
	}
}

func TestRotation(t *testing.T) {
	dir := place(t)
	s := opened(t, dir)
	var was []string
	for range 3 {
		was = append(was, s.Verifier())
		next, public, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		signs(t, next, public)
		if s.Verifier() != was[len(was)-1] {
			t.Fatal("the next key is in force before its time")
		}
		signs(t, s.Note(), s.Verifier())
		if again := must[string](t)(second(s.Next())); again != public {
			t.Fatalf("asked again, the next key is another: %s and %s", public, again)
		}
		if err := s.Promote(); err != nil {
			t.Fatal(err)
		}
		if s.Verifier() != public {
			t.Fatalf("in force is %s, want %s", s.Verifier(), public)
		}
		signs(t, s.Note(), public)
		if err := s.Settle(public); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, s.Promote(), "no next one")
	if is := opened(t, dir).Verifier(); is != s.Verifier() {
		t.Errorf("after a restart the key is %s, want %s", is, s.Verifier())
	}
	keys := must[[]PublicKey](t)(PublicKeys(dir))
	if len(keys) != len(was)+1 {
		t.Fatalf("%d public keys are there: %+v", len(keys), keys)
	}
	for i, k := range keys {
		if want := append(was, s.Verifier())[i]; k.Verifier != want || k.At.IsZero() {
			t.Errorf("public key %d is %+v, want %s", i, k, want)
		}
	}
	// Only the private key in force is left.
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(dir)) {
		text := must[[]byte](t)(os.ReadFile(filepath.Join(dir, e.Name())))
		if e.Name() != signingFile && strings.Contains(string(text), "PRIVATE") {
			t.Errorf("%s holds a private key", e.Name())
		}
	}
}

func second[A, B any](_ A, b B, err error) (B, error) { return b, err }

// A rotation that is killed at any step ends with the key that the log names.
func TestRotationKilledAnywhere(t *testing.T) {
	steps := len(new(Signer).promotion())
	for done := -1; done <= steps; done++ {
		for _, recorded := range []bool{false, true} {
			if !recorded && done > 0 {
				continue // promotion follows the record
			}
			dir := place(t)
			s := opened(t, dir)
			was := s.Verifier()
			inForce := was
			if done >= 0 {
				_, next, err := s.Next()
				if err != nil {
					t.Fatal(err)
				}
				if recorded {
					inForce = next
				}
				for _, step := range s.promotion()[:done] {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
			}
			for restart := range 2 {
				again := opened(t, dir)
				if err := again.Settle(inForce); err != nil {
					t.Fatalf("killed after step %d, recorded %t, start %d: %v", done, recorded, restart, err)
				}
				if again.Verifier() != inForce {
					t.Fatalf("killed after step %d, recorded %t: %s is in force, the log says %s", done, recorded, again.Verifier(), inForce)
				}
				signs(t, again.Note(), inForce)
				text := must[[]byte](t)(os.ReadFile(filepath.Join(dir, publicFile)))
				if string(text) != inForce+"\n" {
					t.Fatalf("killed after step %d, recorded %t: %s holds %s", done, recorded, publicFile, text)
				}
			}
			if _, err := os.Lstat(filepath.Join(dir, nextFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("killed after step %d, recorded %t: the next key is still there", done, recorded)
			}
			keys := must[[]PublicKey](t)(PublicKeys(dir))
			if inForce != was && (len(keys) != 2 || keys[0].Verifier != was) || inForce == was && len(keys) != 1 {
				t.Fatalf("killed after step %d, recorded %t: public keys are %+v", done, recorded, keys)
			}
		}
	}
}

func TestKeyThatIsNotInForce(t *testing.T) {
	s, other := opened(t, place(t)), opened(t, place(t))
	if err := s.Settle(""); err != nil {
		t.Errorf("a log that was never signed: %v", err)
	}
	if err := s.Settle(s.Verifier()); err != nil {
		t.Error(err)
	}
	err := s.Settle(other.Verifier())
	if !errors.Is(err, ErrNotInForce) {
		t.Fatalf("got %v", err)
	}
	refused(t, err, other.Verifier(), signingFile)
	// A next key is not removed because of it, since it may be useful.
	if _, _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(other.Verifier()); !errors.Is(err, ErrNotInForce) || s.next == nil {
		t.Errorf("got %v, next %v", err, s.next)
	}
}

func TestPublicKeysOfNoLog(t *testing.T) {
	if _, err := PublicKeys(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	dir := place(t)
	opened(t, dir)
	if err := os.WriteFile(filepath.Join(dir, publicFile), []byte("no key\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := PublicKeys(dir)
	refused(t, err, publicFile)
}

func FuzzParseSigningKey(f *testing.F) {
	private, _, err := note.GenerateKey(rand.Reader, logName)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{private, "", "PRIVATE+KEY+a+00000000+AQ==", private + "+", strings.Replace(private, "+", " ", 1)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseSigningKey(text)
		if err != nil {
			if len(text) > 20 && strings.Contains(err.Error(), text) {
				t.Errorf("the error says the key: %v", err)
			}
			return
		}
		signs(t, k.signer, k.public)
	})
}
