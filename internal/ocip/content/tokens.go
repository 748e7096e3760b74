package content

import "strings"

// token is a credential that an issuer gave a prefix to. The prefix is matched
// exactly, and the body must end where it ends: a byte more of the same kind
// and it is something else.
type token struct {
	rule   string
	prefix string
	set    kind
	// min and max bound the body. A max of 0 is no bound.
	min, max int
}

const (
	hexDigits = hexLower | digit
	upperNum  = upperCase | digit
)

// tokens is the rule set. To add one: find the issuer's own words on the
// format, prefer a prefix nobody would type, and bound the length from below.
// Test-mode keys and public identifiers do not belong here.
var tokens = []token{
	// Clouds
	{"credential.aws-access-key-id", "AKIA", upperNum, 16, 16},
	{"credential.aws-access-key-id", "ASIA", upperNum, 16, 16},
	{"credential.aws-access-key-id", "ABIA", upperNum, 16, 16},
	{"credential.alibaba-access-key-id", "LTAI", alnum, 16, 20},
	{"credential.google-api-key", "AIza", base64URL, 35, 35},
	{"credential.google-oauth-client-secret", "GOCSPX-", base64URL, 28, 28},
	{"credential.google-oauth-access-token", "ya29.", base64URL, 40, 0},
	{"credential.digitalocean-token", "dop_v1_", hexDigits, 64, 64},
	{"credential.digitalocean-token", "doo_v1_", hexDigits, 64, 64},
	{"credential.digitalocean-token", "dor_v1_", hexDigits, 64, 64},
	{"credential.heroku-token", "HRKU-", base64URL, 36, 0},
	{"credential.supabase-token", "sbp_", hexDigits, 40, 40},
	{"credential.planetscale-token", "pscale_tkn_", base64URL | dot, 32, 0},
	{"credential.planetscale-password", "pscale_pw_", base64URL | dot, 32, 0},
	{"credential.databricks-token", "dapi", hexDigits, 32, 32},
	{"credential.pulumi-token", "pul-", hexDigits, 40, 40},
	{"credential.tailscale-key", "tskey-", alnum | dash, 20, 0},

	// Code hosts and package registries
	{"credential.github-token", "ghp_", alnum, 36, 251},
	{"credential.github-token", "gho_", alnum, 36, 251},
	{"credential.github-token", "ghu_", alnum, 36, 251},
	{"credential.github-token", "ghs_", word | dash | dot, 36, 0},
	{"credential.github-token", "ghr_", alnum, 36, 251},
	{"credential.github-fine-grained-token", "github_pat_", word, 59, 0},
	{"credential.gitlab-token", "glpat-", base64URL | dot, 20, 0},
	{"credential.gitlab-token", "gldt-", base64URL | dot, 20, 0},
	{"credential.gitlab-token", "glrt-", base64URL | dot, 20, 0},
	{"credential.gitlab-token", "glptt-", hexDigits, 40, 40},
	{"credential.gitlab-token", "glcbt-", base64URL, 20, 0},
	{"credential.gitlab-token", "glagent-", base64URL, 50, 0},
	{"credential.npm-token", "npm_", alnum, 36, 36},
	{"credential.pypi-token", "pypi-AgEI", base64URL, 50, 0},
	{"credential.pypi-token", "pypi-AgEN", base64URL, 50, 0},
	{"credential.rubygems-token", "rubygems_", hexDigits, 48, 48},
	{"credential.docker-token", "dckr_pat_", base64URL, 20, 0},
	{"credential.docker-token", "dckr_oat_", base64URL, 20, 0},
	{"credential.atlassian-token", "ATATT3", base64URL | equals, 100, 0},

	// Talk and mail
	{"credential.slack-token", "xoxb-", alnum | dash, 20, 0},
	{"credential.slack-token", "xoxp-", alnum | dash, 20, 0},
	{"credential.slack-token", "xoxa-", alnum | dash, 20, 0},
	{"credential.slack-token", "xoxr-", alnum | dash, 20, 0},
	{"credential.slack-token", "xoxs-", alnum | dash, 20, 0},
	{"credential.slack-token", "xoxc-", alnum | dash, 20, 0},
	{"credential.slack-token", "xoxe-", alnum | dash, 20, 0},
	{"credential.slack-token", "xapp-", alnum | dash, 20, 0},

	// Money
	{"credential.stripe-key", "sk_live_", alnum, 16, 0},
	{"credential.stripe-key", "rk_live_", alnum, 16, 0},
	{"credential.stripe-webhook-secret", "whsec_", alnum | slash | equals, 32, 0},
	{"credential.square-token", "sq0atp-", base64URL, 22, 22},
	{"credential.square-token", "sq0csp-", base64URL, 43, 43},
	{"credential.shopify-token", "shpat_", hexDigits | hexUpper, 32, 32},
	{"credential.shopify-token", "shpca_", hexDigits | hexUpper, 32, 32},
	{"credential.shopify-token", "shppa_", hexDigits | hexUpper, 32, 32},
	{"credential.shopify-token", "shpss_", hexDigits | hexUpper, 32, 32},

	// Models
	{"credential.openai-key", "sk-proj-", base64URL, 40, 0},
	{"credential.openai-key", "sk-svcacct-", base64URL, 40, 0},
	{"credential.openai-key", "sk-admin-", base64URL, 40, 0},
	{"credential.anthropic-key", "sk-ant-", base64URL, 32, 0},
	{"credential.openrouter-key", "sk-or-v1-", hexDigits, 64, 64},
	{"credential.huggingface-token", "hf_", alnum, 34, 34},
	{"credential.groq-key", "gsk_", alnum, 52, 52},
	{"credential.replicate-token", "r8_", alnum, 37, 37},
	{"credential.xai-key", "xai-", alnum, 80, 80},
	{"credential.perplexity-key", "pplx-", alnum, 48, 48},

	// Vaults, monitors, desks
	{"credential.vault-token", "hvs.", base64URL, 24, 0},
	{"credential.vault-token", "hvb.", base64URL, 24, 0},
	{"credential.vault-token", "hvr.", base64URL, 24, 0},
	{"credential.age-secret-key", "AGE-SECRET-KEY-1", upperNum, 58, 58},
	{"credential.grafana-token", "glsa_", word, 41, 41},
	{"credential.grafana-token", "glc_", base64Std | equals, 32, 0},
	{"credential.new-relic-key", "NRAK-", upperNum, 27, 27},
	{"credential.sentry-token", "sntryu_", hexDigits, 64, 64},
	{"credential.postman-key", "PMAK-", hexDigits | dash, 59, 59},
	{"credential.linear-key", "lin_api_", alnum, 40, 40},
	{"credential.figma-token", "figd_", base64URL, 40, 0},
}

