package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func newConfig(s *shell) *cobra.Command {
	c := group(&cobra.Command{Use: "config", Short: "check, show or write the configuration"})
	c.AddCommand(newConfigCheck(s), newConfigShow(s), newConfigInit(s))
	return c
}

// checkReport is what `ocipd config check --json` prints.
type checkReport struct {
	File   string          `json:"file"`
	OK     bool            `json:"ok"`
	Errors []configProblem `json:"errors"`
}

type configProblem struct {
	File    string `json:"file,omitzero"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Key     string `json:"key,omitzero"`
	Message string `json:"message"`
	Nearest string `json:"nearest,omitzero"`
}

func newConfigCheck(s *shell) *cobra.Command {
	var asJSON bool
	var set []string
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "check the configuration and say all that is wrong with it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := s.configArg(args)
			if err != nil {
				return err
			}
			flags, err := keyValues(set)
			if err != nil {
				return err
			}
			cfg, err := s.loadFile(file, flags)
			if asJSON {
				return s.reportCheck(file, cfg, err)
			}
			switch {
			case err != nil:
				return err
			case cfg.File == "":
				_, err = fmt.Fprintln(s.stdout, "ok: there is no file, the defaults serve")
			default:
				_, err = fmt.Fprintf(s.stdout, "ok: %s\n", printable(cfg.File))
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	setFlag(c, &set)
	return c
}

func (s *shell) reportCheck(file string, cfg *config.Config, failure error) error {
	report := checkReport{File: file, OK: failure == nil, Errors: []configProblem{}}
	var problems config.Errors
	switch {
	case failure == nil:
		report.File = cfg.File
	case errors.As(failure, &problems):
		for _, p := range problems {
			report.Errors = append(report.Errors, configProblem{
				File: p.File, Line: p.Line, Column: p.Column, Key: p.Key, Message: p.Message, Nearest: p.Nearest,
			})
		}
	default:
		return failure
	}
	if err := s.printJSON(report); err != nil {
		return err
	}
	return failure
}

// configArg is the configuration a command is about.
func (s *shell) configArg(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return s.configFile, nil
	case s.configFile != "":
		return "", usagef("a file is named twice: %s and --config %s", args[0], s.configFile)
	}
	return args[0], nil
}

func newConfigShow(s *shell) *cobra.Command {
	var asJSON bool
	var set []string
	c := &cobra.Command{
		Use:   "show",
		Short: "show the configuration in force, secrets masked",
		Long: "Show the configuration as file, environment and flags make it, with secrets masked and a\n" +
			"comment that says who set each value; a value without one is the default.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			flags, err := keyValues(set)
			if err != nil {
				return err
			}
			cfg, err := s.load(flags)
			if err != nil {
				return err
			}
			text, err := cfg.Redacted()
			if err != nil {
				return err
			}
			var doc yaml.Node
			if err := yaml.Unmarshal(text, &doc); err != nil {
				return fmt.Errorf("cannot show the configuration: %w", err)
			}
			sources := map[string]string{}
			annotate(&doc, config.Path{}, cfg, sources)
			if asJSON {
				return s.showJSON(cfg, &doc, sources)
			}
			enc := yaml.NewEncoder(s.stdout)
			enc.SetIndent(2)
			if err := enc.Encode(&doc); err != nil {
				return fmt.Errorf("cannot show the configuration: %w", err)
			}
			return enc.Close()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	setFlag(c, &set)
	return c
}

// showReport is what `ocipd config show --json` prints.
type showReport struct {
	File    string            `json:"file"`
	Config  map[string]any    `json:"config"`
	Sources map[string]string `json:"sources"`
}

func (s *shell) showJSON(cfg *config.Config, doc *yaml.Node, sources map[string]string) error {
	values := map[string]any{}
	if err := doc.Decode(&values); err != nil {
		return fmt.Errorf("cannot show the configuration: %w", err)
	}
	return s.printJSON(showReport{File: cfg.File, Config: values, Sources: sources})
}

// annotate puts beside each value who set it.
func annotate(n *yaml.Node, at config.Path, cfg *config.Config, sources map[string]string) {
	switch n.Kind {
	case yaml.DocumentNode:
		for _, child := range n.Content {
			annotate(child, at, cfg, sources)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			annotate(n.Content[i+1], at.Key(n.Content[i].Value), cfg, sources)
		}
	case yaml.SequenceNode:
		for i, child := range n.Content {
			annotate(child, at.Index(i), cfg, sources)
		}
	}
	source := cfg.Source(at.String())
	if source == config.SourceDefault {
		return
	}
	sources[at.String()] = source
	if len(n.Content) == 0 {
		n.LineComment = source
	}
}

func newConfigInit(s *shell) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "init [FILE]",
		Short: "write the default configuration, commented, to start from",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := s.configArg(args)
			if err != nil {
				return err
			}
			if file == "" {
				file = config.FilePath(s.getenv)
			}
			if file == "" {
				return errors.New("cannot tell where the configuration belongs: HOME is not set; name a file")
			}
			if err := writeConfig(file, configs.Default(), force); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.stdout, "wrote %s; check changes to it with: ocipd config check\n", printable(file))
			return err
		},
	}
	c.Flags().BoolVar(&force, "force", false, "overwrite a file that is there")
	return c
}

// writeConfig writes a file for its owner alone. One that is there is replaced
// as a whole or not at all.
func writeConfig(file string, text []byte, force bool) (err error) {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the configuration's directory: %w", err)
	}
	if !force {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cannot write %s: it is there already; --force overwrites it", file)
		}
		if err != nil {
			return fmt.Errorf("cannot write the configuration: %w", err)
		}
		return writeAll(f, text)
	}
	f, err := os.CreateTemp(dir, ".ocipd-*.yaml") // with mode 0600
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	err = writeAll(f, text)
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write the configuration: %w", err), os.Remove(f.Name()))
	}
	return nil
}

func writeAll(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	return nil
}
