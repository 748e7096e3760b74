package content

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The bodies of invented credentials are built here, so that no source file contains anything that
// looks like one to other people's scanners.
const (
	mixed  = "A1b2C3d4E5f6G7h8J9k0LmNpQrStUvWxYz"
	hexes  = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
	capped = "Q2W3E4R5T6Y7U2I3P4A5S6D7F2G3H4J5"
)

func body(alphabet string, n int) string { return filler(alphabet, n) }

// marked removes the brackets from a text and returns the text inside them.
func marked(t *testing.T, text string) (plain string, start, end int) {
	t.Helper()
	before, rest, ok := strings.Cut(text, "\u00ab")
	inside, after, ok2 := strings.Cut(rest, "\u00bb")
	if !ok || !ok2 {
		t.Fatalf("no span marked in %q", text)
	}
	return before + inside + after, len(before), len(before) + len(inside)
}

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/content-levels.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct{ Text, Level, Note string }
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 13 {
		t.Fatalf("only %d cases", len(file.Cases))
	}
	d := detector(t)
	for _, c := range file.Cases {
		if got := Highest(d.Detect(c.Text)); got != c.Level {
			t.Errorf("%q (%s): got %s, want %s", c.Text, c.Note, got, c.Level)
		}
	}
}

// bodyOf makes a body of n bytes from a set.
func bodyOf(set kind, n int) string {
	switch {
	case set == digit:
		return body("1203456789", n)
	case set == uppers:
		return body("X", n)
	case !set.in(lowers | uppers):
		return body(hexes, n)
	case !set.in(upperCase):
		return body(strings.ToLower(mixed), n)
	case !set.in(lowerCase):
		return body(capped, n)
	}
	return body(mixed, n)
}

// example makes a credential of a shape, with a first body of n bytes.
func (sh *shape) example(n int) string {
	whole := sh.prefix + bodyOf(sh.set, n)
	for _, p := range sh.rest {
		whole += string(p.before) + bodyOf(p.set, p.min)
	}
	return whole
}

// TestTokens checks each prefix with variants: the right length, too short, too long, in other
// capitals, inside a word, and as a placeholder.
func TestTokens(t *testing.T) {
	d := detector(t)
	for _, tok := range tokens {
		for _, sh := range tok.shapes {
			t.Run(sh.prefix, func(t *testing.T) {
				whole := sh.example(sh.min)
				for _, around := range [][2]string{{"", ""}, {"see ", ", please"}, {"\"", "\""}, {"x=", "\n"}, {"\u5bc6", "\u7801"}, {`{"a":"b\n`, `\n"}`}} {
					found := d.Detect(around[0] + whole + around[1])
					want := Finding{Rule: tok.id, Level: tok.level, Start: len(around[0]), End: len(around[0]) + len(whole)}
					if !slices.Equal(found, []Finding{want}) {
						t.Errorf("between %q: got %v, want %v", around, found, want)
					}
				}
				near := map[string]string{
					"too short":      sh.example(sh.min - 1),
					"in a word":      "a" + whole,
					"one letter":     sh.prefix + strings.Repeat("a", sh.min),
					"stand-in":       sh.prefix + strings.Repeat("x", sh.min),
					"prefix only":    sh.prefix,
					"prefix in text": "the prefix " + sh.prefix + " is enough",
				}
				if sh.max > 0 {
					near["too long"] = sh.example(sh.max + 1)
				}
				for name, text := range near {
					for _, f := range d.Detect(text) {
						if f.Rule == tok.id {
							t.Errorf("%s: got %v in %q", name, f, text)
						}
					}
				}
				half := len(sh.prefix) + sh.min/2
				for name, sep := range map[string]string{"lines": "\n", "quoted": "\r\n> ", "soft": "=\n", "indented": "\n    "} {
					if sh.min < 16 {
						break // too short to be broken
					}
					broken := whole[:half] + sep + whole[half:]
					if found := d.Detect("see " + broken + " now"); len(found) != 1 || found[0].Rule != tok.id || found[0].End != 4+len(broken) {
						t.Errorf("%s: got %v in %q", name, found, broken)
					}
				}
			})
		}
	}
}

