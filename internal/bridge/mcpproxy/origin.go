package mcpproxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Source distinguishes a server from others with its name: by its command line or address,
// and for a command by environment and working folder, which choose the account. A program
// reads a token from a variable, and settings (.env, node_modules) from its folder.
type Source struct {
	// Name is the server's name in its client's list, and Shown the name for people.
	Name, Shown string
	Address     string
	Command     []string
	Env         []string
	Folder      string
}

// Origin names the source for the daemon, which compares and shows it. The digest is keyed,
// because the environment holds secrets, and short ones could be guessed from a digest.
func (s *Source) Origin(key string) string {
	h := hmac.New(sha256.New, []byte(key))
	part := func(list ...string) {
		fmt.Fprintf(h, "%d\n", len(list))
		for _, text := range list {
			fmt.Fprintf(h, "%d:%s\n", len(text), text)
		}
	}
	part(s.Name, s.Address, s.Folder)
	part(s.Command...)
	env := slices.DeleteFunc(slices.Clone(s.Env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return ofTerminal(name)
	})
	slices.Sort(env)
	part(env...)
	return fmt.Sprintf("%s #%x", s.Shown, h.Sum(nil)[:6])
}

// Variables that differ between terminals or sessions of a runtime. With them in the
// digest, no later session could send an approved message. Every other variable counts,
// because nobody can list those that choose an account.
var (
	terminalNames = []string{
		"_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLORTERM", "COLORFGBG", "LINES", "COLUMNS", "DISPLAY", "WAYLAND_DISPLAY", "WINDOWID", "WINDOW", "STY", "XAUTHORITY", "SESSION_MANAGER",
		"DBUS_SESSION_BUS_ADDRESS", "DESKTOP_STARTUP_ID", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "NOTIFY_SOCKET", "GPG_TTY", "VTE_VERSION", "INSIDE_EMACS", "CLAUDECODE",
	}
	terminalPrefixes = []string{
		"TERM_", "TERMINAL_", "TMUX", "ZELLIJ", "XDG_SESSION_", "XDG_SEAT", "XDG_VTNR", "SSH_", "ITERM_", "KITTY_", "WEZTERM_", "ALACRITTY_", "GHOSTTY_", "KONSOLE_", "GNOME_TERMINAL_", "WT_",
		"LC_TERMINAL", "VSCODE_", "npm_", "CLAUDE_CODE_", "CODEX_SANDBOX", "CODEX_THREAD", "WATCHDOG_",
	}
)

func ofTerminal(name string) bool {
	return slices.Contains(terminalNames, name) || slices.ContainsFunc(terminalPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
