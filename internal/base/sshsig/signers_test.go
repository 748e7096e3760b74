package sshsig

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/crypto/ssh"
)

// dsaKey is a public key as made by `ssh-keygen -t dsa`.
const dsaKey = "ssh-dss AAAAB3NzaC1kc3MAAACBANKTbEqIv0uaRp5mNjjuVXSqnsQ3IKNLm8qVrcZdmm8D0nHJitllT0bwpYPPEqW2LyPRub3wnt8yyTlpIeucC/qOWwSGcj4R9xMZtTkxPC+BswLE8fzgHMVHGrNHackGLfwh1BYK9Qrvp0xPVVr0tlKeS8kavThcYVBP2aG8AdirAAAAFQDoWnj5MhUZnWFyFD/zZT/eq2qNWQAAAIBEzbvc1wHmqucOeLdzvkKDl3Zmcavp3p5he1CVbyez38Qi19FwRSsy4k+3KtPtt1JZHcLI0w0DkK00R7u6FU4v3qUOlfiLPybo0xeTsEd0eiDFuDz4oqkavXF1HIgG60O3a8GXyREHB8e6l+nVEnjVEj+m1guOEjDXvj9crXJjSQAAAIEAzsUb8uva5hwo4sPQ0FErWfWaNHXjVFCkORtUlyV+6bumnLkVcIR+78Lb678O3drmcOYV0jOC6l4+zntrw2O5hiuo2/UIHDXdSnYQgS5hyP3RF4oyWK0ZaWv8rTiipxau/K0qmyr0LPco/CXUjCY0DvROAQXlOkyZew6po4lXpiw="

func TestParseAllowedSigners(t *testing.T) {
	key := ed25519Signer(t, "alice").PublicKey()
	hardware := newAuthenticator(t, ssh.KeyAlgoSKED25519, flagPresent).PublicKey()
	text := strings.Join([]string{
		"# who may approve",
		"",
		"  \t ",
		listLine("alice@example.com", "", key) + " Alice's \"old\" laptop",
		"\t" + strings.ReplaceAll(listLine("alice,*@example.com,!bob@example.com", `Namespaces="a,b*",valid-after="20260101Z",VALID-BEFORE="202601020304Z"`, key), " ", " \t ") + " \r",
		listLine(`"Alice B. Carol,bob"`, "cert-authority", key),
		listLine("alice", `verify-required,no-touch-required,namespaces="a\"b c"`, hardware),
	}, "\n")
	s, err := ParseAllowedSigners(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []line{
		{number: 4, principals: patterns{{"alice@example.com", false}}, key: key},
		{
			number: 5, principals: patterns{{"alice", false}, {"*@example.com", false}, {"bob@example.com", true}}, key: key,
			namespaces: patterns{{"a", false}, {"b*", false}},
			after:      time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), before: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC),
		},
		{number: 6, principals: patterns{{"Alice B. Carol", false}, {"bob", false}}, key: key, authority: true},
		{number: 7, principals: patterns{{"alice", false}}, key: hardware, verified: true, noTouch: true, namespaces: patterns{{`a"b c`, false}}},
	}
	if !reflect.DeepEqual(s.lines, want) {
		t.Errorf("got  %+v\nwant %+v", s.lines, want)
	}
}

