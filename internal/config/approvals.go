package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/config/keypath"
)

// checkApprovals checks the rules of approval requests.
func (c *Config) checkApprovals(p *problems) {
	at := keypath.Path{}.Key("approvals")
	p.positive(at.Key("expires_after"), c.Approvals.ExpiresAfter)
	p.atLeast(at.Key("max_open"), c.Approvals.MaxOpen, 1)
	p.between(at.Key("required"), c.Approvals.Required, 1, maxApprovers)
	c.checkOrigins(p, at)
	c.checkNotify(p, at)
	p.word(keypath.Path{}.Key("console").Key("decide"), "proof", c.Console.Decide, DecidePasskey, DecideSession)
}

// checkOrigins checks where passkeys may sign.
func (c *Config) checkOrigins(p *problems, at keypath.Path) {
	at = at.Key("origins")
	if len(c.Approvals.Origins) > 0 && c.Approvals.AllowedSigners == "" {
		p.bad(at, "a page's passkey counts only if approvals.allowed_signers lists it, and that is not set")
	}
	for i, origin := range c.Approvals.Origins {
		if err := checkOrigin(origin); err != nil {
			p.bad(at.Index(i), "%v", err)
		}
	}
}

// checkOrigin refuses a text that is no origin of a page on which browsers offer passkeys:
// https://HOST[:PORT], or http:// at localhost or a name below it.
func checkOrigin(origin string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789.-:[]/"
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin || strings.HasSuffix(u.Host, ":") || strings.Trim(origin, allowed) != "" {
		return fmt.Errorf("%q is no origin: write https://HOST, or http://NAME.localhost:PORT, in lower case and without a path", origin)
	}
	name := u.Hostname()
	local := name == "localhost" || strings.HasSuffix(name, ".localhost")
	switch {
	case u.Scheme == "http" && local, u.Scheme == "https" && strings.Trim(name, "0123456789.") != "" && !strings.Contains(name, ":"):
		return nil
	case u.Scheme == "http" || u.Scheme == "https":
		return fmt.Errorf("browsers offer no passkeys at %q: only at https:// with a name, and at http://localhost or a name below it", origin)
	}
	return fmt.Errorf("%q has the scheme %q: an origin begins with https:// or http://", origin, u.Scheme)
}

// checkNotify checks the command, without quoting it in errors.
func (c *Config) checkNotify(p *problems, at keypath.Path) {
	command, at := c.Approvals.Notify.Command, at.Key("notify").Key("command")
	if len(command) == 0 {
		return
	}
	switch program := command[0]; {
	case !filepath.IsAbs(program):
		p.bad(at, "want the program by its absolute path, and its arguments after it")
	case strings.Contains(program, " -"):
		// No shell parses it, and the log would contain the whole as the program's name.
		p.bad(at, "want the program and each of its arguments as items of their own")
	}
	for i, argument := range command {
		if strings.ContainsRune(argument, 0) {
			p.bad(at.Index(i), "no argument can hold a NUL")
		}
	}
}
