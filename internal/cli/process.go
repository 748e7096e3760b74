package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
)

// Process is what a command is given of the process it runs in, with the flags that
// every command has.
type Process struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Env is the environment in the form of os.Environ.
	Env []string
	// Version is that of this program.
	Version string

	// Interrupted is closed when the user wants the command to end; nil never is.
	Interrupted <-chan struct{}

	ConfigFile string
	Socket     string

	// warned is set when it was said that the configuration is broken.
	warned bool
}

// Getenv is os.Getenv over the shell's environment.
func (s *Process) Getenv(name string) string {
	value := ""
	for _, kv := range s.Env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			value = v
		}
	}
	return value
}

// Load reads the configuration, with further values by dotted key that were
// given as flags.
func (s *Process) Load(flags map[string]any) (*config.Config, error) {
	return s.LoadFile(s.ConfigFile, flags)
}

// LoadFile is Load for another file.
func (s *Process) LoadFile(file string, flags map[string]any) (*config.Config, error) {
	all := map[string]any{}
	if s.Socket != "" {
		all[SocketKey] = s.Socket
	}
	maps.Copy(all, flags)
	return config.Load(config.Options{File: file, Env: s.Env, Flags: all})
}

// SocketKey says where the daemon is.
const SocketKey = "ipc.socket"

// locate reads the configuration for where things are, see [config.Locate].
func (s *Process) locate() (*config.Config, error) { return s.LocateBy(s.ConfigFile) }

// LocateBy reads a file for where things are, see [config.Locate].
func (s *Process) LocateBy(file string) (*config.Config, error) {
	flags := map[string]any{}
	if s.Socket != "" {
		flags[SocketKey] = s.Socket
	}
	return config.Locate(config.Options{File: file, Env: s.Env, Flags: flags})
}

// Places is the configuration for a command that only looks for the daemon or its
// files, by the keys that are given. What is broken in it, the command says and
// goes on, but where it cannot tell for certain what one of the keys is: it would
// go to another daemon, or read another's files.
func (s *Process) Places(keys ...string) (*config.Config, error) {
	cfg, broken := s.locate()
	if cfg == nil {
		return nil, broken
	}
	for _, key := range keys {
		if err := cfg.Certain(key); err != nil {
			what, _, _ := strings.Cut(broken.Error(), "\n")
			name := "say it with " + config.EnvName(key)
			if key == SocketKey {
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
		fmt.Fprintf(s.Stderr, "warning: cannot use the configuration as it is, and the daemon may run with an earlier one: %s\n", term.Printable(what))
	}
	return cfg, nil
}

// KernelSocket is where apps connect. A broken configuration does not matter
// where --socket names the place.
func (s *Process) KernelSocket() (string, error) {
	if s.Socket != "" {
		return s.Socket, nil
	}
	cfg, err := s.Places(SocketKey)
	if err != nil {
		return "", err
	}
	return config.SocketPath(cfg, s.Getenv), nil
}

// OperatorSocket is where a daemon answers operators.
func (s *Process) OperatorSocket() (string, error) {
	path, err := s.KernelSocket()
	return config.OperatorPath(path), err
}

// DialOperator connects to the operator socket.
func (s *Process) DialOperator(ctx context.Context) (*client.Client, error) {
	path, err := s.OperatorSocket()
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, path)
}

// AnswerTime bounds how long a command waits for one answer.
const AnswerTime = 30 * time.Second

// Screen is how stdout shows things.
func (s *Process) Screen() term.Screen { return term.ScreenOf(s.Stdout, s.Getenv) }

// height is how many lines of stdout are seen at once.
func (s *Process) height() int { return term.HeightOf(s.Stdout, s.Getenv) }

// RowsShown is how many lines of a list are printed. A program is given all of them.
func (s *Process) RowsShown() int {
	if s.Screen().Terminal || s.Getenv("LINES") != "" {
		return s.height()
	}
	return term.AnyWidth
}

// PrintJSON writes a value for programs.
func (s *Process) PrintJSON(value any) error {
	encoded, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = s.Stdout.Write(s.Screen().JSONLine(encoded))
	return err
}

// Report prints a result: as JSON for a program, and in words for a person.
func (s *Process) Report(asJSON bool, result any, format string, args ...any) error {
	if asJSON {
		return s.PrintJSON(result)
	}
	_, err := fmt.Fprintf(s.Stdout, format, args...)
	return err
}

// Operate makes one call on the operator socket.
func (s *Process) Operate(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, method, params, result)
}

