package auditcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/sealedtext"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
)

func newShow(s *cli.Process) *cobra.Command {
	var asJSON bool
	var identity, database string
	c := &cobra.Command{
		Use: "show SEQ",
		Example: "  ocipd audit show 5\n" +
			"  ocipd audit show 5 --json",
		Short: "show one record with the proof that it is in the log",
		Long: `Show a record with all members, its place in the chain, and whether a signed
checkpoint covers it. It is read from the database, or from the running daemon.
Content that was kept encrypted (audit.content: full) is shown with --identity.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := sequence(args[0])
			if err != nil {
				return err
			}
			return showRecord(cmd.Context(), s, database, seq, identity, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the record's line as it stands in the log")
	c.Flags().StringVar(&identity, "identity", "", "`FILE` of the age identity that reads the record's content")
	c.Flags().StringVar(&database, "database", "", "`FILE` of another database")
	return c
}

func newReceipt(s *cli.Process) *cobra.Command {
	var f receiptFlags
	c := &cobra.Command{
		Use: "receipt [SEQ]",
		Example: "  ocipd audit receipt 5 > receipt\n" +
			"  ocipd audit receipt --check receipt --line record --key checkpoint.pub",
		Short: "make or check the proof that a record is in a log",
		Long: `Print the receipt of a record (a transparency log proof, C2SP tlog-proof). With
the log's public key it proves that the record is in the log, and it shows no
other record; the checkpoints in which one key of the log handed over to the next
go along, so any key of the log serves. --check verifies the receipt in FILE against the record in --line.
--held prints the checkpoints of other daemons' logs that came with their
messages, for whoever verifies those logs: ocipd audit verify --with-receipts.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.check != "" && len(args) == 0 && !f.held:
				return checkReceipt(s, f)
			case f.held && len(args) == 0 && f.check == "":
				return heldOfOthers(cmd.Context(), s, f.database, f.origin)
			case len(args) == 1 && f.check == "" && !f.held:
				seq, err := sequence(args[0])
				if err != nil {
					return err
				}
				return printReceipt(cmd.Context(), s, f.database, seq)
			}
			return cli.Usagef("name one of a record's number, --check FILE and --held")
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.check, "check", "", "check the receipt in this `FILE`")
	flags.StringVar(&f.line, "line", "", "`FILE` that holds the record's line")
	flags.StringVar(&f.key, "key", "", "public `KEY` of the log, or a file that holds it")
	flags.BoolVar(&f.held, "held", false, "print what is on record of other daemons' logs")
	flags.StringVar(&f.origin, "log", "", "with --held: only of the log of this `NAME`")
	flags.StringVar(&f.database, "database", "", "`FILE` of another database")
	return c
}

type receiptFlags struct {
	check, line, key, origin, database string
	held                               bool
}

// sequence reads a record's number.
func sequence(text string) (uint64, error) {
	seq, err := strconv.ParseUint(text, 10, 63)
	if err != nil || seq == 0 {
		return 0, cli.Usagef("%q is not the number of a record", text)
	}
	return seq, nil
}

// openRecord opens a database, by default this daemon's, and returns the place of its public keys.
func openRecord(ctx context.Context, s *cli.Process, database string) (r logreader.Log, keys string, err error) {
	own := database == ""
	if own {
		cfg, err := s.Places("store.url", "audit.keys")
		if err != nil {
			return nil, "", err
		}
		if database = config.DatabasePath(cfg, s.Getenv); database == "" {
			return nil, "", errors.New("cannot tell where the database is: HOME is not set, and store.url names no file")
		}
		keys = config.KeysPath(cfg, database)
	}
	r, err = logreader.Open(ctx, database, s.OperatorSocket)
	if own && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no daemon has left a record to read at %s: %w", database, client.ErrNotRunning)
	}
	return r, keys, err
}

// lineOf returns a record's line, with a helpful error.
func lineOf(ctx context.Context, r logreader.Log, seq uint64) ([]byte, error) {
	line, err := r.Line(ctx, seq)
	if !errors.Is(err, store.ErrNotFound) {
		return line, err
	}
	if tomb, err := r.Tombstone(ctx); err == nil && seq <= tomb.Head.Seq {
		return nil, fmt.Errorf("record %d was retired, with all up to %d; a copy of the log may still hold it", seq, tomb.Head.Seq)
	}
	last, err := r.LastSeq(ctx)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("there is no record %d: the last one is %d", seq, last)
}