func TestCredentials(t *testing.T) {
	b64 := base64.RawURLEncoding.EncodeToString
	jwt := b64([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + b64([]byte(`{"sub":"1234567890"}`)) + "." + body(mixed, 43)
	begin, end := "-----BEGIN ", "-----END "
	ppk := "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: a\nPublic-Lines: 1\n" + body(mixed, 64) +
		"\nPrivate-Lines: 1\n" + body(mixed, 48) + "\nPrivate-MAC: " + body(hexes, 64)
	tests := []struct{ name, rule, text string }{
		{"pem", rulePrivateKey, "a\n\u00ab" + begin + "RSA PRIVATE KEY-----\n" + body(mixed, 64) + "\n" + body(mixed, 30) + "==\n" + end + "RSA PRIVATE KEY-----\u00bb\nb"},
		{"pem quoted", rulePrivateKey, "> \u00ab" + begin + "PRIVATE KEY-----\n> " + body(mixed, 64) + "\n> " + end + "PRIVATE KEY-----\u00bb"},
		{"pem escaped", rulePrivateKey, `{"k":"` + "\u00ab" + begin + `PRIVATE KEY-----\n` + body(mixed, 64) + `\n` + end + "PRIVATE KEY-----\u00bb" + `\n"}`},
		{"pem encrypted", rulePrivateKey, "\u00ab" + begin + "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n" + body(mixed, 64) + "\n" + end + "RSA PRIVATE KEY-----\u00bb"},
		{"pem cut off", rulePrivateKey, "\u00ab" + begin + "EC PRIVATE KEY-----\n" + body(mixed, 64) + "\u00bb\n"},
		{"pgp", rulePrivateKey, "\u00ab" + begin + "PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n" + body(mixed, 64) + "\n" + end + "PGP PRIVATE KEY BLOCK-----\u00bb"},
		{"ssh2", rulePrivateKey, "\u00ab---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n" + body(mixed, 64) + "\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\u00bb"},
		{"putty", rulePutty, "\u00ab" + ppk + "\u00bb\n"},
		{"jwt", ruleJWT, "cookie: \u00ab" + jwt + "\u00bb."},
		{"jwt as bearer", ruleJWT, "Authorization: Bearer \u00ab" + jwt + "\u00bb"},
		{"aws secret", ruleAWSSecret, "aws_secret_access_key = \u00abwJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYSAMPLEDKEY\u00bb\n"},
		{"aws secret in json", ruleAWSSecret, `"SecretAccessKey": "` + "\u00ab" + body("wJalr+XUtn4/", 40) + "\u00bb" + `",`},
		{"azure", ruleAzure, "AccountName=a;AccountKey=\u00ab" + body(mixed, 86) + "==\u00bb;EndpointSuffix=core"},
		{"azure bus", ruleAzure, "SharedAccessKey=\u00ab" + body(mixed, 43) + "=\u00bb"},
		{"openai, older", ruleOpenAI, "\u00absk-" + body(mixed, 20) + "T3Blbk" + "FJ" + body(mixed, 20) + "\u00bb"},
		{"openai, newer", ruleOpenAI, "\u00absk-proj-" + body(mixed, 60) + "T3Blbk" + "FJ" + body(mixed, 60) + "\u00bb"},
		{"sendgrid", ruleSendGrid, "\u00abSG." + body(mixed, 22) + "." + body(mixed, 43) + "\u00bb"},
		{"slack webhook", ruleSlackWebhook, "https://\u00abhooks.slack.com/services/T0" + body(capped, 8) + "/B0" + body(capped, 8) + "/" + body(mixed, 24) + "\u00bb now"},
		{"telegram", ruleTelegram, "\u00ab123456789:AA" + body(mixed, 33) + "\u00bb"},
		{"telegram, called", ruleTelegram, "https://api.telegram.org/bot\u00ab123456789:AA" + body(mixed, 33) + "\u00bb/getMe"},
		{"twilio", ruleTwilio, "our Twilio key is \u00abSK" + body(hexes, 32) + "\u00bb"},
		{"twilio behind", ruleTwilio, "\u00abSK" + body(hexes, 32) + "\u00bb (twilio)"},
		{"bearer", ruleBearer, "Authorization: Bearer \u00ab" + body(mixed, 32) + "\u00bb\n"},
		{"bearer, lower case", ruleBearer, "authorization: bearer \u00ab" + body(mixed, 32) + "\u00bb."},
		{"bearer, plain", ruleBearer, "Bearer \u00ab" + "abcdef1234567890abcdef" + "\u00bb"},
		{"basic", ruleBasic, "Authorization: Basic \u00ab" + base64.StdEncoding.EncodeToString([]byte("bob:hunter2")) + "\u00bb\n"},
		{"url", ruleURL, "https://bob:\u00abhunter2\u00bb@example.com/x"},
		{"url with at", ruleURL, "https://bob:\u00abhun@ter2\u00bb@example.com/x"},
		{"url, no user", ruleDatabase, "redis://:\u00abhunter2\u00bb@cache:6379/0"},
		{"url in short words", ruleDatabase, "postgres://user:\u00abpass\u00bb@host/db"},
		{"url in prose", ruleURL, "Use ftp://bob:\u00abhunter2\u00bb@[::1]/ today."},
		{"postgres", ruleDatabase, "postgres://app:\u00abs3cret\u00bb@db/app?sslmode=disable"},
		{"postgresql driver", ruleDatabase, "postgresql+asyncpg://app:\u00abs3cret\u00bb@db/app"},
		{"mongo", ruleDatabase, "MONGO=mongodb+srv://app:\u00abs3cret\u00bb@c0.mongodb.net"},
		{"assigned", ruleAssignment, "password: \u00abTr0ub4dor&3\u00bb"},
		{"assigned, plain", ruleAssignment, "password: \u00abSummer2024\u00bb."},
		{"assigned, with a sign", ruleAssignment, "Password: \u00abhunter2!\u00bb\n"},
		{"assigned in json", ruleAssignment, `{"db_password": "` + "\u00abS3cret!pass\u00bb" + `"}`},
		{"assigned in escaped json", ruleAssignment, `{\"dbPassword\": \"` + "\u00abS3cret!pass\u00bb" + `\"}`},
		{"assigned in an environment", ruleAssignment, "export API_KEY=\u00ab" + body(hexes, 32) + "\u00bb\n"},
		{"assigned in a query", ruleAssignment, "https://example.com/?api_key=\u00ab" + body(hexes, 32) + "\u00bb&x=1"},
		{"assigned, odd", ruleAssignment, "password=\u00abC1d2&E3f4\u00bb\n"},
		{"assigned in a header", ruleAssignment, "X-Api-Key: \u00ab" + body(mixed, 32) + "\u00bb\r\n"},
		{"assigned in code", ruleAssignment, `clientSecret := "` + "\u00ab" + body(mixed, 24) + "\u00bb" + `"`},
		{"a hash assigned", ruleAssignment, "password=\u00ab$2b$12$" + body(mixed, 53) + "\u00bb"},
		{"a known token assigned", "credential.github-token", "token=\u00abghp_" + body(mixed, 36) + "\u00bb"},
	}
	d := detector(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { one(t, d, tt.text, tt.rule, Restricted) })
	}
}

// one expects a single finding at the marked place.
func one(t *testing.T, d *Detector, text, rule, level string) {
	t.Helper()
	plain, start, end := marked(t, text)
	want := []Finding{{Rule: rule, Level: level, Start: start, End: end}}
	if found := d.Detect(plain); !slices.Equal(found, want) {
		t.Errorf("%q: got %v, want %v", plain, found, want)
	}
}

func TestNoCredentials(t *testing.T) {
	b64 := base64.RawURLEncoding.EncodeToString
	none(t, map[string]string{
		"certificate":            "-----BEGIN CERTIFICATE-----\n" + body(mixed, 64) + "\n-----END CERTIFICATE-----",
		"public key":             "-----BEGIN PUBLIC KEY-----\n" + body(mixed, 64) + "\n-----END PUBLIC KEY-----",
		"pem in code":            `if strings.Contains(s, "-----BEGIN PRIVATE KEY-----") { return x509MarshalPKCS8PrivateKey(s) }`,
		"pem in a manual":        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
		"pem, stand-in":          "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("x", 64) + "\n-----END PRIVATE KEY-----",
		"putty, public":          "PuTTY-User-Key-File-3: ssh-ed25519\nPublic-Lines: 1\n" + body(mixed, 64),
		"jwt, no algorithm":      b64([]byte(`{"typ":"JWT"}`)) + "." + b64([]byte(`{"sub":"12345"}`)) + "." + body(mixed, 43),
		"jwt, no signature":      b64([]byte(`{"alg":"none"}`)) + "." + b64([]byte(`{"sub":"12345"}`)) + ".",
		"json in base64":         "eyJhIjoxLCJiIjoyLCJjIjozLCJkIjo0fQ",
		"aws id too short":       "AKIAIOSFODNN7EXAMPL",
		"aws id in a word":       "XAKIAIOSFODNN7SAMPLED",
		"aws secret, stand-in":   "aws_secret_access_key = " + strings.Repeat("x", 40),
		"forty characters":       "sum " + body("wJalr+XUtn4/", 40),
		"sk- words":              "sk-ant-is-a-prefix-and-so-is-this-long-one, task-force-for-the-long-running-job",
		"telegram, other":        "123456789:AB" + body(mixed, 33),
		"telegram, in a time":    "at 12:AA" + body(mixed, 33),
		"twilio without context": "SK" + body(hexes, 32),
		"twilio account":         "twilio AC" + body(hexes, 32),
		"bearer words":           "the bearer of-this-is-a-long-composed-word",
		"bearer variable":        "Authorization: Bearer ${ACCESS_TOKEN_FOR_A1B2C3}",
		"bearer stand-in":        "Authorization: Bearer <token>",
		"bearer your":            "Authorization: Bearer your-token-A1b2C3d4",
		"basic words":            "Authorization: Basic authentication is used",
		"url without password":   "https://bob@example.com/a:b",
		"url with a port":        "https://example.com:8080/@scope/package",
		"url with a time":        "https://example.com?at=12:30@noon",
		"url of a manual":        "mysql://user:password@localhost/db",
		"url, variable":          "mysql://root:${PASS}@localhost/db mysql://root:$PASS@localhost mysql://root:%PASS%@localhost",
		"url, masked":            "mysql://root:****@localhost/db mysql://root:<pass>@localhost",
		"ssh":                    "git@github.com:a/b.git ssh://git@host:22/a",
		"password, a word":       "password: please ask Bob, he knows it",
		"password, asked":        "did you get the password: section4?",
		"password, short":        "password: Ab1!",
		"password, a path":       "password: /run/secrets/db_Password1!",
		"password, called":       "password = readPassword1(ctx, 2)",
		"password, a member":     "password = config.Db2.Secret3Key4",
		"password, masked":       "password: A1b2****C3d4",
		"password, compared":     "if password != Abc123!def {",
		"token, scoped":          "std::token::Abc1Def2Ghi3Jkl4",
		"token, an id":           "token: 550e8400-e29b-41d4-a716-446655440000",
		"token, a page":          "next_page_token=" + body(mixed, 32),
		"token, a time":          "token: 2026-09-30T12:00:00Z",
		"token, counted":         "total_token: 1234567890123456",
		"secret, a name":         "secret: my-tls-cert-2024",
		"git hash":               "commit 4fb0fdcb1ddc25f0c7c1f0ad2ba4b1e9d2b1a9c3",
		"digest":                 "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"uuid":                   "550e8400-e29b-41d4-a716-446655440000",
		"image":                  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
	})
}

func none(t *testing.T, texts map[string]string) {
	t.Helper()
	d := detector(t)
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			for _, f := range d.Detect(text) {
				t.Errorf("got %v in %q", f, text)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	tests := []struct{ name, rule, text string }{
		{"visa", ruleCard, "\u00ab4111111111111111\u00bb"},
		{"visa in groups", ruleCard, "card \u00ab4111 1111 1111 1111\u00bb exp 12/30"},
		{"visa with hyphens", ruleCard, "(\u00ab4111-1111-1111-1111\u00bb)"},
		{"visa with dots", ruleCard, "\u00ab4111.1111.1111.1111\u00bb."},
		{"visa before a year", ruleCard, "visa \u00ab4111 1111 1111 1111\u00bb 2030"},
		{"visa before its code", ruleCard, "\u00ab4111 1111 1111 1111\u00bb 737"},
		{"visa oddly grouped", ruleCard, "my card: \u00ab41 11 11 11 11 11 11 11\u00bb"},
		{"visa of 13", ruleCard, "old card \u00ab4222222222222\u00bb"},
		{"mastercard", ruleCard, "\u00ab5555 5555 5555 4444\u00bb"},
		{"mastercard, 2 series", ruleCard, "\u00ab2223003122003222\u00bb"},
		{"amex", ruleCard, "\u00ab3782 822463 10005\u00bb"},
		{"diners", ruleCard, "\u00ab3056 930902 5904\u00bb"},
		{"discover", ruleCard, "\u00ab6011111111111117\u00bb"},
		{"jcb", ruleCard, "\u00ab3530 1113 3330 0000\u00bb"},
		{"unionpay of 19", ruleCard, "\u00ab6205500000000000004\u00bb"},
		{"behind a label", ruleCard, "cc:\u00ab4111111111111111\u00bb,"},
		{"no-break spaces", ruleCard, "\u00ab4111\u00a01111\u00a01111\u00a01111\u00bb"},
		{"full-width digits", ruleCard, "x \u00ab\uff14111111111111111\u00bb y"},
		{"iban", ruleIBAN, "pay to \u00abGB82 WEST 1234 5698 7654 32\u00bb now"},
		{"iban in one", ruleIBAN, "IBAN:\u00abDE89370400440532013000\u00bb."},
		{"iban in small letters", ruleIBAN, "\u00abgb82west12345698765432\u00bb"},
		{"iban grouped by bank", ruleIBAN, "\u00abDE89 37040044 0532013000\u00bb"},
		{"iban, France", ruleIBAN, "\u00abFR14 2004 1010 0505 0001 3M02 606\u00bb"},
		{"iban, Norway", ruleIBAN, "\u00abNO93 8601 1117 947\u00bb"},
		{"iban, Malta", ruleIBAN, "\u00abMT84MALT011000012345MTLCAST001S\u00bb"},
		{"iban, zero width", ruleIBAN, "\u00abDE89\u200b370400440532013000\u00bb"},
		{"ssn", ruleSSN, "SSN: \u00ab536-90-4399\u00bb"},
		{"ssn behind", ruleSSN, "\u00ab536 90 4399\u00bb is his social security number"},
		{"ssn in one", ruleSSN, "ssn=\u00ab536904399\u00bb"},
		{"steuer-id", ruleSteuerID, "Steuer-ID \u00ab86095742719\u00bb"},
		{"steuer-id in groups", ruleSteuerID, "IdNr. \u00ab86 095 742 719\u00bb"},
		{"aadhaar", ruleAadhaar, "Aadhaar no. \u00ab2341 2341 2346\u00bb"},
		{"nino", ruleNINO, "National Insurance number \u00abQQ123456C\u00bb"},
		{"nino in groups", ruleNINO, "nino: \u00abAB 12 34 56 C\u00bb"},
		{"dni", ruleDNI, "DNI \u00ab12345678Z\u00bb"},
		{"dni with dots", ruleDNI, "mi DNI: \u00ab12.345.678-Z\u00bb"},
		{"nie", ruleDNI, "NIE \u00abX1234567L\u00bb"},
		{"insee", ruleINSEE, "NIR : \u00ab2 55 08 14 168 025 38\u00bb"},
		{"insee in one", ruleINSEE, "num\u00e9ro de s\u00e9curit\u00e9 sociale \u00ab255081416802538\u00bb"},
	}
	d := detector(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { one(t, d, tt.text, tt.rule, Confidential) })
	}
	t.Run("far into a table", func(t *testing.T) {
		for n := range 150 {
			one(t, d, strings.Repeat("17 ", n)+"\u00ab4111111111111111\u00bb 18", ruleCard, Confidential)
		}
	})
}

func TestNoNumbers(t *testing.T) {
	none(t, map[string]string{
		"luhn":                "order 4111 1111 1111 1112",
		"no scheme":           "1234567812345670 9999999999999995",
		"in a longer number":  "94111111111111111 41111111111111119",
		"in longer groups":    "1234 4111 1111 1111 1111 5678",
		"in a word":           "a4111111111111111 4111111111111111b order_4111111111111111",
		"decimal":             "0.4111111111111111 and 4111111111111111.50",
		"zeros":               "0000 0000 0000 0000",
		"bar code":            "4006381333931 4222222222222",
		"oddly grouped":       "41 11 11 11 11 11 11 11",
		"millis and nanos":    "1727690709123 1727690709123456789",
		"phones":              "+1 555 0100, +49 30 901820, +44 20 7946 0958, (555) 010-0199",
		"isbn":                "978-3-16-148410-0 9783161484100",
		"imei":                "490154203237518",
		"versions":            "1.26.0 v2.14.0-rc.3 10.0.19041.1 192.168.100.200",
		"dates":               "2026-09-30 14:05:09, 30.09.2026, 20260930T140509Z",
		"uuid of digits":      "55008400-1234-4123-8716-446655440000",
		"iban, wrong":         "GB83 WEST 1234 5698 7654 32",
		"iban, cut off":       "GB82 WEST 1234 5698 7654 3",
		"iban, goes on":       "GB82WEST12345698765432X GB82WEST123456987654321",
		"iban, no country":    "XX82 WEST 1234 5698 7654 32",
		"iban, in a word":     "AGB82WEST12345698765432",
		"invalid iban's tail": "DE88 4111 1111 1111 1111 00",
		"ssn without context": "536-90-4399 and 536904399",
		"ssn never given out": "SSN 000-12-3456, SSN 666-12-3456, SSN 900-12-3456, SSN 536-00-4399, SSN 536-90-0000",
		"ssn, other word":     "the classname 536-90-4399 of a lesson",
		"steuer-id, wrong":    "Steuer-ID 86095742718",
		"steuer-id, no word":  "86095742719",
		"aadhaar, wrong":      "Aadhaar 2341 2341 2347",
		"aadhaar, no word":    "2341 2341 2346",
		"nino, no word":       "AB123456C",
		"nino, wrong":         "nino: BG123456C, nino: AB123456E, nino: DA123456A",
		"dni, wrong":          "DNI 12345678A",
		"dni, no word":        "12345678Z at midnight",
		"insee, wrong":        "NIR 255081416802539",
		"insee, no word":      "255081416802538",
	})
}

func TestMarkings(t *testing.T) {
	tests := []struct{ rule, level, text string }{
		{ruleConfidential, Confidential, "\u00abCONFIDENTIAL\u00bb - do not forward\nnumbers follow"},
		{ruleConfidential, Confidential, "\u00abConfidential\u00bb: the figures"},
		{ruleConfidential, Confidential, "\u00abConfidential\u00bb\n\nDear Bob"},
		{ruleConfidential, Confidential, "Subject: [\u00abCONFIDENTIAL\u00bb] the figures"},
		{ruleConfidential, Confidential, "Re: Fwd: \u00abConfidential\u00bb - the figures"},
		{ruleConfidential, Confidential, "=== \u00abCONFIDENTIAL\u00bb ===\ntext"},
		{ruleConfidential, Confidential, "# **\u00abConfidential\u00bb**\ntext"},
		{ruleConfidential, Confidential, "This document is \u00abCONFIDENTIAL\u00bb, do not pass it on."},
		{ruleConfidential, Confidential, "Acme Corp | \u00abCONFIDENTIAL\u00bb"},
		{ruleConfidential, Confidential, "Page 3 of 9 \u2014 \u00abCONFIDENTIAL\u00bb\n"},
		{ruleConfidential, Confidential, "COMPANY \u00abCONFIDENTIAL\u00bb"},
		{ruleConfidential, Confidential, "PROPRIETARY & \u00abCONFIDENTIAL\u00bb"},
		{ruleConfidential, Confidential, "Classification: \u00abconfidential\u00bb\n"},
		{ruleConfidential, Confidential, "the plan (\u00abCONFIDENTIAL\u00bb) is"},
		{ruleConfidential, Confidential, "COMMERCIAL \u00abIN CONFIDENCE\u00bb"},
		{ruleConfidential, Confidential, "\u00abVERTRAULICH\u00bb - nicht weitergeben"},
		{ruleConfidential, Confidential, "\u00abCON\u200bFIDEN\u00adTIAL\u00bb - do not forward"},
		{ruleConfidential, Confidential, "\u00ab\uff23\uff2f\uff2e\uff26\uff29\uff24\uff25\uff2e\uff34\uff29\uff21\uff2c\u00bb - do not forward"},
		{ruleConfidential, Confidential, "\u00abconfidential\u00bb - do not share"},
		{ruleConfidential, Confidential, "Company \u00abConfidential\u00bb\n"},
		{ruleConfidential, Confidential, "Proprietary and \u00abConfidential\u00bb"},
		{ruleRestricted, Restricted, "\u00abRESTRICTED\u00bb\ntext"},
		{ruleRestricted, Restricted, "\u00abRESTRICTED\u00bb: named people only"},
		{ruleRestricted, Restricted, "Sensitivity: \u00abRestricted\u00bb"},
		{ruleSecret, Restricted, "\u00abSECRET\u00bb//NOFORN\ntext"},
		{ruleSecret, Restricted, "\u00abSECRET\u00bb - the plan"},
		{ruleSecret, Restricted, "[\u00abSECRET\u00bb] the plan"},
		{ruleSecret, Restricted, "This is \u00abTOP SECRET\u00bb."},
		{ruleSecret, Restricted, "CLASSIFICATION: \u00abSECRET\u00bb"},
		{ruleInternal, Internal, "\u00abINTERNAL ONLY\u00bb: roadmap"},
		{ruleInternal, Internal, "for \u00abINTERNAL USE ONLY\u00bb, please"},
		{ruleInternal, Internal, "For \u00abInternal Use Only\u00bb\n"},
		{ruleInternal, Internal, "\u00abInternal only\u00bb - roadmap"},
		{ruleInternal, Internal, "Subject: [\u00abINTERNAL\u00bb] roadmap"},
		{ruleInternal, Internal, "Classification: \u00abinternal\u00bb"},
		{"marking.tlp-red", Restricted, "\u00abTLP:RED\u00bb the incident"},
		{"marking.tlp-red", Restricted, "see (\u00abtlp: red\u00bb) below"},
		{"marking.tlp-red", Restricted, "\u00ab\uff34\uff2c\uff30\uff1aRED\u00bb"},
		{"marking.tlp-amber", Confidential, "\u00abTLP:AMBER\u00bb"},
		{"marking.tlp-amber-strict", Confidential, "\u00abTLP:AMBER+STRICT\u00bb"},
		{"marking.tlp-green", Internal, "\u00abTLP:GREEN\u00bb."},
	}
	d := detector(t)
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) { one(t, d, tt.text, tt.rule, tt.level) })
	}
	for _, text := range []string{"STRICTLY CONFIDENTIAL", "this is STRICTLY CONFIDENTIAL.", "Strictly confidential\n", "STRENG VERTRAULICH"} {
		if got := Highest(d.Detect(text)); got != Restricted {
			t.Errorf("%q: got %s", text, got)
		}
	}
}