func TestParseAllowedSignersRefuses(t *testing.T) {
	signer := ed25519Signer(t, "alice")
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	encoded := strings.TrimPrefix(key, "ssh-ed25519 ")
	cert := string(ssh.MarshalAuthorizedKey(certify(t, signer, signer, nil).PublicKey()))
	weak := string(ssh.MarshalAuthorizedKey(rsaSigner(t, 1024).PublicKey()))
	for _, tc := range []struct{ name, line, want string }{
		{"principals alone", "alice", "no key"},
		{"no principals", key, "no principals"},
		{"no key behind the options", "alice cert-authority", "no key after the options"},
		{"no key behind the options and a blank", `alice namespaces="a" x`, "no key"},
		{"no base64", "alice ssh-ed25519", "no key"},
		{"bad base64", "alice ssh-ed25519 AAAA*", "illegal base64"},
		{"cut key", "alice ssh-ed25519 " + encoded[:40], "key: "},
		{"wrong type", "alice ssh-rsa " + encoded, "of type ssh-ed25519, but the line says ssh-rsa"},
		{"type that is not known", "alice ssh-future AAAACnNzaC1mdXR1cmU=", "unknown key algorithm"},
		{"DSA", "alice " + dsaKey, "ssh-dss"},
		{"short RSA", "alice " + weak, "1024 bits"},
		{"certificate", "alice " + cert, "a certificate"},
		{"open quote", `"alice ` + key, "no closing quote"},
		{"text behind the quote", `"alice",bob ` + key, "no blank"},
		{"quote inside", `al"ice ` + key, "quote in the middle"},
		{"empty principals", `"" ` + key, "no pattern"},
		{"only negations", "!alice,!bob " + key, "no pattern"},
		{"unknown option", "alice restrict " + key, `unknown option "restrict"`},
		{"option of sshd", `alice from="10.0.0.0/8" ` + key, `unknown option "from"`},
		{"option with a longer name", "alice cert-authority2 " + key, "unknown option"},
		{"empty option", `alice cert-authority,,namespaces="a" ` + key, "unknown option"},
		{"comma at the end", "alice cert-authority, " + key, "unknown option"},
		{"flag with a value", `alice cert-authority="yes" ` + key, "takes no value"},
		{"option without a value", "alice namespaces " + key, "has no value"},
		{"value without quotes", "alice namespaces=a " + key, "no quote"},
		{"value with an open quote", `alice namespaces="a ` + key, "no closing quote"},
		{"value with an escaped end", `alice namespaces="a\" ` + key, "no closing quote"},
		{"text behind a value", `alice namespaces="a"b ` + key, "no comma"},
		{"no namespaces", `alice namespaces="" ` + key, "no pattern"},
		{"option twice", `alice namespaces="a",namespaces="b" ` + key, "twice"},
		{"bad time", `alice valid-after="tomorrow" ` + key, "no time"},
		{"never valid", `alice valid-after="20260102Z",valid-before="20260101Z" ` + key, "not later"},
		{"valid for no time", `alice valid-after="20260101Z",valid-before="202601010000Z" ` + key, "not later"},
		{"PIN of no FIDO key", "alice verify-required " + key, "for FIDO keys"},
		{"touch of no FIDO key", "alice no-touch-required " + key, "for FIDO keys"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseAllowedSigners(strings.NewReader("# comment\n\nbob " + key + "\n" + tc.line + "\n"))
			if err == nil {
				t.Fatal("accepted")
			}
			if text := err.Error(); !strings.HasPrefix(text, "cannot read allowed signers: line 4: ") || !strings.Contains(text, tc.want) {
				t.Errorf("got %q, want line 4 and %q", text, tc.want)
			}
		})
	}
}

