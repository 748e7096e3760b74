package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		in         string
		want, lack []string
		fails      bool
	}{
		"passed": {
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"said by A\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}
{"Action":"pass","Package":"p","Test":"TestA/row","Elapsed":9}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t1.5s\n"}
{"Action":"pass","Package":"p","Elapsed":1.5}
`,
			want: []string{"ok  \tp\t1.5s\n", "1.5s  TestA  p"}, lack: []string{"said by A", "PASS", "TestA/row"},
		},
		"failed": {
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"said by A\n"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":1}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1.5s\n"}
{"Action":"fail","Package":"p","Elapsed":1.5}
`,
			want: []string{"said by A", "FAIL\tp\t1.5s\n"}, fails: true,
		},
		"ended in the middle": {
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"said by A\n"}
{"Action":"fail","Package":"p","Elapsed":1.5}
`,
			want: []string{"said by A"}, fails: true,
		},
		"a package that is not built": {
			in: `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: wrong\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"pass","Package":"q","Test":"TestA","Elapsed":1}
`,
			want: []string{"p.go:1: wrong"}, fails: true,
		},
		"no test":                  {in: "", fails: true},
		"a word of the go command": {in: "go: no such tool\n", want: []string{"go: no such tool"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := report(strings.NewReader(c.in), &out); (err != nil) != c.fails {
				t.Errorf("the report ends with %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the report lacks %q:\n%s", want, out.String())
				}
			}
			for _, lack := range c.lack {
				if strings.Contains(out.String(), lack) {
					t.Errorf("the report has %q:\n%s", lack, out.String())
				}
			}
		})
	}
}
