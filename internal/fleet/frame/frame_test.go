package frame

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"
)

// pair makes the keys of a host.
func pair(t testing.TB) (ed25519.PrivateKey, *ecdh.PrivateKey) {
	t.Helper()
	_, sign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	seal, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign, seal
}

func header() *Header {
	return &Header{Kind: Message, Tenant: "acme", From: "a", FromEpoch: 1, To: "b", ToEpoch: 2, Seq: 7, ID: "id", Expires: time.Unix(1, 0).UTC()}
}

func TestSealAndOpen(t *testing.T) {
	sign, seal := pair(t)
	for _, body := range [][]byte{nil, []byte("text"), bytes.Repeat([]byte("x"), MaxBody)} {
		h := header()
		if len(body) == MaxBody {
			h.ID = strings.Repeat("i", 1500)
		}
		f, err := Seal(h, body, seal.PublicKey(), sign)
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse(f)
		if err != nil || read.Header != *h {
			t.Fatalf("the header is %+v: %v", read, err)
		}
		got, err := read.Open(sign.Public().(ed25519.PublicKey), seal)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("the body has %d bytes, want %d: %v", len(got), len(body), err)
		}
		if bytes.Contains(f, []byte("text")) {
			t.Error("the body can be read")
		}
	}
	if _, err := Seal(header(), make([]byte, MaxBody+1), seal.PublicKey(), sign); err == nil {
		t.Error("a body over the limit is sealed")
	}
}

// Each byte of a frame is covered: a frame with another one is refused, and so is one for another key or
// of another sender.
func TestChangedFrames(t *testing.T) {
	sign, seal := pair(t)
	other, stranger := pair(t)
	f, err := Seal(header(), []byte("text"), seal.PublicKey(), sign)
	if err != nil {
		t.Fatal(err)
	}
	public := sign.Public().(ed25519.PublicKey)
	for i := range f {
		changed := bytes.Clone(f)
		changed[i] ^= 1
		if read, err := Parse(changed); err == nil {
			if _, err := read.Open(public, seal); err == nil {
				t.Fatalf("byte %d is not covered", i)
			}
		}
	}
	read, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read.Open(other.Public().(ed25519.PublicKey), seal); !errors.Is(err, ErrSignature) {
		t.Errorf("another sender's key: %v", err)
	}
	if _, err := read.Open(nil, seal); !errors.Is(err, ErrSignature) {
		t.Errorf("no key: %v", err)
	}
	if _, err := read.Open(public, stranger); err == nil {
		t.Error("another receiver opens it")
	}
	// A sealed body cannot be signed again under another header.
	n := lengthBytes + len(read.header)
	sealed := f[n : len(f)-ed25519.SignatureSize]
	h := header()
	h.Seq = 8
	again, err := Seal(h, nil, seal.PublicKey(), other)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := Parse(again)
	if err != nil {
		t.Fatal(err)
	}
	whole := append(bytes.Clone(again[:lengthBytes+len(moved.header)]), sealed...)
	moved.whole, moved.sealed = whole, sealed
	moved.signature = ed25519.Sign(other, append([]byte(signText), whole...))
	if _, err := moved.Open(other.Public().(ed25519.PublicKey), seal); err == nil || errors.Is(err, ErrSignature) {
		t.Errorf("a body under another header: %v", err)
	}
}

func TestHeaders(t *testing.T) {
	sign, seal := pair(t)
	for what, change := range map[string]func(*Header){
		"kind": func(h *Header) { h.Kind = "x" }, "tenant": func(h *Header) { h.Tenant = "" }, "from": func(h *Header) { h.From = "" }, "to": func(h *Header) { h.To = "" },
		"id": func(h *Header) { h.ID = "" }, "from epoch": func(h *Header) { h.FromEpoch = 0 }, "to epoch": func(h *Header) { h.ToEpoch = -1 }, "seq": func(h *Header) { h.Seq = 0 },
		"long": func(h *Header) { h.ID = strings.Repeat("x", maxHeader) },
	} {
		h := header()
		change(h)
		if _, err := Seal(h, nil, seal.PublicKey(), sign); err == nil {
			t.Errorf("%s: it is sealed", what)
		}
	}
}

func TestOutcomes(t *testing.T) {
	want := Outcome{Result: Deny, Code: "C", Reason: "r", Log: "l", Record: 3, Hash: "h"}
	body, err := want.Write()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadOutcome(body); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"result":"maybe","log":"l","record":1,"hash":""}`, `{"result":"allow","log":"l","record":0,"hash":""}`, `{"result":"allow","log":"l","record":1,"hash":"","more":1}`, `{"result":"deny","result":"allow","log":"l","record":1,"hash":""}`} {
		if got, err := ReadOutcome([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, got)
		}
	}
}

// No bytes crash the parser, and what it reads can be neither longer than a frame nor opened with a key
// that has not signed it.
func FuzzParse(f *testing.F) {
	sign, seal := pair(f)
	for _, h := range []*Header{header(), {Kind: Void, Tenant: "t", From: "a", FromEpoch: 1, To: "b", ToEpoch: 1, Seq: 1, ID: "x"}} {
		good, err := Seal(h, []byte("body"), seal.PublicKey(), sign)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(good)
		f.Add(good[:len(good)-70])
	}
	f.Add([]byte{0xff, 0xff})
	f.Add([]byte{0, 2, '{', '}'})
	stranger, _ := pair(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		read, err := Parse(b)
		if err != nil {
			return
		}
		if err := read.check(); err != nil || len(b) > MaxBytes {
			t.Fatalf("%d bytes were read as %+v: %v", len(b), read.Header, err)
		}
		if _, err := read.Open(stranger.Public().(ed25519.PublicKey), seal); !errors.Is(err, ErrSignature) {
			t.Fatalf("it is opened: %v", err)
		}
	})
}
