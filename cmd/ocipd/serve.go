package main

import (
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/openclawos/ocipd/internal/base/logtext"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/runtimecmd"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/daemon/supervisor"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// gcPercent is the permitted growth of the heap between two collections.
const gcPercent = 180

// tune adapts the Go runtime to a daemon that waits for its disk, unless the user has set
// GOGC. It returns the permitted growth of the heap, or zero if the user has set it.
func (s *shell) tune() (percent int) {
	if s.Getenv("GOGC") == "" {
		// A message makes much garbage and keeps little: collecting less often costs memory
		// and saves processor time. Compared with 250 under full load, 180 takes 13 MB less
		// memory for 1.5 % more processor time, and 120 another 11 MB less for 9 %.
		percent = gcPercent
		debug.SetGCPercent(percent)
	}
	if s.Getenv("GOMAXPROCS") == "" {
		// One thread always waits for the disk, and the runtime takes a while to notice
		// that its processor is free.
		runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	}
	return percent
}

func newServe(s *shell) *cobra.Command {
	var level, format string
	var set []string
	c := &cobra.Command{
		Use: "serve",
		Example: "  ocipd serve\n" +
			"  ocipd serve --config ocipd.yaml --log-format json\n" +
			"  ocipd serve --set approvals.max_open=10",
		Short: "run the daemon in the foreground",
		Long: `Run the daemon in the foreground until SIGINT or SIGTERM. Requests in progress are
then answered, for up to drain_timeout; a second signal leaves them unanswered,
closes the store and exits with 1 if there were any. SIGHUP reloads the
configuration and the policy.

Sockets passed by systemd are used unless --socket or OPENCLAWOS_KERNEL_SOCKET
names another; "ocipd service install" sets both up.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// First of all, because until then a SIGHUP would end the program.
			reload := hangups()
			flags, err := cli.KeyValues(set)
			if err != nil {
				return err
			}
			if level != "" {
				flags["log.level"] = level
			}
			if format != "" {
				flags["log.format"] = format
			}
			cfg, err := s.Load(flags)
			if err != nil {
				return err
			}
			if err := s.manager().GoOnWithFormer(cmd.Context(), cfg); err != nil {
				return err
			}
			percent := s.tune()
			log, threshold := newLogger(cfg.Log, s.Stderr, term.ScreenOf(s.Stderr, s.Getenv))
			notes := filepath.Join(filepath.Dir(config.DatabasePath(cfg, s.Getenv)), runtimecmd.Notes)
			d, err := daemon.New(daemon.Options{
				Gates:  func() map[string][]string { return integrate.Held(notes) },
				Config: cfg, Getenv: s.Getenv, Version: buildVersion(), Log: log, Level: &threshold,
				Process: &daemon.Process{GCPercent: percent}, Passed: supervisor.Files(), Manager: supervisor.New(log.Named("supervisor")),
			})
			if err != nil {
				return err
			}
			onSecondSignal(cmd.Context(), d.Abort)
			return d.Run(cmd.Context(), reload)
		},
	}
	c.Flags().StringVar(&level, "log-level", "", "`LEVEL` of the log: debug, info, warn or error")
	c.Flags().StringVar(&format, "log-format", "", "`FORMAT` of the log: json, console, or auto: console on a terminal")
	cli.SetFlag(c, &set)
	return c
}

// newLogger returns a logger for the configuration, which writes to w, and its adjustable level.
func newLogger(l config.Log, w io.Writer, screen term.Screen) (*zap.Logger, zap.AtomicLevel) {
	level, err := zap.ParseAtomicLevel(l.Level)
	if err != nil {
		level = zap.NewAtomicLevel() // a loaded configuration has a level
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey = "time"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(encoding)
	if l.Format == "console" || l.Format == "auto" && screen.Terminal {
		encoder = logtext.New(screen.Colour)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)), level
}
