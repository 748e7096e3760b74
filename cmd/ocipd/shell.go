package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

// shell is what a command is given of the process it runs in, with the flags
// that every command has.
type shell struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// env is the environment in the form of os.Environ.
	env []string

	configFile string
	socket     string

	// warned is set when it was said that the configuration is broken.
	warned bool

	// ran is set when a command begins: what fails before it is wrong usage.
	ran bool
}

// mark has every command below c set ran.
func (s *shell) mark(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			s.ran = true
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		s.mark(sub)
	}
}

// getenv is os.Getenv over the shell's environment.
func (s *shell) getenv(name string) string {
	value := ""
	for _, kv := range s.env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			value = v
		}
	}
	return value
}

// load reads the configuration, with further values by dotted key that were
// given as flags.
func (s *shell) load(flags map[string]any) (*config.Config, error) {
	return s.loadFile(s.configFile, flags)
}

func (s *shell) loadFile(file string, flags map[string]any) (*config.Config, error) {
	all := map[string]any{}
	if s.socket != "" {
		all[socketKey] = s.socket
	}
	maps.Copy(all, flags)
	return config.Load(config.Options{File: file, Env: s.env, Flags: all})
}

// socketKey says where the daemon is.
const socketKey = "ipc.socket"

// locate reads the configuration for where things are, see [config.Locate].
func (s *shell) locate() (*config.Config, error) { return s.locateBy(s.configFile) }

func (s *shell) locateBy(file string) (*config.Config, error) {
	flags := map[string]any{}
	if s.socket != "" {
		flags[socketKey] = s.socket
	}
	return config.Locate(config.Options{File: file, Env: s.env, Flags: flags})
}

// places is the configuration for a command that only looks for the daemon or its
// files, by the keys that are given. What is broken in it, the command says and
// goes on, but where it cannot tell for certain what one of the keys is: it would
// go to another daemon, or read another's files.
func (s *shell) places(keys ...string) (*config.Config, error) {
	cfg, broken := s.locate()
	if cfg == nil {
		return nil, broken
	}
	for _, key := range keys {
		if err := cfg.Certain(key); err != nil {
			what, _, _ := strings.Cut(broken.Error(), "\n")
			name := "say it with " + config.EnvName(key)
			if key == socketKey {
				name = "name the daemon with --socket"
			}
			return nil, fmt.Errorf("%w (%s); correct the file, or %s", err, what, name)
		}
	}
	if broken != nil && !s.warned {
		s.warned = true
		what, more, _ := strings.Cut(broken.Error(), "\n")
		if more != "" {
			what += " (and more)"
		}
		// What is wrong names the file, or the variable.
		fmt.Fprintf(s.stderr, "warning: cannot use the configuration as it is, and the daemon may run with an earlier one: %s\n", term.Printable(what))
	}
	return cfg, nil
}

// kernelSocket is where apps connect. A broken configuration does not matter
// where --socket names the place.
func (s *shell) kernelSocket() (string, error) {
	if s.socket != "" {
		return s.socket, nil
	}
	cfg, err := s.places(socketKey)
	if err != nil {
		return "", err
	}
	return config.SocketPath(cfg, s.getenv), nil
}

// dialOperator connects to the operator socket.
func (s *shell) dialOperator(ctx context.Context) (*client.Client, error) {
	path, err := s.kernelSocket()
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, config.OperatorPath(path))
}

// answerTime bounds how long a command waits for one answer.
const answerTime = 30 * time.Second

// screen is how stdout shows things.
func (s *shell) screen() term.Screen { return term.ScreenOf(s.stdout, s.getenv) }

// height is how many lines of stdout are seen at once.
func (s *shell) height() int { return term.HeightOf(s.stdout, s.getenv) }

// rowsShown is how many lines of a list are printed. A program is given all of them.
func (s *shell) rowsShown() int {
	if s.screen().Terminal || s.getenv("LINES") != "" {
		return s.height()
	}
	return term.AnyWidth
}

// printJSON writes a value for programs.
func (s *shell) printJSON(value any) error {
	encoded, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = s.stdout.Write(s.screen().JSONLine(encoded))
	return err
}

// operate makes one call on the operator socket.
func (s *shell) operate(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	c, err := s.dialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, method, params, result)
}

// askOperator is operate for a method that takes no parameters, with the answer
// as it is.
func (s *shell) askOperator(ctx context.Context, method string) (raw jsontext.Value, err error) {
	err = s.operate(ctx, method, nil, &raw)
	return raw, err
}

// tellOperator calls a method without parameters on the operator socket. For a
// program the answer, or the error, is printed as it is; for a person it is put
// into result.
func (s *shell) tellOperator(ctx context.Context, method string, asJSON bool, result any) (printed bool, err error) {
	raw, err := s.askOperator(ctx, method)
	switch {
	case err != nil && asJSON:
		return false, s.refused(err)
	case err != nil:
		return false, err
	case asJSON:
		_, err := s.stdout.Write(s.screen().JSONLine(raw))
		return true, err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return false, fmt.Errorf("cannot read the daemon's answer: %w", err)
	}
	return false, nil
}

// consents asks for a yes or a no. Anything but a yes is a no.
func (s *shell) consents(in *bufio.Reader, text string) (bool, error) {
	answer, err := s.question(in, text, "")
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), err
}

// question asks on stderr, and returns what is proposed where nothing is said.
func (s *shell) question(in *bufio.Reader, text, proposed string) (string, error) {
	if proposed != "" {
		text += " [" + proposed + "]"
	}
	if _, err := fmt.Fprintf(s.stderr, "%s: ", term.Printable(text)); err != nil {
		return "", err
	}
	line, err := in.ReadString('\n')
	if err != nil && line == "" {
		return "", fmt.Errorf("cannot read the answer: %w; nothing was written", err)
	}
	return cmp.Or(strings.TrimSpace(line), proposed), nil
}
