package content

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// filler repeats a text up to n bytes.
func filler(text string, n int) string {
	return strings.Repeat(text, n/len(text)+1)[:n]
}

// families are texts of all kinds that need a second check by some detector.
func families() []struct{ name, text string } {
	return []struct{ name, text string }{
		{"english", prose},
		{"source", source},
		{"digits", "4111111111111112"},
		{"digits in groups", "4111 1111 1111 1112 "},
		{"single digits", "4 "},
		{"nine digits", "123456789 "},
		{"AKIA", "AKIA"},
		{"eyJ", "eyJ"},
		{"eyJ parts", "eyJh."},
		{"eyJ whole", "eyJhIjoxfQ.eyJhIjoxfQ.eyJhIjoxfQeyJhIjoxfQ "},
		{"T3BlbkFJ", "T3BlbkFJ"},
		{"pem", "-----BEGIN PRIVATE KEY-----\n"},
		{"pem and material", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n"},
		{"base64", "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyByZWFzb24s0"},
		{"iban", "DE89 GB82 FR14 "},
		{"sk-ant-", "sk-ant-"},
		{"assignments", "password="},
		{"assigned secrets", "9token="},
		{"assigned stand-ins", "token=%%20"},
		{"harmless names", "next_token=9"},
		{"groups of no card", "4111."},
		{"numbers of nobody", "#123-45-6789"},
		{"urls", "a://b:c"},
		{"twilio", "twilio"},
		{"markings", "CONFIDENTIAL "},
		{"lower markings", "confidential"},
		{"passwords", "password is "},
		{"pins", "pin 1 "},
		{"manifests", "kind:secret data:\na: YWFhYWFhYWFh\n"},
		{"curl", "curl -u a:"},
		{"discord", "discord."},
		{"signatures", "sig=a1"},
		{"logins", `"auth":"YTpi"`},
		{"options", "--a-token "},
		{"told", "the token is "},
		{"codes told", "otp: 1 "},
		{"purposes", "password for a "},
		{"broken tokens", "glpat-aaaaaaaa\n"},
		{"broken exact tokens", "ghp_aaaaaaaa\n"},
		{"tokens in pieces", `"ghp_aaaaaaaa" + `},
		{"marks", "a1b7Q~"},
		{"mapbox", "sk.eyJa"},
		{"elements", "<token>"},
		{"headers", "authorization: a1"},
		{"addresses", "a@b."},
		{"signs of addresses", "@"},
		{"phones", "+12345678 "},
		{"signs of phones", "+1"},
		{"phones in groups", "555-010-0199 "},
		{"births", "born 1."},
		{"passports", "passport A"},
		{"codes", "RSSMRA85T10"},
		{"per cent", "%41"},
		{"references", "&#65; "},
		{"escapes", "\\u0041"},
		{"no escapes", "%&\\"},
		{"escaped here and there", "&amp; aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "},
		{"text in base64", "bm90aGluZyBoZXJlIGJ1dCB3b3Jkcwbm90aGluZyBoZXJlIGJ1dCB3b3Jkcw "},
		{"lines of base64", "bm90aGluZyBoZXJlIGJ1dCB3b3JkcyBvZiBwcm9zZSB0aGF0IGdvIG9u\n"},
		{"hexadecimal digits", "6e6f7468696e672068657265"},
		{"full width", "\uff23\uff2f\uff2e\uff26"},
		{"zero width", "A\u200b"},
		{"cjk", "\u6a5f\u5bc6"},
	}
}

// BenchmarkDetect shows that the time is proportional to the length: within a family the bytes a
// second are the same at every size.
func BenchmarkDetect(b *testing.B) {
	d := made(b, Options{})
	for _, family := range families() {
		for _, kib := range []int{1, 4, 64, 256} {
			text := filler(family.text, kib<<10)
			b.Run(fmt.Sprintf("%s/%dKiB", family.name, kib), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					d.Detect(text)
				}
			})
		}
	}
}

// TestWorstTexts bounds the time for the worst texts, with much room for a slow machine: quadratic
// time takes minutes for 256 KiB.
func TestWorstTexts(t *testing.T) {
	const limit = 10 * time.Second
	d := made(t, Options{})
	for _, family := range families() {
		text := filler(family.text, 256<<10)
		began := buildtest.Used(t)
		d.Detect(text)
		if took := buildtest.Used(t) - began; took > limit {
			t.Errorf("%s: took %v", family.name, took)
		}
	}
}
