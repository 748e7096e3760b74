package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
	"go.uber.org/zap"
)

func TestLogger(t *testing.T) {
	for format, want := range map[string]string{"json": `"msg":"said","n":1`, "auto": `"msg":"said","n":1`, "console": " WARN  said  n=1\n"} {
		var out bytes.Buffer
		log, _ := newLogger(config.Log{Level: "warn", Format: format}, &out, term.Screen{})
		log.Info("unsaid")
		log.Warn("said", zap.Int("n", 1))
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "unsaid") {
			t.Errorf("%s gives %q", format, got)
		}
	}
}
