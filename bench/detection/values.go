package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The alphabets of values.
const (
	digits   = "0123456789"
	lowers   = "abcdefghijklmnopqrstuvwxyz"
	uppers   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	hexes    = digits + "abcdef"
	alnums   = uppers + lowers + digits
	base64s  = alnums + "+/"
	base64us = alnums + "-_"
)

// source draws values. The same text always gets the same.
type source struct{ *rand.Rand }

func sourceOf(id, name string) source {
	sum := sha256.Sum256([]byte(id + "\x00" + name))
	return source{rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])))} //nolint:gosec // values of a benchmark, the same in each run
}

func (s source) of(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[s.IntN(len(alphabet))]
	}
	return string(b)
}

func (s source) one(list string) string {
	words := strings.Fields(list)
	return words[s.IntN(len(words))]
}

// password is one as a generator makes them.
func (s source) password() string {
	return s.of(uppers, 2) + s.of(lowers, 5) + s.of("-_.!", 1) + s.of(digits, 3) + s.of(alnums, 4)
}

// plain is one as people make them.
func (s source) plain() string {
	word := s.one("tulip kettle sparrow velvet copper lagoon pepper walnut meadow harbour bramble saffron pigeon marble")
	switch s.IntN(4) {
	case 0:
		return word + s.of(digits, 4)
	case 1:
		return word + s.of("23456789", 1) + s.one("river stone cloud tiger lemon")
	case 2:
		return strings.ToUpper(word[:1]) + word[1:] + "-" + s.of(digits, 2)
	}
	return s.one("old blue fast lazy") + word + s.of(digits, 2)
}

