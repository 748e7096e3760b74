package logtext

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

type noon struct{}

func (noon) Now() time.Time                         { return time.Date(2026, 3, 1, 12, 0, 1, 0, time.Local) }
func (noon) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

func TestLines(t *testing.T) {
	var out bytes.Buffer
	log := zap.New(zapcore.NewCore(New(term.Palette{}), zapcore.AddSync(&out), zap.InfoLevel), zap.WithClock(noon{}))
	log.Debug("unsaid")
	log.Named("reload").With(zap.String("by", "operator")).Info("in force", zap.Strings("changed", []string{"agents", "routes"}), zap.Duration("after", 2*time.Second))
	log.With(zap.Int("n", 1))
	log.Warn("refused\x1b[2J\nINFO forged", zap.String("app", "@acme/x\u202e y"), zap.Error(errors.New("")))
	want := `12:00:01 INFO  reload: in force  by=operator  changed="[agents routes]"  after=2s
12:00:01 WARN  refused‹U+001B›[2J; INFO forged  app="@acme/x‹U+202E› y"  error=""
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestColour(t *testing.T) {
	var out bytes.Buffer
	log := zap.New(zapcore.NewCore(New(term.Palette{On: true}), zapcore.AddSync(&out), zap.InfoLevel))
	log.Error("broken")
	if got := out.String(); !strings.Contains(got, "\x1b[31mERROR\x1b[") {
		t.Errorf("got %q", got)
	}
}