func showRecord(ctx context.Context, s *cli.Process, database string, seq uint64, identity string, asJSON bool) error {
	r, keys, err := openRecord(ctx, s, database)
	if err != nil {
		return err
	}
	defer r.Close()
	line, err := lineOf(ctx, r, seq)
	if err != nil {
		return err
	}
	if asJSON {
		_, err := s.Stdout.Write(s.Screen().RecordLine(line))
		return err
	}
	e, err := audit.Parse(line)
	if err != nil {
		return fmt.Errorf("cannot show record %d: %w", seq, err)
	}
	p := &recordText{term.Page{Screen: s.Screen()}}
	p.Hang("", "    ", term.Bold, fmt.Sprintf("record %d: %s", seq, logview.What(&e)))
	if e.PolicyResult != "" {
		p.Hang("", "    ", logview.Result(&e).Colour, strings.TrimSuffix(logview.Result(&e).Text+": "+logview.Reason(&e), ": "))
	}
	if err := p.record(line); err != nil {
		return fmt.Errorf("cannot show record %d: %w", seq, err)
	}
	if e.Content != "" {
		if identity != "" {
			if err := noteExport(ctx, s, database, audit.Filter{Like: audit.Record{ID: e.ID}}, "the text"); err != nil {
				return err
			}
		}
		if err := p.sealed(e.Content, identity); err != nil {
			return err
		}
	}
	p.Heading("Its place in the log")
	p.Fact("time", e.Time.Local().Format("2006-01-02 15:04:05.000000 -07:00"))
	p.Fact("before", e.Prev.String())
	p.Fact("hash", e.Hash.String())
	p.proof(ctx, r, line, seq, keys)
	_, err = io.WriteString(s.Stdout, strings.Join(p.Lines, "\n")+"\n")
	return err
}

// recordText formats a record in lines.
type recordText struct{ term.Page }

func (p *recordText) record(line []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(line))
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	p.Line()
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		member := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		switch member {
		case "seq", "time", "prev", "hash", "content":
			continue
		}
		text := string(value)
		if value.Kind() == '"' {
			if err := json.Unmarshal(value, &text); err != nil {
				return err
			}
		}
		const width = 18
		title := term.Cut(term.Printable(member), width-len(term.Gap)-2)
		p.Hang("  "+p.Paint(term.Dim, title)+strings.Repeat(" ", width-2-term.Width(title)), strings.Repeat(" ", width), term.NoColour, text)
	}
	return nil
}

// sealed shows the record's sealed content, or says how to read it.
func (p *recordText) sealed(content, identity string) error {
	p.Heading("Content")
	if identity == "" {
		p.Say("  ", term.Dim, "encrypted: ocipd audit show --identity FILE reads it with the age identity of a recipient")
		return nil
	}
	text, err := sealedtext.Unseal(identity, content)
	if err != nil {
		return err
	}
	p.Quote(text)
	return nil
}

// proof says whether a checkpoint covers a record, and whether the proof holds.
func (p *recordText) proof(ctx context.Context, r logreader.Log, line []byte, seq uint64, keys string) {
	receipt, err := r.ProveRecord(ctx, seq)
	switch {
	case errors.Is(err, logstore.ErrUnsigned):
		p.Tinted("proof", term.Yellow, "no checkpoint covers it yet; one follows within a minute of a running daemon")
		return
	case err != nil:
		p.Tinted("proof", term.Red, err.Error())
		return
	}
	known, keyErr := keyring.PublicKeys(keys)
	var verifiers []note.Verifier
	for _, k := range known {
		if v, err := note.NewVerifier(k.Verifier); err == nil {
			verifiers = append(verifiers, v)
		}
	}
	c, err := receipt.Check(line, verifiers...)
	switch {
	case err == nil:
		p.Tinted("proof", term.Green, fmt.Sprintf("in the checkpoint of %d records, signed by %s", c.Size, c.Origin))
	case keyErr != nil || len(verifiers) == 0:
		p.Tinted("proof", term.Yellow, "there is no public key here to check it with")
	default:
		p.Tinted("proof", term.Red, err.Error())
	}
}

