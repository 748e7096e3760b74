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
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
)

// Process is a command's access to its process, with the common flags.
type Process struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Env is the environment in the form of os.Environ.
	Env []string
	// Version is this program's version.
	Version string

	// Interrupted is closed when the user interrupts the command; nil never is.
	Interrupted <-chan struct{}

	ConfigFile string
	Socket     string

	// warned is set after the warning about a broken configuration.
	warned bool
}

// Getenv is os.Getenv over Env.
func (s *Process) Getenv(name string) string {
	value := ""
	for _, kv := range s.Env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			value = v
		}
	}
	return value
}

// Load reads the configuration, with values from flags by dotted key.
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

// SocketKey is the configuration key of the daemon's socket.
const SocketKey = "ipc.socket"

// locate reads the configuration to locate files, see [config.Locate].
func (s *Process) locate() (*config.Config, error) { return s.LocateBy(s.ConfigFile) }

// LocateBy reads a file to locate files, see [config.Locate].
func (s *Process) LocateBy(file string) (*config.Config, error) {
	flags := map[string]any{}
	if s.Socket != "" {
		flags[SocketKey] = s.Socket
	}
	return config.Locate(config.Options{File: file, Env: s.Env, Flags: flags})
}

// Places returns the configuration for a command that only needs the places of the daemon
// or its files, by key. If the configuration is broken, the command warns and continues. If
// a key's value is uncertain, it fails, because it could use another daemon or its files.
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
		// The error names the file or the variable.
		fmt.Fprintf(s.Stderr, "warning: cannot use the configuration as it is, and the daemon may run with an earlier one: %s\n", term.Printable(what))
	}
	return cfg, nil
}

// KernelSocket is the socket for apps. With --socket, a broken configuration does not matter.
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

// OperatorSocket is the socket for operators.
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

// AnswerTime bounds a command's wait for one answer.
const AnswerTime = 30 * time.Second

// Screen describes stdout's display.
func (s *Process) Screen() term.Screen { return term.ScreenOf(s.Stdout, s.Getenv) }

// height is the number of visible lines of stdout.
func (s *Process) height() int { return term.HeightOf(s.Stdout, s.Getenv) }

// RowsShown is the number of printed lines of a list. A program gets all of them.
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

// Report prints a result, as JSON or for a person.
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

// AskPage asks for one page, within [AnswerTime].
func (s *Process) AskPage(ctx context.Context, call func(context.Context, string, any, any) error, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	return call(ctx, method, params, result)
}

// NoteAltered tells on standard error that lists left out rows that something else has changed.
func (s *Process) NoteAltered(rows []string) {
	slices.Sort(rows)
	if n := len(slices.Compact(rows)); n > 0 {
		fmt.Fprintf(s.Stderr, "left out: %s changed by something else than the daemon; see ocipd audit verify\n", term.Count(n, "row"))
	}
}

// AskOperator is Operate for a method without parameters; it returns the raw answer.
func (s *Process) AskOperator(ctx context.Context, method string) (raw jsontext.Value, err error) {
	err = s.Operate(ctx, method, nil, &raw)
	return raw, err
}

// TellOperator calls a method without parameters on the operator socket. With asJSON, it
// prints the raw answer or error; otherwise it decodes the answer into result.
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

// Say prints a line of printable text, folded between words at a terminal.
func (s *Process) Say(format string, args ...any) {
	_ = term.Line(s.Stdout, fmt.Sprintf(format, args...)) // as with every other word for people
}

// Consents asks a yes-or-no question. Only a yes is a yes.
func (s *Process) Consents(in *bufio.Reader, text string) (bool, error) {
	answer, err := s.Question(in, text, "")
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), err
}

// questionWidth is the width of a question, which fits every terminal. answerWidth is the
// room for the answer; if a question leaves less, the answer gets its own line.
const questionWidth, answerWidth = 76, 24

// Question asks on stderr, and returns the proposal if the answer is empty.
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
	// Read a terminal to the end of the line, without delaying an interrupt.
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

// maxInput bounds stdin and files that a person names.
const maxInput = 16 << 20

// ReadFile reads a file or pipe that a person has named, up to 16 MiB. A longer or endless
// one is an error.
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

// ReadStdin reads stdin to its end, and fails if the context ends first.
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

// Refused prints the daemon's error unchanged. An interrupt is the normal end of watching,
// not a failure.
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

// Ask asks a yes-or-no question on the terminal, and refuses if nobody can answer; the
// command has a flag --yes.
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

// Interactive reports whether stdin and stdout are a person's terminal.
func (s *Process) Interactive() bool {
	return term.IsTerminal(s.Stdin) && term.IsTerminal(s.Stdout) && s.Getenv("TERM") != "dumb"
}

// Asks reports whether somebody can answer a question.
func (s *Process) Asks() bool { return term.IsTerminal(s.Stdin) && term.IsTerminal(s.Stderr) }

// Progress shows a person the progress of long work. all is 0 if it is unknown.
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

// XDG is a directory of the XDG Base Directory specification, or "".
func (s *Process) XDG(variable, below string) string {
	if dir := s.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	if home := s.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, below)
	}
	return ""
}

// Exists reports whether a file exists.
func Exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// ErrSaid is the error of a command that has already printed the reason.
var ErrSaid = errors.New("said already")

// UsageError is an error in the command line.
type UsageError struct{ message string }

func (e *UsageError) Error() string { return e.message }

// Usagef returns an error in the command line.
func Usagef(format string, args ...any) error {
	return &UsageError{message: fmt.Sprintf(format, args...)}
}

// ReplaceFile writes a file completely or not at all, and reports whether the content changed.
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

// Absolute makes a path absolute; it returns "" if that fails.
func Absolute(path string) string {
	if path == "" {
		return ""
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}
