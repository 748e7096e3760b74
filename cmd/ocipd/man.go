package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// newMan is hidden: it is for packages, and `ocipd service install` does the same.
func newMan(s *shell) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "write the manual pages of all commands into a directory",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			pages, err := s.manPages(cmd.Root())
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages are for everybody
				return fmt.Errorf("cannot write manual pages: %w", err)
			}
			for _, p := range pages {
				if _, err := cli.ReplaceFile(filepath.Join(args[0], p.name), p.text, 0o644); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(s.Stdout, "wrote %d manual pages to %s\n", len(pages), term.Printable(args[0]))
			return err
		},
	}
}

// manPage is one manual page.
type manPage struct {
	name string
	text []byte
}

// manPages makes the manual pages of a command and its visible subcommands, sorted by name.
func (s *shell) manPages(root *cobra.Command) ([]manPage, error) {
	date, err := s.buildDate()
	if err != nil {
		return nil, err
	}
	var pages []manPage
	var walk func(*cobra.Command) error
	walk = func(c *cobra.Command) error {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
				if err := walk(sub); err != nil {
					return err
				}
			}
		}
		c.DisableAutoGenTag = true
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		var text bytes.Buffer
		err := doc.GenMan(c, &doc.GenManHeader{
			Title: strings.ToUpper(name), Section: "1", Date: &date, Source: "ocipd " + buildVersion(), Manual: "OpenClawOS",
		}, &text)
		if err != nil {
			return fmt.Errorf("cannot make the manual page of %s: %w", c.CommandPath(), err)
		}
		pages = append(pages, manPage{name + ".1", manFlags(c, text.Bytes())})
		return nil
	}
	if err := walk(root); err != nil {
		return nil, err
	}
	slices.SortFunc(pages, func(a, b manPage) int { return strings.Compare(a.name, b.name) })
	return pages, nil
}

// manFlag matches a flag's line in cobra's format: its names and its default.
var manFlag = regexp.MustCompile(`(?m)^((?:\\fB-\w\\fP, )?\\fB--([\w-]+)\\fP)\[?=.*$`)

// manFlags replaces each flag's default by the name of its value, as in help pages.
func manFlags(c *cobra.Command, page []byte) []byte {
	return manFlag.ReplaceAllFunc(page, func(line []byte) []byte {
		found := manFlag.FindSubmatch(line)
		f := c.Flag(string(found[2]))
		if f == nil {
			return line
		}
		takes, _ := pflag.UnquoteUsage(f)
		if takes == "" {
			return found[1]
		}
		return fmt.Appendf(nil, `%s \fI%s\fP`, found[1], takes)
	})
}

// buildDate is the date of the manual pages: SOURCE_DATE_EPOCH, in seconds, for builders of
// packages, or else the program file's modification time.
//
// Source: reproducible-builds.org, SOURCE_DATE_EPOCH.
func (s *shell) buildDate() (time.Time, error) {
	if text := s.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, cli.Usagef("cannot read SOURCE_DATE_EPOCH=%q: want seconds since 1970", text)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	program, err := os.Executable()
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot tell where this program is: %w", err)
	}
	info, err := os.Stat(program)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot look at this program: %w", err)
	}
	return info.ModTime().UTC(), nil
}
