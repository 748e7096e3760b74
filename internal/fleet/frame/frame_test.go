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
	"unicode"
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
			h.Tenant, h.From, h.To, h.ID = strings.Repeat("\"", 256), strings.Repeat("a", 63), strings.Repeat("b", 63), strings.Repeat("i", 128)
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
		"long id": func(h *Header) { h.ID = strings.Repeat("x", 129) }, "id with a space": func(h *Header) { h.ID = "a b" }, "id with a line end": func(h *Header) { h.ID = "a\n" },
		"long tenant": func(h *Header) { h.Tenant = strings.Repeat("x", 257) }, "tenant with a control": func(h *Header) { h.Tenant = "a\x1b[2J" },
		"long host": func(h *Header) { h.From = strings.Repeat("x", 64) }, "capital host": func(h *Header) { h.To = "B" }, "host with a line end": func(h *Header) { h.From = "a\n" },
	} {
		h := header()
		change(h)
		if _, err := Seal(h, nil, seal.PublicKey(), sign); err == nil {
			t.Errorf("%s: it is sealed", what)
		}
	}
}

func TestOutcomes(t *testing.T) {
	full := Outcome{Result: Deny, Code: strings.Repeat("C", 64), Reason: strings.Repeat("é", 512), Log: strings.Repeat("l", 256), Record: 3, Hash: strings.Repeat("0a", 32)}
	for _, want := range []Outcome{full, {Result: Allow, Record: 1}} {
		body, err := want.Write()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadOutcome(body); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for member, changes := range map[string][]func(*Outcome){
		"code": {
			func(o *Outcome) { o.Code += "C" }, func(o *Outcome) { o.Code = "c" }, func(o *Outcome) { o.Code = "C\n" },
		},
		"reason": {
			func(o *Outcome) { o.Reason += "r" }, func(o *Outcome) { o.Reason = "a\x1b[2J" }, func(o *Outcome) { o.Reason = "a\u0085" },
			func(o *Outcome) { o.Reason = strings.Repeat("r", 400_000) },
		},
		"log":  {func(o *Outcome) { o.Log += "l" }, func(o *Outcome) { o.Log = "é" }, func(o *Outcome) { o.Log = "l\n" }},
		"hash": {func(o *Outcome) { o.Hash += "00" }, func(o *Outcome) { o.Hash = strings.ToUpper(o.Hash) }, func(o *Outcome) { o.Hash = "h" }},
	} {
		for n, change := range changes {
			o := full
			change(&o)
			body, err := o.Write()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ReadOutcome(body); err == nil || !strings.HasPrefix(err.Error(), member+": ") || len(err.Error()) > 100 {
				t.Errorf("%s, change %d: %v", member, n, err)
			}
		}
	}
	for _, bad := range []string{"", "{}", `{"result":"maybe","log":"l","record":1,"hash":""}`, `{"result":"allow","log":"l","record":0,"hash":""}`, `{"result":"allow","log":"l","record":1,"hash":"","more":1}`, `{"result":"deny","result":"allow","log":"l","record":1,"hash":""}`} {
		if got, err := ReadOutcome([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, got)
		}
	}
}

// Whatever a daemon says as a reason, the other host can read it.
func FuzzReason(f *testing.F) {
	for _, seed := range []string{"", "plain", "two\nlines\x00\x7f\u0085", strings.Repeat("😀", 300), "a\xf0\x9f", strings.Repeat("\xff", 2000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, said string) {
		want := Outcome{Result: Deny, Reason: Reason(said), Record: 1}
		body, err := want.Write()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadOutcome(body); err != nil || got != want {
			t.Fatalf("%q is read as %+v: %v", want.Reason, got, err)
		}
		if again := Reason(want.Reason); again != want.Reason {
			t.Fatalf("%q becomes %q", want.Reason, again)
		}
	})
}

// No bytes of a receipt crash its reader, and what it reads is bounded.
func FuzzReadOutcome(f *testing.F) {
	f.Add([]byte(`{"result":"deny","code":"NOT_FOUND","reason":"no agent","log":"l","record":3,"hash":""}`))
	f.Add([]byte(`{"result":"allow","log":"l\u001b","record":1,"hash":"h"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := ReadOutcome(body)
		if err != nil {
			return
		}
		if len(o.Code) > 64 || len(o.Reason) > 1024 || len(o.Log) > 256 || len(o.Hash) != 0 && len(o.Hash) != 64 || o.Record == 0 || strings.ContainsFunc(o.Code+o.Reason+o.Log+o.Hash, unicode.IsControl) {
			t.Fatalf("it is read as %+v", o)
		}
	})
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

// A host ends the ids of its messages with its name, and no id is of two hosts.
func TestIDsNameTheirHost(t *testing.T) {
	for _, tc := range []struct {
		id, host string
		is       bool
	}{
		{IDOf("0a", "host-a"), "host-a", true}, {IDOf("0a", "host-a"), "host-b", false}, {IDOf("0a", "host-a"), "a", false},
		{"0a", "host-a", false}, {":host-a", "host-a", false}, {"0a:host-a:host-b", "host-a", false}, {"0a:host-a:host-b", "host-b", true}, {"", "", false},
	} {
		if IsIDOf(tc.id, tc.host) != tc.is {
			t.Errorf("%q of %q: want %t", tc.id, tc.host, tc.is)
		}
	}
}