func TestParseAllowedSignersLimits(t *testing.T) {
	_, err := ParseAllowedSigners(strings.NewReader("# one\n" + strings.Repeat("#", maxLineBytes+1)))
	if err == nil || !strings.Contains(err.Error(), "line 2: longer than 65536 bytes") {
		t.Errorf("a long line: %v", err)
	}
	torn := errors.New("torn")
	if _, err := ParseAllowedSigners(iotest.ErrReader(torn)); !errors.Is(err, torn) {
		t.Errorf("a reader that fails: %v", err)
	}
	s, err := ParseAllowedSigners(strings.NewReader(""))
	if err != nil || len(s.lines) != 0 {
		t.Errorf("an empty file: %v, %v", s, err)
	}
}

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("", 5*3600+45*60)
	for _, tc := range []struct {
		text string
		want time.Time // zero: refused
	}{
		{"20260313", time.Date(2026, 3, 13, 0, 0, 0, 0, zone)},
		{"202603131405", time.Date(2026, 3, 13, 14, 5, 0, 0, zone)},
		{"20260313140506", time.Date(2026, 3, 13, 14, 5, 6, 0, zone)},
		{"20260313Z", time.Date(2026, 3, 13, 0, 0, 0, 0, time.UTC)},
		{"202603131405Z", time.Date(2026, 3, 13, 14, 5, 0, 0, time.UTC)},
		{"20260313140506z", time.Date(2026, 3, 13, 14, 5, 6, 0, time.UTC)},
		{"20260313140506utc", time.Date(2026, 3, 13, 14, 5, 6, 0, time.UTC)},
		{text: ""}, {text: "Z"}, {text: "UTC"}, {text: "2026"}, {text: "2026031"}, {text: "2026031314"},
		{text: "202603131"}, {text: "20260313ZZ"}, {text: "20261313"}, {text: "20260229"}, {text: "202603132405"},
		{text: "20260313 14Z"}, {text: "2026-03-13"}, {text: "20260313140.6"}, {text: "+0260313"}, {text: "19691231"}, {text: "19700101Z"},
	} {
		got, err := parseTime(tc.text, zone)
		if (err != nil) != tc.want.IsZero() || !got.Equal(tc.want) {
			t.Errorf("%q: got %v, %v, want %v", tc.text, got, err, tc.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, tc := range []struct {
		list, name string
		want       bool
	}{
		{"alice", "alice", true},
		{"alice", "Alice", false},
		{"alice", "alice2", false},
		{"alice", "", false},
		{"alice,,bob,", "bob", true},
		{"alice,,bob,", "", false},
		{"*", "anyone", true},
		{"*@example.com", "bob@example.com", true},
		{"*@example.com", "bob@example.com.evil", false},
		{"a?ice", "alice", true},
		{"a?ice", "aice", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c-b", false},
		{"*,!bob", "bob", false},
		{"!bob,*", "bob", false},
		{"!b*,*", "bob", false},
		{"!b*,*", "alice", true},
		{"bob,!!bob", "bob", true},
	} {
		list, err := parsePatterns(tc.list)
		if err != nil {
			t.Fatal(err)
		}
		if got := list.match(tc.name); got != tc.want {
			t.Errorf("%q and %q: got %v", tc.list, tc.name, got)
		}
	}
}

// TestGlobIsNotExponential matches patterns for which a naive matcher takes practically for ever.
func TestGlobIsNotExponential(t *testing.T) {
	if glob(strings.Repeat("*a", 200)+"b", strings.Repeat("a", 4000)) {
		t.Error("matched")
	}
}

// write is the other direction of parseLine.
func write(l line) string {
	var options []string
	for _, flag := range []struct {
		set  bool
		name string
	}{{l.authority, "cert-authority"}, {l.noTouch, "no-touch-required"}, {l.verified, "verify-required"}} {
		if flag.set {
			options = append(options, flag.name)
		}
	}
	if l.namespaces != nil {
		// The comma keeps a backslash at the end from the closing quote.
		options = append(options, `namespaces="`+strings.ReplaceAll(l.namespaces.String(), `"`, `\"`)+`,"`)
	}
	const layout = "20060102150405Z"
	if !l.after.IsZero() {
		options = append(options, `valid-after="`+l.after.UTC().Format(layout)+`"`)
	}
	if !l.before.IsZero() {
		options = append(options, `valid-before="`+l.before.UTC().Format(layout)+`"`)
	}
	return listLine(`"`+l.principals.String()+`"`, strings.Join(options, ","), l.key)
}

// FuzzParseAllowedSigners writes the parsed list and reads it again.
func FuzzParseAllowedSigners(f *testing.F) {
	key := ed25519Signer(f, "alice").PublicKey()
	hardware := newAuthenticator(f, ssh.KeyAlgoSKED25519, flagPresent).PublicKey()
	f.Add(listLine("alice@example.com,!bob", "", key))
	f.Add("# comment\n\n" + listLine(`"a b",c*`, `cert-authority,namespaces="x\"y",valid-after="20260101",valid-before="20270101000000Z"`, key) + " comment\r\n")
	f.Add(listLine("*", "verify-required,no-touch-required", hardware))
	f.Add("alice " + dsaKey)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseAllowedSigners(strings.NewReader(text))
		if err != nil {
			if s != nil || !strings.HasPrefix(err.Error(), "cannot read allowed signers: line ") {
				t.Errorf("got %v, %v", s, err)
			}
			return
		}
		for _, l := range s.lines {
			again, err := parseLine(write(l))
			if err != nil {
				t.Fatalf("%s: %v", write(l), err)
			}
			if !again.after.Equal(l.after) || !again.before.Equal(l.before) {
				t.Errorf("%s: got times %v and %v, want %v and %v", write(l), again.after, again.before, l.after, l.before)
			}
			again.number, again.after, again.before = l.number, l.after, l.before
			if !reflect.DeepEqual(again, l) {
				t.Errorf("%s: got %+v, want %+v", write(l), again, l)
			}
		}
	})
}

// FuzzGlob compares glob with a regular expression.
func FuzzGlob(f *testing.F) {
	f.Add("a*b?c", "a--b-c")
	f.Add("**?", "")
	f.Add("*\x80?", "\xff\x80é")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern)+len(text) > 200 {
			return
		}
		// One rune of the expression for each byte.
		var expression strings.Builder
		for _, c := range []byte(pattern) {
			switch c {
			case '*':
				expression.WriteString(".*")
			case '?':
				expression.WriteString(".")
			default:
				fmt.Fprintf(&expression, `\x{%x}`, c)
			}
		}
		runes := make([]rune, len(text))
		for i, c := range []byte(text) {
			runes[i] = rune(c)
		}
		want := regexp.MustCompile(`(?s)\A` + expression.String() + `\z`).MatchString(string(runes))
		if got := glob(pattern, text); got != want {
			t.Errorf("%q and %q: got %v", pattern, text, got)
		}
	})
}
