package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mask stands for what is not shown.
const mask = "***"

// userinfo is what a URL holds between its scheme and its host. Greedy, so that
// a password with an @ in it is hidden whole.
var userinfo = regexp.MustCompile(`://\S*@`)

// Redacted writes the configuration as YAML that [Parse] reads, for people to
// look at. In channels, apps and the operator's policy data, what stands under
// a key that looks secret (token, secret, pass, key, credential, authorization
// or cookie, in any case) is masked, a whole tree of it too; so are user names
// and passwords in URLs, and the headers of sinks. What is empty stays empty, to show that it is not set.
func (c *Config) Redacted() ([]byte, error) {
	shown := *c
	shown.Channels = redactTree(c.Channels)
	shown.Apps = redactTree(c.Apps)
	shown.Policy.Data.Extra = redactTree(c.Policy.Data.Extra)
	shown.Store.URL = redactURL(c.Store.URL)
	shown.Audit.Sinks = shownSinks(c.Audit.Sinks)

	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&shown); err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	return out.Bytes(), nil
}

func redactTree(tree map[string]any) map[string]any {
	out := make(map[string]any, len(tree))
	for key, value := range tree {
		if looksSecret(key) && !empty(value) {
			out[key] = mask
			continue
		}
		out[key] = redact(value)
	}
	return out
}

func redact(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return redactTree(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = redact(item)
		}
		return out
	case string:
		return redactURL(v)
	}
	return value
}

func redactURL(s string) string { return userinfo.ReplaceAllString(s, "://"+mask+"@") }

func looksSecret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"token", "secret", "pass", "key", "credential", "authorization", "cookie"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