// AskPage asks for one page, in the time that an answer may take.
func (s *Process) AskPage(ctx context.Context, call func(context.Context, string, any, any) error, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	return call(ctx, method, params, result)
}

// AskOperator is operate for a method that takes no parameters, with the answer
// as it is.
func (s *Process) AskOperator(ctx context.Context, method string) (raw jsontext.Value, err error) {
	err = s.Operate(ctx, method, nil, &raw)
	return raw, err
}

// TellOperator calls a method without parameters on the operator socket. For a
// program the answer, or the error, is printed as it is; for a person it is put
// into result.
func (s *Process) TellOperator(ctx context.Context, method string, asJSON bool, result any) (printed bool, err error) {
	raw, err := s.AskOperator(ctx, method)
	switch {
	case err != nil && asJSON:
		return false, s.Refused(err)
	case err != nil:
		return false, err
	case asJSON:
		_, err := s.Stdout.Write(s.Screen().JSONLine(raw))
		return true, err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return false, fmt.Errorf("cannot read the daemon's answer: %w", err)
	}
	return false, nil
}

// Say prints a line of printable words. At a terminal it is folded between words.
func (s *Process) Say(format string, args ...any) {
	_ = term.Line(s.Stdout, fmt.Sprintf(format, args...)) // as with every other word for people
}

// Consents asks for a yes or a no. Anything but a yes is a no.
func (s *Process) Consents(in *bufio.Reader, text string) (bool, error) {
	answer, err := s.Question(in, text, "")
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), err
}

// questionWidth is how wide a question's lines are, so that they fit every terminal, and
// answerWidth what is kept free for the answer: a question that leaves less has it on a
// line of its own.
const questionWidth, answerWidth = 76, 24

// Question asks on stderr, and returns what is proposed where nothing is said.
func (s *Process) Question(in *bufio.Reader, text, proposed string) (string, error) {
	if proposed != "" {
		text += " [" + proposed + "]"
	}
	lines := term.FoldAtBlanks(term.Printable(text)+":", questionWidth)
	if term.Width(lines[len(lines)-1]) > questionWidth-answerWidth {
		lines = append(lines, ">")
	}
	if _, err := fmt.Fprint(s.Stderr, strings.Join(lines, "\n")+" "); err != nil {
		return "", err
	}
	type outcome struct {
		line string
		err  error
	}
	// A terminal is read to the end of its line, and an interrupt does not wait for it.
	answer := make(chan outcome, 1)
	go func() {
		line, err := in.ReadString('\n')
		answer <- outcome{line, err}
	}()
	select {
	case o := <-answer:
		if o.err != nil && o.line == "" {
			return "", fmt.Errorf("cannot read the answer: %w; nothing was written", o.err)
		}
		return cmp.Or(strings.TrimSpace(o.line), proposed), nil
	case <-s.Interrupted:
		return "", errors.New("interrupted; nothing was written")
	}
}

// maxInput bounds what is read from stdin, and of a file that a person names.
const maxInput = 16 << 20

// ReadFile reads a file that a person has named, be it a pipe, up to 16 MiB. What has more, or
// has no end, is an error.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := readUpTo(f)
	if _, ok := errors.AsType[*fs.PathError](err); err != nil && !ok {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return text, errors.Join(err, f.Close())
}

func readUpTo(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(text) > maxInput {
		return nil, fmt.Errorf("it has more than %d bytes", maxInput)
	}
	return text, err
}

