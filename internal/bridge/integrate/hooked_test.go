package integrate

import (
	"os"
	"path/filepath"
	"testing"
)

// A setting that can switch the hook off is found in every form, in the user's settings and in the
// project's, and integrate takes the user's out.
func TestHookSwitches(t *testing.T) {
	t.Parallel()
	r := hooked("gemini")
	for text, off := range map[string]bool{
		``: false, `{}`: false, `{"hooksConfig":{}}`: false,
		`{"hooksConfig":{"enabled":true}}`:            false,
		`{"hooksConfig":{"enabled":false}}`:           true,
		`{"hooksConfig":{"enabled":"false"}}`:         true,
		`{"hooksConfig":{"enabled":0}}`:               true,
		`{"hooksConfig":{"enabled":"$X"}}`:            true,
		`{"hooks\u0043onfig":{"ena\u0062led":false}}`: true,
		`{"hooksConfig":{"disabled":[]}}`:             false,
		`{"hooksConfig":{"disabled":["another"]}}`:    false,
		`{"hooksConfig":{"disabled":["a","ocipd"]}}`:  true,
		`{"hooksConfig":{"disabled":["ocip\u0064"]}}`: true,
		`{"hooksConfig":{"disabled":["${X}"]}}`:       true,
		`{"hooksConfig":{"disabled":"ocipd"}}`:        true,
	} {
		home := t.TempDir()
		file := filepath.Join(home, ".gemini", "settings.json")
		write := func(text []byte) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write([]byte(text))
		p := &Place{Home: home, Getenv: func(string) string { return "" }}
		list, err := hookSwitches(r, p, false)
		if err != nil || len(list) > 0 != off {
			t.Errorf("%s: %v, %v", text, list, err)
		}
		for _, one := range list {
			without, err := one.out.Strip([]byte(text))
			if write(without); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			if list, err := hookSwitches(r, p, false); err != nil || len(list) > 0 {
				t.Errorf("%s: after it was taken out there is %s: %v, %v", text, without, list, err)
			}
		}
		write([]byte(text))
		there := &Place{Home: t.TempDir(), Folder: home, Getenv: p.Getenv}
		if list, err := hookSwitches(r, there, false); err != nil || len(list) > 0 != off || len(list) > 0 && list[0].out != nil {
			t.Errorf("%s in a project: %v, %v", text, list, err)
		}
		there.Home = home
		if list, err := hookSwitches(r, there, false); err != nil || len(list) > 1 {
			t.Errorf("%s in the home: %v, %v", text, list, err)
		}
	}
}

// A server of ocipd whose last words name another daemon is none of this daemon's.
func TestServerOfAnotherDaemon(t *testing.T) {
	t.Parallel()
	p := &Place{Home: t.TempDir(), Self: "/bin/ocipd", Socket: "/s", Options: []string{"--socket", "/s"}, Getenv: func(string) string { return "" }}
	for _, tc := range []struct {
		more []string
		own  bool
	}{{nil, true}, {[]string{"--token-file", "/t"}, true}, {[]string{"--socket", "/x"}, false}, {[]string{"--token-file", "/t", "--config=/x"}, false}} {
		s := &Server{Command: p.Self, Args: append([]string{"--socket", "/s", serveCommand}, tc.more...)}
		if _, own, _ := p.behind(s); own != tc.own {
			t.Errorf("%v: %t", s.Args, own)
		}
	}
}
