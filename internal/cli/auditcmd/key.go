package auditcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/spf13/cobra"
)

func newKey(s *cli.Process) *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "key", Short: "show or rotate the key that signs the log's checkpoints"})
	c.AddCommand(newKeyShow(s), newKeyRotate(s))
	return c
}

// shownKey is one public key in JSON.
type shownKey struct {
	Log      string `json:"log"`
	Verifier string `json:"verifier"`
	File     string `json:"file"`
	InForce  bool   `json:"inForce"`
	// Since is when the key came into force, and Until when the next one did. Since is
	// unknown for the first of several keys.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

func newKeyShow(s *cli.Process) *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use: "show",
		Example: "  ocipd audit key show\n" +
			"  ocipd audit key show --all",
		Short: "print the public key that verifies the log",
		Long: `Print the public key that verifies the log's checkpoints as one line,
NAME+HASH+KEY; NAME is the log's. Store it where nobody who could change the log
can change it. The key is read from the directory of keys; no daemon is needed.
--all adds earlier keys, oldest first: each signed the next one, in the log.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			keys, err := publicKeys(s)
			if err != nil {
				return err
			}
			if !all {
				keys = keys[len(keys)-1:]
			}
			return showKeys(s, keys, asJSON)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "show earlier keys too")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON line a key")
	return c
}

func publicKeys(s *cli.Process) ([]shownKey, error) {
	cfg, err := s.Places("store.url", "audit.keys")
	if err != nil {
		return nil, err
	}
	dir := config.KeysPath(cfg, config.DatabasePath(cfg, s.Getenv))
	keys, err := keyring.PublicKeys(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot find a key in %s: the daemon makes it at its first start", dir)
	}
	if err != nil {
		return nil, err
	}
	shown := make([]shownKey, len(keys))
	for i, k := range keys {
		name, _, _ := strings.Cut(k.Verifier, "+")
		shown[i] = shownKey{Log: name, Verifier: k.Verifier, File: k.File, InForce: i == len(keys)-1}
		if shown[i].InForce {
			shown[i].Since = k.At.UTC()
		} else {
			shown[i].Until = k.At.UTC()
		}
		if i > 0 && !shown[i].InForce {
			shown[i].Since = keys[i-1].At.UTC()
		}
	}
	return shown, nil
}

func showKeys(s *cli.Process, keys []shownKey, asJSON bool) error {
	for i, k := range keys {
		if asJSON {
			if err := s.PrintJSON(k); err != nil {
				return err
			}
			continue
		}
		// Programs and files get the key alone; the rest is for people.
		p := &term.Page{Screen: s.Screen()}
		if i > 0 {
			p.Line()
		}
		p.Fact("log", k.Log)
		if !k.Since.IsZero() {
			p.Fact("since", k.Since.Local().Format(time.DateTime))
		}
		if !k.Until.IsZero() {
			p.Fact("until", k.Until.Local().Format(time.DateTime))
		}
		p.Fact("file", k.File)
		for _, line := range p.Lines {
			fmt.Fprintln(s.Stderr, line)
		}
		fmt.Fprintln(s.Stdout, term.Printable(k.Verifier))
	}
	return nil
}

func newKeyRotate(s *cli.Process) *cobra.Command {
	var key string
	var asJSON bool
	c := &cobra.Command{
		Use:     "rotate",
		Example: "  ocipd audit key rotate",
		Short:   "have the running daemon sign with a new key",
		Long: `Have the running daemon sign with a new key. The former key signs the new one in a
record of the log, so that a holder of the former public key can verify what
follows. The former private key is destroyed; its public key stays in the
directory of keys.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var result api.AuditRotateKeyResult
			if err := s.OperateSigned(cmd.Context(), key, "audit.rotate_key", nil, &result); err != nil {
				return fmt.Errorf("cannot rotate the key: %w", err)
			}
			return s.Report(asJSON, result, "ok: signed over to another key in record %d; the public key is now\n%s\n", result.AuditSeq, term.Printable(result.Verifier))
		},
	}
	cli.KeyFlag(c, &key)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