func TestNoMarkings(t *testing.T) {
	none(t, map[string]string{
		"guess":        "this is confidential, I guess",
		"first word":   "Confidential information is kept in the safe.",
		"denied":       "NON-CONFIDENTIAL summary; this is NOT CONFIDENTIAL.",
		"part":         "CONFIDENTIALITY agreement, UNRESTRICTED, SECRETARY, INTERNALS ONLY",
		"santa":        "SECRET SANTA at noon; the SECRET of it; RESTRICTED ACCESS area",
		"setting":      "SECRET: value\nCLIENT_SECRET=\nINTERNAL: true\nconfidential: true\nConfidential: false",
		"constant":     "Level.CONFIDENTIAL LEVEL_CONFIDENTIAL x = CONFIDENTIAL CONFIDENTIAL = 3 f(CONFIDENTIAL) m[CONFIDENTIAL]",
		"quoted":       `"CONFIDENTIAL" 'SECRET' {"classification": "confidential"}`,
		"enumeration":  "enum {\n  PUBLIC,\n  CONFIDENTIAL,\n  SECRET\n}",
		"lower":        "internal\nrestricted\nsecret\nconfidential",
		"tlp":          "TLP:CLEAR TLP:WHITE TLP:REDACTED TLP: TLPRED ATLP:RED",
		"label public": "Classification: public",
		"hyphen":       "confidential-ish, CONFIDENTIAL-ish, secret-keeping",
		"link":         "[SECRET](https://example.com/)",
	})
}

