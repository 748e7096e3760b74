package consolecmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/console"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/configfile"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
	"github.com/spf13/cobra"
)

func newEnrol(s *command) *cobra.Command {
	var name string
	var yes bool
	c := &cobra.Command{
		Use:     "enrol",
		Short:   "add a passkey to the people who may decide",
		Example: "  ocipd console enrol\n  ocipd console enrol --as ann@laptop",
		Long: `Add a passkey to the list of signers: a security key, a phone, or a password
manager. This command shows a code of six digits, and the page asks for it. The
passkey signs decisions on the page of this console alone, with a PIN or a
fingerprint for each.

If no list of signers is configured, the command makes one and puts it into the
configuration. From then on every decision has to be signed, on the page by the
passkey and in a terminal by an SSH key on the list.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.enrol(cmd.Context(), name, yes) },
	}
	c.Flags().StringVar(&name, "as", "", "`NAME` under which decisions are recorded (default USER@HOST)")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask before the first signer is added")
	c.Flags().BoolVar(&s.print, "print", false, "print the link, and open no browser")
	return c
}

// nameable reports whether a text can be a signer's name in a list.
func nameable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"*?!,#", r) })
}

func (s *command) enrol(ctx context.Context, name string, yes bool) error {
	p, err := s.places()
	if err != nil {
		return err
	}
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		name = cmp.Or(s.Getenv("USER"), "me") + "@" + host
	}
	if !nameable(name) {
		return cli.Usagef("cannot use --as %q: want letters, digits and signs without quotes, commas, stars and blanks, such as ann@laptop", name)
	}
	list, err := s.list(&p)
	if err != nil {
		return err
	}
	if p.cfg.Approvals.AllowedSigners == "" && !yes {
		s.Say("No signers are configured. After this, every decision has to be signed: by this passkey on the page, and in a terminal by an SSH key in %s.", list)
		if agreed, err := s.Ask(ctx, "Go on?"); err != nil || !agreed {
			return err
		}
	}
	return s.with(ctx, p, func(ctx context.Context, own bool) error {
		var origin string
		err := console.Enrol(ctx, p.control, func(told console.Told) {
			origin = told.Origin
			s.show(&told)
			s.Say("Choose \"Add a passkey\" on the page, and type this code there: %s", told.Code)
		}, func(key string) (added console.Added, err error) {
			added.Line = name + ` namespaces="` + api.ApprovalNamespace + `" ` + key
			if added.Digest, err = addLine(list, added.Line); err != nil {
				return console.Added{}, err
			}
			s.Say("wrote to %s: %s", list, added.Line)
			return added, s.accept(ctx, p.cfg, list, origin)
		})
		if err != nil {
			return fmt.Errorf("cannot enrol the passkey: %w", err)
		}
		s.Say("%s decides on the page by this passkey from now on", term.Printable(name))
		if own {
			s.Say("The console goes on until you interrupt it (^C).")
			<-ctx.Done()
		}
		return nil
	})
}

// list is the file of the list of signers: the configured one, or one beside the configuration.
func (s *command) list(p *places) (string, error) {
	switch {
	case p.cfg.Approvals.AllowedSigners != "":
		return p.cfg.Approvals.AllowedSigners, nil
	case p.cfg.File == "":
		return "", errors.New("there is no configuration yet, which names the list of signers: ocipd config init")
	}
	file, err := filepath.Abs(p.cfg.File)
	return filepath.Join(filepath.Dir(file), "allowed_signers"), err
}

// maxList bounds a list of signers.
const maxList = 16 << 20

// addLine adds a line to a list of signers, which the daemon has to be able to read afterwards, and
// returns the list's digest.
func addLine(file, line string) (digest string, err error) {
	text, err := durable.ReadUpTo(file, maxList)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return "", err
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	text = append(append(text, line...), '\n')
	if _, err := sshsig.ParseAllowedSigners(bytes.NewReader(text)); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if missing {
		err = durable.Replace(file, ".part", 0o600, text)
	} else {
		err = durable.Rewrite(file, ".part", text)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

// accept has the daemon accept the list, and signatures on the console's page.
func (s *command) accept(ctx context.Context, cfg *config.Config, list, origin string) error {
	approvals := keypath.Path{}.Key("approvals")
	hasList, hasOrigin := cfg.Approvals.AllowedSigners != "", slices.Contains(cfg.Approvals.Origins, origin)
	if hasList && hasOrigin {
		return nil
	}
	if cfg.File == "" {
		return fmt.Errorf("the configuration has no file: set approvals.origins to %s where the rest of it is", origin)
	}
	err := configfile.Edit(cfg, func(text []byte) (_ []byte, err error) {
		if !hasList {
			if text, err = yamltext.Edit(text, approvals.Key("allowed_signers"), yamltext.Quote(list)); err != nil {
				return nil, err
			}
		}
		if !hasOrigin {
			value := yamltext.Quote(origin)
			if len(cfg.Approvals.Origins) == 0 {
				value = yamltext.List([]string{origin})
			}
			if text, err = yamltext.Edit(text, approvals.Key("origins"), value); err != nil {
				return nil, err
			}
		}
		return text, nil
	})
	if err != nil {
		return err
	}
	s.Say("wrote approvals.allowed_signers and approvals.origins to %s", cfg.File)
	return s.Operate(ctx, "policy.reload", nil, nil)
}