// card ends in the digit that makes the number a card's.
func (s source) card() string {
	number := "4" + s.one("539 716 024 485 532") + s.of(digits, 11)
	sum := 0
	for i, c := range number {
		d := int(c - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	number += strconv.Itoa((10 - sum%10) % 10)
	return number[:4] + " " + number[4:8] + " " + number[8:12] + " " + number[12:]
}

// iban has the check digits of a German account.
func (s source) iban() string {
	account := s.of("12345678", 1) + s.of(digits, 17)
	rest := 0
	for _, c := range account + "131400" { // D, E and 00
		rest = (rest*10 + int(c-'0')) % 97
	}
	whole := fmt.Sprintf("DE%02d%s", 98-rest, account)
	var groups []string
	for group := range slices.Chunk([]byte(whole), 4) {
		groups = append(groups, string(group))
	}
	return strings.Join(groups, " ")
}

// weighted draws n digits and adds the one that a sum of products asks for.
func (s source) weighted(weights []int, check func(sum int) int) string {
	for {
		number := s.of("123456789", 1) + s.of(digits, len(weights)-1)
		sum := 0
		for i, w := range weights {
			sum += w * int(number[i]-'0')
		}
		if c := check(sum); c >= 0 && c <= 9 {
			return number + strconv.Itoa(c)
		}
	}
}

// codiceFiscale has the check letter of Italy's tax code.
func (s source) codiceFiscale() string {
	const odd = "\x01\x00\x05\x07\x09\x0d\x0f\x11\x13\x15\x02\x04\x12\x14\x0b\x03\x06\x08\x0c\x0e\x10\x0a\x16\x19\x18\x17"
	code := s.of("BCDFGLMNPRSTV", 6) + s.of("456789", 1) + s.of(digits, 1) + s.one("A B C D E H L M P R S T") +
		s.one("01 09 12 17 23 28") + s.one("H501 F205 L219 A944 D612")
	sum := 0
	for i, c := range []byte(code) {
		v := int(c - 'A')
		if c <= '9' {
			v = int(c - '0')
		}
		if i%2 == 0 {
			v = int(odd[v])
		}
		sum += v
	}
	return code + string(rune('A'+sum%26))
}

// domain and ip are none of those that are set aside for examples.
func (s source) domain() string {
	return s.one("bram kel tor lund vest gro hal mer") + s.one("holt wick berg nes dal ford") + "-" + s.one("papir druck works studio lab") + s.one(".net .org .de .fi .es")
}

func (s source) ip() string {
	return fmt.Sprintf("%s.%d.%d.%d", s.one("62 77 81 93 145 188"), s.IntN(256), s.IntN(256), 1+s.IntN(254))
}

func (s source) privateKey() string {
	var b strings.Builder
	b.WriteString("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n")
	for range 4 {
		b.WriteString(s.of(base64s, 70) + "\n")
	}
	b.WriteString(s.of(base64s, 38) + "==\n-----END OPENSSH PRIVATE KEY-----")
	return b.String()
}

func (s source) jwt() string {
	part := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	return part(`{"alg":"HS256","typ":"JWT"}`) + "." + part(`{"sub":"`+s.of(digits, 10)+`","iat":17`+s.of(digits, 8)+`}`) + "." + s.of(base64us, 43)
}

// values draw what stands between two pairs of braces.
var values = map[string]func(s source) string{
	"anthropic-key":     func(s source) string { return "sk-ant-api03-" + s.of(base64us, 93) + "AA" },
	"aws-access-key-id": func(s source) string { return "AKIA" + s.of(uppers+"234567", 16) },
	"aws-secret":        func(s source) string { return s.of(base64s, 40) },
	"azure-key":         func(s source) string { return s.of(base64s, 86) + "==" },
	"base64-password":   func(s source) string { return base64.StdEncoding.EncodeToString([]byte(s.password())) },
	"bsn": func(s source) string {
		return s.weighted([]int{9, 8, 7, 6, 5, 4, 3, 2}, func(sum int) int { return sum % 11 })
	},
	"card":               source.card,
	"codice-fiscale":     source.codiceFiscale,
	"d2":                 func(s source) string { return s.of("23456789", 2) },
	"d3":                 func(s source) string { return s.of("23467", 3) },
	"d4":                 func(s source) string { return s.of("2346789", 4) },
	"domain":             source.domain,
	"ip":                 source.ip,
	"digitalocean-token": func(s source) string { return "dop_v1_" + s.of(hexes, 64) },
	"github-token":       func(s source) string { return "ghp_" + s.of(alnums, 36) },
	"gitlab-token":       func(s source) string { return "glpat-" + s.of(alnums, 20) },
	"google-api-key":     func(s source) string { return "AIza" + "Sy" + s.of(base64us, 33) },
	"hex32":              func(s source) string { return s.of(hexes, 32) },
	"hex40":              func(s source) string { return s.of(hexes, 40) },
	"hex64":              func(s source) string { return s.of(hexes, 64) },
	"huggingface-token":  func(s source) string { return "hf_" + s.of(uppers+lowers, 34) },
	"iban":               source.iban,
	"jwt":                source.jwt,
	"nhs": func(s source) string {
		return s.weighted([]int{10, 9, 8, 7, 6, 5, 4, 3, 2}, func(sum int) int { return (11 - sum%11) % 11 })
	},
	"nino":           func(s source) string { return "JP" + s.of(digits, 6) + s.one("A B C D") },
	"npm-token":      func(s source) string { return "npm_" + s.of(alnums, 36) },
	"openai-key":     func(s source) string { return "sk-" + "proj-" + s.of(base64us, 74) + "T3BlbkFJ" + s.of(base64us, 74) },
	"page-tag":       func(s source) string { return "A" + s.of(base64s, 87) + "==" },
	"password":       source.password,
	"pin":            func(s source) string { return s.of(digits, 4) },
	"plain-password": source.plain,
	"private-key":    source.privateKey,
	"sendgrid-key":   func(s source) string { return "SG." + s.of(base64us, 22) + "." + s.of(base64us, 43) },
	"slack-token": func(s source) string {
		return "xoxb-" + s.of(digits, 12) + "-" + s.of(digits, 13) + "-" + s.of(alnums, 24)
	},
	"slack-webhook": func(s source) string {
		return "https://hooks.slack.com/services/T" + s.of(uppers+digits, 10) + "/B" + s.of(uppers+digits, 10) + "/" + s.of(alnums, 24)
	},
	"ssn": func(s source) string {
		return "4" + s.of("123456789", 2) + "-" + s.one("12 34 47 58 66") + "-" + s.of("123456789", 4)
	},
	"stripe-key":     func(s source) string { return "sk_" + "live_" + s.of(alnums, 24) },
	"telegram-token": func(s source) string { return s.of("123456789", 10) + ":AA" + s.of(base64us, 33) },
}

var placeholder = regexp.MustCompile(`\{\{([a-z0-9-]+)\}\}`)

// fill draws the values of a text.
func fill(id, text string) (string, error) {
	var unknown error
	drawn := map[string]int{}
	filled := placeholder.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-2]
		draw := values[name]
		if draw == nil {
			unknown = fmt.Errorf("the text %s has no value for %s", id, found)
			return found
		}
		drawn[name]++
		return draw(sourceOf(id, name+strings.Repeat("\x00", drawn[name]-1)))
	})
	return filled, unknown
}