// TestOrdinary checks a page of prose and one of source: neither raises anything.
func TestOrdinary(t *testing.T) {
	none(t, map[string]string{"prose": prose, "source": source})
}

func TestPatterns(t *testing.T) {
	d := detector(t, Pattern{"project", `(?i)\bproject\s+falcon\b`, Confidential}, Pattern{"case", `CASE-\d{6}`, Internal})
	text := "about Project\u00a0Fal\u200bcon and CASE-123456"
	found := d.Detect(text)
	if len(found) != 2 || found[0].Rule != "operator.project" || found[1].Rule != "operator.case" || Highest(found) != Confidential {
		t.Fatalf("got %v", found)
	}
	if got := text[found[0].Start:found[0].End]; got != "Project\u00a0Fal\u200bcon" {
		t.Errorf("the span is %q", got)
	}
	if found := d.Detect("in project falcon"); len(found) != 1 || found[0] != (Finding{Rule: "operator.project", Level: Confidential, Start: 3, End: 17}) {
		t.Errorf("got %v", found)
	}
	if found := detector(t, Pattern{"edge", `\b|(a)`, Internal}).Detect("b b"); len(found) != 0 {
		t.Errorf("matches of no length: %v", found)
	}
	// A pattern also sees the text as written.
	if found := detector(t, Pattern{"dash", "a\u2014b", Internal}).Detect("x a\u2014b"); len(found) != 1 || found[0].Start != 2 || found[0].End != 7 {
		t.Errorf("got %v", found)
	}
}

