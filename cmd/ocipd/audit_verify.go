package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newAuditVerify(s *shell) *cobra.Command {
	var asJSON, inDatabase bool
	c := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "check that no record was changed, removed or added",
		Long: "Check the chain of an audit file from its first record to its last: by default the mirror of\n" +
			"this daemon's record, or any copy of one; with --database the record itself. It needs no\n" +
			"daemon and trusts nothing but the file.\n" +
			"Compare head and hash with ones noted elsewhere to see that nothing is missing at the end.\n" +
			"A fault ends it with exit code 4.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if inDatabase {
				if len(args) == 1 {
					return usagef("cannot check %s with --database: name one of them", args[0])
				}
				return s.verifyDatabase(cmd.Context(), asJSON)
			}
			if len(args) == 1 {
				return s.verify(cmd.Context(), args[0], "", asJSON)
			}
			file, about, err := s.ownMirror()
			if err != nil {
				return err
			}
			return s.verify(cmd.Context(), file, about, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&inDatabase, "database", false, "check the records in the database")
	return c
}

// verifyDatabase checks the record itself.
func (s *shell) verifyDatabase(ctx context.Context, asJSON bool) error {
	cfg, err := s.load(nil)
	if err != nil {
		return err
	}
	database := config.DatabasePath(cfg, s.getenv)
	if database == "" {
		return errors.New("cannot tell where the database is: HOME is not set, and store.url names no file")
	}
	reader, err := store.OpenReader(ctx, database)
	if err != nil {
		return err
	}
	defer reader.Close()
	var v audit.Verifier
	err = reader.EachLine(ctx, 0, func(_ uint64, line []byte) error { return v.Add(line) })
	return s.concludeVerify(database, "", &v, err, asJSON)
}

// ownMirror is the file to check where none is named, and what to say about it.
func (s *shell) ownMirror() (file, about string, err error) {
	cfg, err := s.load(nil)
	if err != nil {
		return "", "", err
	}
	database := config.DatabasePath(cfg, s.getenv)
	if file = config.MirrorPath(cfg, database); file == "" {
		return "", "", errors.New("cannot tell where the audit mirror is: HOME is not set; name a file")
	}
	if database == "" {
		return file, "", nil
	}
	if _, err := os.Stat(database); err == nil {
		about = "the mirror of " + database
	}
	return file, about, nil
}

// verifyReport is what `ocipd audit verify --json` prints.
type verifyReport struct {
	File    string       `json:"file"`
	OK      bool         `json:"ok"`
	Records uint64       `json:"records"`
	Head    *verifyHead  `json:"head,omitempty"`
	Fault   *verifyFault `json:"fault,omitempty"`
}

type verifyHead struct {
	Seq  uint64     `json:"seq"`
	Time time.Time  `json:"time"`
	Hash audit.Hash `json:"hash"`
}

type verifyFault struct {
	Seq     uint64 `json:"seq"`
	Problem string `json:"problem"`
}

func (s *shell) verify(ctx context.Context, file, about string, asJSON bool) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("cannot verify the audit log: %w", err)
	}
	defer f.Close()
	var v audit.Verifier
	source := &growing{ctx: ctx, file: f, progress: s.progress(f, &v)}
	_, err = v.ReadFrom(source)
	source.progress(true)
	return s.concludeVerify(file, about, &v, err, asJSON)
}

// concludeVerify reports how a check ended.
func (s *shell) concludeVerify(file, about string, v *audit.Verifier, err error, asJSON bool) error {
	var fault *audit.Fault
	if err != nil && !errors.As(err, &fault) {
		return err
	}
	if err := s.reportVerify(file, about, v.Head(), fault, asJSON); err != nil {
		return err
	}
	if fault != nil {
		return fmt.Errorf("cannot trust %s: %w", file, fault)
	}
	return nil
}

func (s *shell) reportVerify(file, about string, head audit.Head, fault *audit.Fault, asJSON bool) error {
	if asJSON {
		r := verifyReport{File: file, OK: fault == nil, Records: head.Seq}
		if head.Seq > 0 {
			r.Head = &verifyHead{Seq: head.Seq, Time: head.Time, Hash: head.Hash}
		}
		if fault != nil {
			r.Fault = &verifyFault{Seq: fault.Seq, Problem: fault.Problem}
		}
		return s.printJSON(r)
	}
	p := s.screen().colour
	verdict := p.paint(green, "intact")
	if fault != nil {
		verdict = p.paint(red, "damaged") + fmt.Sprintf(" at record %d", fault.Seq)
	}
	checked := "good up to there"
	if fault == nil {
		checked = "checked"
	}
	if about != "" {
		about = " (" + about + ")"
	}
	fmt.Fprintf(s.stdout, "%s%s: %s, %s %s\n", printable(file), printable(about), verdict, count(int(head.Seq), "record"), checked)
	if head.Seq > 0 {
		fmt.Fprintf(s.stdout, "head %d of %s, hash %s\n", head.Seq, head.Time.Format(time.RFC3339Nano), head.Hash)
	}
	return nil
}

// progress tells a person how far a long check is. It is called with true at
// the end.
func (s *shell) progress(f *os.File, v *audit.Verifier) func(end bool) {
	errFile, ok := s.stderr.(*os.File)
	if !ok || !term.IsTerminal(int(errFile.Fd())) || s.getenv("TERM") == "dumb" {
		return func(bool) {}
	}
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	next, shown := time.Now().Add(time.Second), false
	return func(end bool) {
		switch now := time.Now(); {
		case end && shown:
			fmt.Fprint(errFile, "\r\x1b[K")
		case end || now.Before(next):
		default:
			next, shown = now.Add(time.Second/5), true
			done := 0.0
			if at, err := f.Seek(0, io.SeekCurrent); err == nil && size > 0 {
				done = min(100, 100*float64(at)/float64(size))
			}
			fmt.Fprintf(errFile, "\r\x1b[K%d records checked, %.0f%%", v.Head().Seq, done)
		}
	}
}

const (
	// tornTries and tornWait bound how long a last line that has no end yet is
	// waited for: a running daemon may just be writing it.
	tornTries = 20
	tornWait  = 10 * time.Millisecond
)

// growing reads a file that somebody may be appending lines to.
type growing struct {
	ctx      context.Context
	file     *os.File
	progress func(end bool)
	last     byte
}

// Read reads on. The end of the file is its end only behind a whole line.
func (g *growing) Read(p []byte) (int, error) {
	for try := 0; ; try++ {
		if err := g.ctx.Err(); err != nil {
			return 0, err
		}
		g.progress(false)
		n, err := g.file.Read(p)
		if n > 0 {
			g.last = p[n-1]
			return n, nil
		}
		if !errors.Is(err, io.EOF) || g.last == '\n' || g.last == 0 || try == tornTries {
			return 0, err
		}
		again := time.NewTimer(tornWait)
		select {
		case <-again.C:
		case <-g.ctx.Done():
		}
		again.Stop()
	}
}