// ReadStdin reads stdin to its end, or fails when the context ends first.
func (s *Process) ReadStdin(ctx context.Context) ([]byte, error) {
	type outcome struct {
		text []byte
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		text, err := readUpTo(s.Stdin)
		done <- outcome{text, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("cannot read stdin: %w", o.err)
		}
		return o.text, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Refused prints the daemon's error as it is. An interrupt is how one stops
// watching, and no failure.
func (s *Process) Refused(err error) error {
	var e *api.Error
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case !errors.As(err, &e):
		return err
	}
	encoded, encodeErr := json.Marshal(e, json.Deterministic(true))
	if encodeErr != nil {
		return err
	}
	fmt.Fprintf(s.Stderr, "%s\n", term.PrintableJSON(encoded))
	return ErrSaid
}

// Ask reads a yes or a no from the terminal, and refuses where nobody answers. The command
// has a flag --yes.
func (s *Process) Ask(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(s.Stdout, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(io.LimitReader(s.Stdin, 256)).ReadString('\n')
		answers <- answer
	}()
	select {
	case answer := <-answers:
		if answer == "" {
			fmt.Fprintln(s.Stdout)
			return false, Usagef("nobody has answered: where no terminal can ask, give --yes")
		}
		answer = strings.ToLower(strings.TrimSpace(answer))
		return answer == "y" || answer == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Interactive reports whether a person sits at both ends.
func (s *Process) Interactive() bool {
	return term.IsTerminal(s.Stdin) && term.IsTerminal(s.Stdout) && s.Getenv("TERM") != "dumb"
}

// Asks reports whether somebody is there who can answer.
func (s *Process) Asks() bool { return term.IsTerminal(s.Stdin) && term.IsTerminal(s.Stderr) }

// Progress tells a person how far long work is. Where all is not known it is 0.
func (s *Process) Progress(what string, all int) (step func(done int), end func()) {
	if !term.IsTerminal(s.Stderr) || s.Getenv("TERM") == "dumb" {
		return func(int) {}, func() {}
	}
	next, shown := time.Now().Add(time.Second), false
	step = func(done int) {
		now := time.Now()
		if now.Before(next) {
			return
		}
		next, shown = now.Add(time.Second/5), true
		of := ""
		if all > 0 {
			of = " of " + term.Thousands(all)
		}
		fmt.Fprintf(s.Stderr, "\r\x1b[K%s%s %s", term.Thousands(done), of, what)
	}
	return step, func() {
		if shown {
			fmt.Fprint(s.Stderr, "\r\x1b[K")
		}
	}
}

// XDG is a directory of the XDG Base Directory specification, empty where there is
// none.
func (s *Process) XDG(variable, below string) string {
	if dir := s.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	if home := s.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, below)
	}
	return ""
}

// Exists reports whether there is a file of a name.
func Exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// ErrSaid fails a command that has said why already.
var ErrSaid = errors.New("said already")

// UsageError is a command line that makes no sense.
type UsageError struct{ message string }

func (e *UsageError) Error() string { return e.message }

// Usagef makes an error of a command line that makes no sense.
func Usagef(format string, args ...any) error {
	return &UsageError{message: fmt.Sprintf(format, args...)}
}

// ReplaceFile writes a file as a whole or not at all, and reports whether it is
// another one than before.
func ReplaceFile(path string, text []byte, mode fs.FileMode) (changed bool, err error) {
	if old, err := ReadFile(path); err == nil && bytes.Equal(old, text) {
		return false, nil
	}
	fail := func(err error) (bool, error) { return false, fmt.Errorf("cannot write %s: %w", path, err) }
	f, err := os.CreateTemp(filepath.Dir(path), ".ocipd-*")
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fail(errors.Join(err, os.Remove(f.Name())))
	}
	return true, nil
}

// Absolute is a path as it is from anywhere, "" where none is known.
func Absolute(path string) string {
	if path == "" {
		return ""
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}
