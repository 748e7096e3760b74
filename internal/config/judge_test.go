package config

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	const weigh = "ocip: {commitment: {keywords: weigh}, judge: {"
	for _, c := range []struct{ yaml, want string }{
		{"ocip: {judge: {url: 'http://127.0.0.1:8080/v1', model: qwen3}}", ""},
		{"ocip: {judge: {url: 'http://[::1]:11434/v1', model: qwen3, timeout: 1m}}", ""},
		{"ocip: {judge: {url: 'https://models.example.com/v1', model: qwen3, elsewhere: true}}", ""},
		{weigh + "url: 'http://127.0.0.1:8080/v1', model: qwen3, may: release}}", ""},
		{"ocip: {judge: {url: 'http://127.0.0.1:8080/v1', model: qwen3, may: release}}", `ocip.judge.may: release goes with ocip.commitment.keywords: weigh alone, and that is "enforce"`},
		{weigh + "may: release}}\napprovals: {allowed_signers: /etc/signers}", "ocip.judge.may: release goes without approvals.allowed_signers"},
		{"ocip: {judge: {may: approve}}", `ocip.judge.may: unknown effect "approve", want one of annotate, release`},
		{"ocip: {judge: {url: 'http://127.0.0.1:8080/v1'}}", "ocip.judge.model: is required"},
		{"ocip: {judge: {timeout: 0s}}", "ocip.judge.timeout: want a duration above zero"},
		{"ocip: {judge: {timeout: 2m}}", "ocip.judge.timeout: want at most 1m0s, got 2m0s"},
		{"ocip: {judge: {url: 'http://localhost:8080/v1', model: m}}", "ocip.judge.url: want an address of the loopback by its number"},
		{"ocip: {judge: {url: 'http://127.0.0.1/v1', model: m}}", "ocip.judge.url: want an address of the loopback by its number, with its port"},
		{"ocip: {judge: {url: 'https://models.example.com/v1', model: m}}", "another machine needs ocip.judge.elsewhere: true"},
		{"ocip: {judge: {url: 'http://models.example.com/v1', model: m, elsewhere: true}}", "ocip.judge.url: another machine is reached by https alone"},
		{"ocip: {judge: {url: 'http://a:b@127.0.0.1:8080/v1', model: m}}", "ocip.judge.url: want an address without a user"},
		{"ocip: {judge: {url: 'http://127.0.0.1:8080/v1?key=1', model: m}}", "ocip.judge.url: want an address without a user, a query"},
		{"ocip: {judge: {url: 'file:///etc/passwd', model: m}}", "ocip.judge.url: want an address such as"},
		{"ocip: {judge: {url: 'http://127.0.0.1:99999/v1', model: m}}", "ocip.judge.url: want"},
	} {
		_, err := Parse("ocipd.yaml", []byte(c.yaml))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want the error %q", c.yaml, err, c.want)
		}
	}
}