func TestBadPatterns(t *testing.T) {
	many := make([]Pattern, MaxPatterns+1)
	tests := []struct {
		name     string
		patterns []Pattern
		want     string
	}{
		{"syntax", []Pattern{{"odd", "a(", Internal}}, `"odd": error parsing regexp`},
		{"backreference", []Pattern{{"odd", `(a)\1`, Internal}}, `"odd": error parsing regexp`},
		{"level", []Pattern{{"odd", "a", "secret"}}, `"odd": unknown level "secret"`},
		{"public", []Pattern{{"odd", "a", Public}}, `"odd": unknown level "public"`},
		{"no expression", []Pattern{{"odd", "", Internal}}, `"odd": want an expression`},
		{"long", []Pattern{{"odd", strings.Repeat("a", MaxPatternLength+1), Internal}}, `"odd": want an expression`},
		{"everything", []Pattern{{"odd", "a*", Internal}}, `"odd": the expression matches the empty text`},
		{"no name", []Pattern{{"", "a", Internal}}, "want a name"},
		{"odd name", []Pattern{{"a b", "a", Internal}}, `"a b": want a name`},
		{"long name", []Pattern{{strings.Repeat("a", 65), "a", Internal}}, "want a name"},
		{"twice", []Pattern{{"odd", "a", Internal}, {"odd", "b", Internal}}, `"odd": the name is taken`},
		{"all named", []Pattern{{"one", "(", Internal}, {"two", ")", Internal}}, `"two": error`},
		{"too many", many, "cannot use 65 content patterns"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := New(Options{Patterns: tt.patterns})
			if err == nil || d != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestHighest(t *testing.T) {
	at := func(levels ...string) (found []Finding) {
		for _, l := range levels {
			found = append(found, Finding{Level: l})
		}
		return found
	}
	for _, tt := range []struct {
		found []Finding
		want  string
	}{
		{nil, Public},
		{at(Internal), Internal},
		{at(Internal, Restricted, Confidential), Restricted},
		{at(Confidential, Internal), Confidential},
	} {
		if got := Highest(tt.found); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.found, got, tt.want)
		}
	}
}

// TestFlood checks that a more serious finding survives any number of minor ones.
func TestFlood(t *testing.T) {
	d := detector(t, Pattern{"a", "a", Internal})
	text := strings.Repeat("TLP:GREEN 4111111111111111 a ", 1000) + "AKIAIOSFODNN7SAMPLED"
	found := d.Detect(text)
	count := map[string]int{}
	for _, f := range found {
		count[f.Rule]++
	}
	for rule, n := range count {
		if n > MaxPerRule {
			t.Errorf("%s: %d findings", rule, n)
		}
	}
	if Highest(found) != Restricted || len(count) != 4 {
		t.Errorf("got %v", count)
	}
}

func TestSorted(t *testing.T) {
	found := detector(t).Detect("card 4111111111111111, TLP:RED, then AKIAIOSFODNN7SAMPLED, GB82WEST12345698765432")
	if len(found) != 4 || !slices.IsSortedFunc(found, func(a, b Finding) int { return a.Start - b.Start }) {
		t.Errorf("got %v", found)
	}
}

// TestHidden puts invisible characters between the letters of a finding.
func TestHidden(t *testing.T) {
	d := detector(t)
	for _, hidden := range []string{"\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u202e", "\ufe0f", "\U000e0041", "\u180e"} {
		for _, tt := range []struct{ text, rule string }{
			{"AKIAIOSFODNN7SAMPLED", "credential.aws-access-key-id"},
			{"ghp_" + body(mixed, 36), "credential.github-token"},
			{"4111111111111111", ruleCard},
			{"TLP:RED", "marking.tlp-red"},
		} {
			text := "\u00fc " + strings.Join(strings.Split(tt.text, ""), hidden)
			found := d.Detect(text + " \u00fc")
			if len(found) != 1 || found[0].Rule != tt.rule || found[0].Start != 3 || found[0].End != len(text) {
				t.Errorf("%q: got %v", text, found)
			}
		}
	}
	styled := "\U0001d413\U0001d40b\U0001d40f:\U0001d411\U0001d404\U0001d403"
	if found := d.Detect(styled); len(found) != 1 || found[0].Start != 0 || found[0].End != len(styled) {
		t.Errorf("%q: got %v", styled, found)
	}
}

// TestIndex compares the index with a plain search.
func TestIndex(t *testing.T) {
	words := []string{"he", "she", "his", "hers", "-he-", "he -", "e\xff", "sh"}
	text := "USHERS -he- his sHe\xff\x00\xffhe -hesh"
	got := map[[2]int]bool{}
	newIndex(words).each(text, func(word, end int) { got[[2]int{word, end}] = true })
	want := map[[2]int]bool{}
	for id, w := range words {
		for i := range len(text) {
			if hasFold(text, i, w) {
				want[[2]int{id, i + len(w)}] = true
			}
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for k := range want {
		if !got[k] {
			t.Errorf("%q was not found to end at %d", words[k[0]], k[1])
		}
	}
}

// FuzzDetect checks that spans are inside the text, on whole characters and in order, and that
// blanks around the text do not change them.
func FuzzDetect(f *testing.F) {
	raw, err := os.ReadFile("testdata/content-levels.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct{ Cases []struct{ Text string } }
	if err := json.Unmarshal(raw, &file); err != nil || len(file.Cases) == 0 {
		f.Fatal("no seeds: ", err)
	}
	for _, c := range file.Cases {
		f.Add(c.Text)
	}
	for _, s := range []string{
		"", "\xff", "\u200b", "\uff34\uff2c\uff30\uff1a\uff32\uff25\uff24", "Subject: [INTERNAL]", "https://a:b@c", "password: Tr0ub4dor&3",
		"twilio SK" + body(hexes, 32), "DNI 12.345.678-Z", "nino AB 12 34 56 C", "PuTTY-User-Key-File-2: a\nPrivate-Lines: 9\nAAAA",
		"-----BEGIN PRIVATE KEY-----\\nDEK-Info: a\n" + body(mixed, 64), "123456789:AA" + body(mixed, 33), "eyJhIjoxfQ.eyJhIjoxfQ.a",
		"---- BEGIN PRIVATE KEY----0000000000012780000A---- END", "pAsswd:\"A000127a",
	} {
		f.Add(s)
	}
	d := made(f, Options{Patterns: []Pattern{{"a", `a+b?`, Internal}}})
	f.Fuzz(func(t *testing.T, text string) {
		found := d.Detect(text)
		for i, x := range found {
			if x.Start < 0 || x.Start >= x.End || x.End > len(text) || (rank(x.Level) == 0) != x.Shadow || x.Rule == "" {
				t.Fatalf("%q: %v", text, x)
			}
			if utf8.ValidString(text) && !utf8.ValidString(text[x.Start:x.End]) {
				t.Fatalf("%q: %v cuts a character", text, x)
			}
			if i > 0 && x.Start < found[i-1].Start {
				t.Fatalf("%q: not sorted: %v", text, found)
			}
		}
		// At the head of a line some rules look back no further than this.
		if len(text) > 70 {
			return
		}
		// The end of the text counts as a blank, or as the end of a line: a comma before it
		// separates constants, and an unclosed quote continues after a blank.
		var differ [][]Finding
		for _, end := range []string{" ", "\n"} {
			around := d.Detect(" " + text + end)
			for i := range around {
				around[i].Start--
				around[i].End--
			}
			if !slices.Equal(found, around) {
				differ = append(differ, around)
			}
		}
		if len(differ) > 1 {
			t.Fatalf("%q: got %v, before a blank and at the end of a line %v", text, found, differ)
		}
	})
}
