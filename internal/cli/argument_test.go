package cli

import "testing"

func TestArgument(t *testing.T) {
	for id, want := range map[string]string{
		"01a1fd5b-310b-7864-9821-3314347342bd": "01a1fd5b-310b-7864-9821-3314347342bd",
		"acme/eng:1@x_y.z":                     "acme/eng:1@x_y.z",
		"x; rm -rf ~":                          "'x; rm -rf ~'",
		"$(reboot)":                            "'$(reboot)'",
		"`reboot`":                             "'`reboot`'",
		"a&b|c>d":                              "'a&b|c>d'",
		"it's":                                 "ID",
		"bang!":                                "ID",
		`back\slash`:                           "ID",
		"--json":                               "ID",
		"- x":                                  "ID",
		"esc\x1b[31m":                          "ID",
		"line\nline":                           "ID",
		"right\u202eleft":                      "ID",
		"":                                     "ID",
	} {
		if got := Argument(id); got != want {
			t.Errorf("%q is %s, want %s", id, got, want)
		}
	}
}
