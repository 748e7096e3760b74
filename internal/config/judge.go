package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/config/keypath"
)

// Judge is the operator's own model that `ocipd judge` asks about messages which only a guess about
// their words holds.
type Judge struct {
	// URL is the base of a server with OpenAI's chat completions, such as http://127.0.0.1:8080/v1.
	// If it is empty, no model is asked.
	URL string `yaml:"url" show:"url"`
	// Model is the model's name at the server.
	Model string `yaml:"model"`
	// Timeout bounds the wait for an answer, up to a minute. A later one changes nothing.
	Timeout time.Duration `yaml:"timeout"`
	// May is annotate (a person is told the answer) or release (a no sends the message).
	May string `yaml:"may"`
	// Elsewhere allows a server on another machine, by https, and one of another user on this machine.
	Elsewhere bool `yaml:"elsewhere"`
}

// The words of ocip.judge.may.
const (
	JudgeAnnotates = "annotate"
	JudgeReleases  = "release"
)

const (
	maxJudgeTime = time.Minute
	maxModel     = 256
)

func (c *Config) checkJudge(p *problems) {
	j, at := &c.OCIP.Judge, keypath.Path{}.Key("ocip").Key("judge")
	p.positive(at.Key("timeout"), j.Timeout)
	if j.Timeout > maxJudgeTime {
		p.bad(at.Key("timeout"), "want at most %s, got %s", maxJudgeTime, j.Timeout)
	}
	p.word(at.Key("may"), "effect", j.May, JudgeAnnotates, JudgeReleases)
	if len(j.Model) > maxModel {
		p.bad(at.Key("model"), "want at most %d bytes, got %d", maxModel, len(j.Model))
	}
	if j.May == JudgeReleases {
		if c.OCIP.Commitment.Keywords != "weigh" {
			p.bad(at.Key("may"), "release goes with ocip.commitment.keywords: weigh alone, and that is %q", c.OCIP.Commitment.Keywords)
		}
		if c.Approvals.AllowedSigners != "" {
			p.bad(at.Key("may"), "release goes without approvals.allowed_signers alone: with it, every release is signed by a person")
		}
	}
	if j.URL == "" {
		return
	}
	p.required(at.Key("model"), j.Model)
	if why := j.unusable(); why != "" {
		p.bad(at.Key("url"), "%s", why)
	}
}

// unusable says why the judge's URL cannot be used, or is "". It does not quote it: a URL can have a
// password.
func (j *Judge) unusable() string {
	u, err := url.Parse(j.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return "want an address such as http://127.0.0.1:8080/v1"
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(j.URL, "#"):
		return "want an address without a user, a query and a fragment"
	case j.Elsewhere && u.Scheme == "https":
		return ""
	case notLoopback(u.Host) == "":
		return ""
	case j.Elsewhere:
		return "another machine is reached by https alone: the texts of held messages go there"
	}
	return "want an address of the loopback by its number, with its port, such as http://127.0.0.1:8080/v1; another machine needs ocip.judge.elsewhere: true"
}
