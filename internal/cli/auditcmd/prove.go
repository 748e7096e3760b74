package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/openclawos/ocipd/internal/evidence/verify"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
)

type proveFlags struct {
	check, database string
	keys            []string
}

func newProve(s *cli.Process) *cobra.Command {
	var f proveFlags
	c := &cobra.Command{
		Use:   "prove OLD [NEW]",
		Short: "make or check the proof that a log goes on from an older checkpoint",
		Long: "Print the proof that the log of the checkpoint NEW begins with all records of the checkpoint\n" +
			"OLD, unchanged (a consistency proof, RFC 6962, in the form of C2SP tlog-witness), and NEW. It\n" +
			"shows no record. OLD and NEW are numbers of records, or files that hold a checkpoint, a\n" +
			"receipt or lines of checkpoints, of which the last counts; without NEW it is the newest one.\n" +
			"With --check, check the proof in FILE from the checkpoint in the file OLD on. The checkpoints\n" +
			"in which one key of the log handed over to the next go along, so --key may be any key that was\n" +
			"in force at OLD or since.",
		Example: "  ocipd audit prove then.note >proof\n" +
			"  ocipd audit prove --check proof --key log.pub then.note",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.check != "" {
				if len(args) != 1 || len(f.keys) == 0 {
					return cli.Usagef("cannot check a proof without the older checkpoint's file and the log's public key (--key)")
				}
				return checkProof(s, f, args[0])
			}
			return prove(cmd.Context(), s, f.database, args)
		},
	}
	c.Flags().StringVar(&f.check, "check", "", "check the proof in this `FILE`")
	c.Flags().StringArrayVar(&f.keys, "key", nil, "public `KEY` of the log, or a file that holds it")
	c.Flags().StringVar(&f.database, "database", "", "`FILE` of another database")
	return c
}

// prove prints a proof.
func prove(ctx context.Context, s *cli.Process, database string, args []string) error {
	r, _, err := openRecord(ctx, s, database)
	if err != nil {
		return err
	}
	defer r.Close()
	newest, err := r.Checkpoint(ctx)
	if err != nil {
		return err
	}
	c := audit.Consistency{Note: newest.Note}
	if len(args) == 2 {
		if c.Note, err = checkpointOf(ctx, r, args[1]); err != nil {
			return err
		}
	}
	next, err := audit.OpenCheckpoint(c.Note)
	if !errors.Is(err, audit.ErrUnsigned) {
		return fmt.Errorf("cannot prove anything: there is no checkpoint yet")
	}
	if c.Old, err = strconv.ParseUint(args[0], 10, 62); err != nil {
		signed, err := checkpointOf(ctx, r, args[0])
		if err != nil {
			return err
		}
		old, _ := audit.OpenCheckpoint(signed)
		c.Old = old.Size
		// A checkpoint of another log would prove nothing.
		root, err := r.RootAt(ctx, old.Size)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err != nil || root != old.Root || old.Origin != next.Origin {
			return fmt.Errorf("cannot prove it: %w", &audit.Fault{Problem: fmt.Sprintf("the log does not go on from the checkpoint of %d records in %s: one of the two was rewritten, or is another one's", old.Size, args[0])})
		}
	}
	if c.Path, err = r.ProveExtension(ctx, c.Old, next.Size); errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("cannot prove that %d records begin with %d: there are not as many", next.Size, c.Old)
	}
	if err != nil {
		return err
	}
	if c.HandOvers, err = handOvers(ctx, r, c.Old, next.Size); err != nil {
		return err
	}
	text, err := c.MarshalText()
	if err != nil {
		return err
	}
	_, err = s.Stdout.Write(text)
	return err
}

// handOvers returns the checkpoints in which a key of the log hands over to the next, the
// smallest first. They cover more than from and at most to records. With them, a verifier
// can follow an earlier key to the one that signed a proof.
func handOvers(ctx context.Context, r logreader.Log, from, to uint64) (notes []string, err error) {
	filter := audit.Filter{Like: audit.Record{ActionType: audit.ActionCheckpoint, Event: audit.EventRotated}}
	for before := uint64(0); ; {
		lines, next, err := r.Query(ctx, filter, from, before, api.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			signed, ok := audit.HandOverOf(line)
			if c, err := audit.OpenCheckpoint(signed); ok && errors.Is(err, audit.ErrUnsigned) && c.Size >= from && c.Size <= to {
				notes = append(notes, signed)
			}
		}
		if before = next; next == 0 {
			slices.Reverse(notes)
			return notes, nil
		}
	}
}

// checkpointOf returns the note of a checkpoint: from the log by its number of records, or
// the last one in a file.
func checkpointOf(ctx context.Context, r logreader.Log, text string) (string, error) {
	size, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		notes, err := verify.Held(text)
		if err != nil {
			return "", err
		}
		return notes[len(notes)-1], nil
	}
	line, err := r.Line(ctx, size+1)
	if err == nil {
		if e, err := audit.Parse(line); err == nil && e.ActionType == audit.ActionCheckpoint && e.Event != audit.EventRetired {
			signed, _ := e.Details["note"].(string)
			return signed, nil
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	return "", fmt.Errorf("there is no checkpoint of %d records in the log; ocipd audit query --type checkpoint lists them: each is of the records before it", size)
}

// checkProof checks a proof without the log.
func checkProof(s *cli.Process, f proveFlags, old string) error {
	var keys []note.Verifier
	for _, text := range f.keys {
		key, err := publicKey(text)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	notes, err := verify.Held(old)
	if err != nil {
		return err
	}
	text, err := durable.ReadFile(f.check)
	if err != nil {
		return fmt.Errorf("cannot read the proof: %w", err)
	}
	var c audit.Consistency
	var next audit.Checkpoint
	before, err := audit.OpenCheckpoint(notes[len(notes)-1])
	if errors.Is(err, audit.ErrUnsigned) {
		err = c.UnmarshalText(text)
	}
	if err == nil {
		next, err = c.Check(&before, keys...)
	}
	if err != nil {
		fmt.Fprintf(s.Stdout, "%s: %s\n", term.Printable(f.check), s.Screen().Colour.Paint(term.Red, "proves nothing"))
		return fmt.Errorf("cannot trust %s: %w", f.check, &audit.Fault{Problem: err.Error()})
	}
	fmt.Fprintf(s.Stdout, "%s: %s, the first %d records of %s are the beginning of %d\n", term.Printable(f.check), s.Screen().Colour.Paint(term.Green, "good"), before.Size, term.Printable(next.Origin), next.Size)
	return nil
}
