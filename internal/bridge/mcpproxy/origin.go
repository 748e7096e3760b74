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

// terminalNames are variables that differ between terminals or sessions of a runtime. With them in the
// digest, no later session could send what a person has approved. They stand here by their whole names, and
// every other variable counts: a server may read its account from any, such as npm's configuration.
var terminalNames = []string{
	"_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLORTERM", "COLORFGBG", "LINES", "COLUMNS", "DISPLAY", "WAYLAND_DISPLAY", "WINDOWID", "WINDOW", "STY", "XAUTHORITY", "SESSION_MANAGER",
	"DBUS_SESSION_BUS_ADDRESS", "DESKTOP_STARTUP_ID", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "GPG_TTY", "VTE_VERSION", "INSIDE_EMACS",
	"TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "TERMINAL_EMULATOR", "LC_TERMINAL", "LC_TERMINAL_VERSION", "TMUX", "TMUX_PANE", "ZELLIJ", "ZELLIJ_PANE_ID", "ZELLIJ_SESSION_NAME",
	"XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS", "XDG_SESSION_DESKTOP", "XDG_SESSION_PATH", "XDG_SEAT", "XDG_SEAT_PATH", "XDG_VTNR", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY",
	"ITERM_PROFILE", "ITERM_SESSION_ID", "KITTY_INSTALLATION_DIR", "KITTY_LISTEN_ON", "KITTY_PID", "KITTY_PUBLIC_KEY", "KITTY_WINDOW_ID", "WEZTERM_EXECUTABLE", "WEZTERM_EXECUTABLE_DIR", "WEZTERM_PANE",
	"WEZTERM_UNIX_SOCKET", "ALACRITTY_LOG", "ALACRITTY_SOCKET", "ALACRITTY_WINDOW_ID", "GHOSTTY_BIN_DIR", "GHOSTTY_RESOURCES_DIR", "GHOSTTY_SHELL_FEATURES", "KONSOLE_DBUS_SERVICE",
	"KONSOLE_DBUS_SESSION", "KONSOLE_DBUS_WINDOW", "KONSOLE_VERSION", "GNOME_TERMINAL_SCREEN", "GNOME_TERMINAL_SERVICE", "WT_PROFILE_ID", "WT_SESSION",
	"VSCODE_CODE_CACHE_PATH", "VSCODE_CRASH_REPORTER_PROCESS_TYPE", "VSCODE_CWD", "VSCODE_ESM_ENTRYPOINT", "VSCODE_GIT_ASKPASS_EXTRA_ARGS", "VSCODE_GIT_ASKPASS_MAIN", "VSCODE_GIT_ASKPASS_NODE",
	"VSCODE_GIT_IPC_HANDLE", "VSCODE_HANDLES_UNCAUGHT_ERRORS", "VSCODE_INJECTION", "VSCODE_IPC_HOOK", "VSCODE_IPC_HOOK_CLI", "VSCODE_NLS_CONFIG", "VSCODE_PID", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT",
	"CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SSE_PORT", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID",
}

func ofTerminal(name string) bool { return slices.Contains(terminalNames, name) }