// token weighs what may be a t that begins at at.
func (s *scan) token(t *token, at int) {
	if s.text[at:at+len(t.prefix)] != t.prefix || !s.fresh(at, alnum) || at < s.tried[t.prefix] {
		return
	}
	body := at + len(t.prefix)
	limit := body + t.max + 1
	if t.max == 0 {
		limit = len(s.text)
	}
	end := s.run(body, t.set, limit)
	if t.max == 0 {
		if s.tried == nil {
			s.tried = map[string]int{}
		}
		s.tried[t.prefix] = end
		for end > body && s.is(end-1, dot|dash) { // of the sentence around it
			end--
		}
	}
	// A bounded body must end there, also where what follows is a letter the
	// set does not have.
	if end-body < t.min || t.max > 0 && (end-body > t.max || s.is(end, alnum)) {
		return
	}
	if genuine(s.text[body:end], t.set) {
		s.add(t.rule, Restricted, at, end)
	}
}

// genuine reports whether a body was drawn by a machine: not a stand-in, and
// not words with hyphens between them.
func genuine(body string, set kind) bool {
	const glance = 256 // longer than any stand-in
	body = body[:min(len(body), glance)]
	m := weigh(body)
	if m.distinct < 6 || set.in(lowerCase) && m.classes() < 2 {
		return false
	}
	folded := strings.ToLower(body)
	for _, s := range []string{"xxxx", "your", "redacted", "placeholder"} {
		if strings.Contains(folded, s) {
			return false
		}
	}
	return true
}