func printReceipt(ctx context.Context, s *cli.Process, database string, seq uint64) error {
	r, _, err := openRecord(ctx, s, database)
	if err != nil {
		return err
	}
	defer r.Close()
	line, err := lineOf(ctx, r, seq)
	if err != nil {
		return err
	}
	receipt, err := r.ProveRecord(ctx, seq)
	if errors.Is(err, logstore.ErrUnsigned) {
		return fmt.Errorf("cannot make a receipt: no checkpoint covers record %d yet; a running daemon makes one within a minute", seq)
	}
	if err != nil {
		return err
	}
	if err := receipt.Proves(line); err != nil {
		return fmt.Errorf("cannot make a receipt: %w", &audit.Fault{Seq: seq, Problem: "the tiles of the Merkle tree do not lead to the newest checkpoint from it: a daemon that runs finds that too, and makes them again at its next start"})
	}
	signed, err := audit.OpenCheckpoint(receipt.Note)
	if !errors.Is(err, audit.ErrUnsigned) {
		return err
	}
	if receipt.HandOvers, err = handOvers(ctx, r, 0, signed.Size); err != nil {
		return err
	}
	text, err := receipt.MarshalText()
	if err != nil {
		return err
	}
	_, err = s.Stdout.Write(text)
	return err
}

// checkReceipt checks a receipt without the log.
func checkReceipt(s *cli.Process, f receiptFlags) error {
	if f.line == "" || f.key == "" {
		return cli.Usagef("cannot check a receipt without the record's line (--line) and the log's public key (--key)")
	}
	key, err := publicKey(f.key)
	if err != nil {
		return err
	}
	text, err := cli.ReadFile(f.check)
	if err != nil {
		return fmt.Errorf("cannot read the receipt: %w", err)
	}
	line, err := cli.ReadFile(f.line)
	if err != nil {
		return fmt.Errorf("cannot read the record: %w", err)
	}
	fault := func(err error) error {
		fmt.Fprintf(s.Stdout, "%s: %s\n", term.Printable(f.check), s.Screen().Colour.Paint(term.Red, "proves nothing"))
		return fmt.Errorf("cannot trust %s: %w", f.check, &audit.Fault{Problem: err.Error()})
	}
	var r audit.Receipt
	if err := r.UnmarshalText(text); err != nil {
		return fault(err)
	}
	c, err := r.Check(bytes.TrimSuffix(line, []byte("\n")), key)
	if err != nil {
		return fault(err)
	}
	fmt.Fprintf(s.Stdout, "%s: %s, record %d is among the first %d of %s\n", term.Printable(f.check), s.Screen().Colour.Paint(term.Green, "good"), r.Seq, c.Size, term.Printable(c.Origin))
	return nil
}

// heldOfOthers prints the checkpoints of other daemons' logs in the usual format.
func heldOfOthers(ctx context.Context, s *cli.Process, database, origin string) error {
	r, _, err := openRecord(ctx, s, database)
	if err != nil {
		return err
	}
	defer r.Close()
	out := json.JoinOptions(json.Deterministic(true))
	known := make(map[string]string)
	return r.EachLine(ctx, 0, func(seq uint64, line []byte) error {
		if !bytes.Contains(line, []byte(`"peerLog":"`)) {
			return nil
		}
		e, err := audit.Parse(line)
		if err != nil {
			return fmt.Errorf("cannot read record %d: %w", seq, err)
		}
		signed, _ := e.Details["peerLog"].(string)
		c, err := audit.OpenCheckpoint(signed)
		if !errors.Is(err, audit.ErrUnsigned) || origin != "" && c.Origin != origin || known[c.Origin] == signed {
			return nil
		}
		known[c.Origin] = signed
		held, err := json.Marshal(checkpoints.Entry{Time: e.Time, Size: c.Size, Note: signed}, out)
		if err != nil {
			return fmt.Errorf("cannot print the checkpoint of record %d: %w", seq, err)
		}
		_, err = s.Stdout.Write(append(held, '\n'))
		return err
	})
}
