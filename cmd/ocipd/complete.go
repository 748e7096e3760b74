package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/exchangecmd"
	"github.com/openclawos/ocipd/internal/cli/logview"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/spf13/cobra"
)

// values returns the possible values of a flag or an argument, with a short description of each.
type values func(ctx context.Context) []cobra.Completion

// complete adds completion for the values that all commands name alike, unless a command has its own.
func (s *shell) complete(root *cobra.Command) {
	flags := map[string]values{"agent": s.agentValues, "app": s.appValues, "exchange": s.exchangeValues, "set": configValues}
	arguments := map[string]values{"ocipd call": s.methodValues, "ocipd audit show": s.recordValues, "ocipd audit receipt": s.recordValues, "ocipd send": s.sessionValues, "ocipd check": s.sessionValues}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for name, of := range flags {
			if c.Flags().Lookup(name) == nil {
				continue
			}
			more := cobra.ShellCompDirectiveNoFileComp
			if name == "set" {
				more |= cobra.ShellCompDirectiveNoSpace
			}
			// It fails if the command completes the flag itself.
			_ = c.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return of(cmd.Context()), more
			})
		}
		if of := arguments[c.CommandPath()]; of != nil && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return of(cmd.Context()), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// offer adds a completion, if every shell takes it as a plain word.
func offer(all []cobra.Completion, word, about string) []cobra.Completion {
	if !cli.PlainWord(word) || slices.ContainsFunc(all, func(c cobra.Completion) bool { return c == word || strings.HasPrefix(c, word+"\t") }) {
		return all
	}
	if about == "" {
		return append(all, word)
	}
	return append(all, cobra.CompletionWithDesc(word, term.Printable(about)))
}

// now is the daemon's status. If none runs, there are no completions.
func (s *shell) now(ctx context.Context) (status api.Status) {
	if err := s.Operate(ctx, "kernel.status", nil, &status); err != nil {
		return api.Status{}
	}
	return status
}

func (s *shell) agentValues(ctx context.Context) (all []cobra.Completion) {
	for _, a := range s.now(ctx).Agents {
		all = offer(offer(all, a.ID, a.App), a.InstanceID, "agent "+a.ID)
	}
	return all
}

func (s *shell) appValues(ctx context.Context) (all []cobra.Completion) {
	status := s.now(ctx)
	for _, a := range status.Apps {
		all = offer(all, a.ID, a.Health)
	}
	for _, a := range status.Agents {
		all = offer(all, a.App, "speaks for "+a.ID)
	}
	return all
}

func (s *shell) exchangeValues(ctx context.Context) []cobra.Completion {
	found, _ := exchangecmd.Complete(ctx, &s.Process)
	return found
}

func (s *shell) methodValues(ctx context.Context) (all []cobra.Completion) {
	var list api.MethodList
	if err := s.Operate(ctx, "kernel.methods", nil, &list); err != nil {
		return nil
	}
	for _, m := range list.Methods {
		all = offer(all, m.Name, m.Access)
	}
	return all
}

// recordValues are the newest records.
func (s *shell) recordValues(ctx context.Context) (all []cobra.Completion) {
	limit := 20
	var page struct {
		Records []jsontext.Value `json:"records"`
	}
	if err := s.Operate(ctx, "audit.query", api.AuditQueryParams{Limit: &limit}, &page); err != nil {
		return nil
	}
	for _, line := range page.Records {
		if e, err := audit.Parse(line); err == nil {
			all = offer(all, fmt.Sprint(e.Seq), strings.TrimSpace(logview.Result(&e).Text+" "+logview.What(&e)+" "+e.AgentID))
		}
	}
	return all
}

// sessionValues are the known sessions.
func (s *shell) sessionValues(ctx context.Context) (all []cobra.Completion) {
	var page api.ContactListResult
	if err := s.Operate(ctx, "contact.list", api.ContactListParams{}, &page); err != nil {
		return nil
	}
	for i := range page.Contacts {
		all = offer(all, page.Contacts[i].SessionKey, page.Contacts[i].Kind)
	}
	return all
}

// configValues are the keys of the configuration.
func configValues(context.Context) (all []cobra.Completion) {
	for _, key := range config.Keys() {
		all = append(all, key+"=")
	}
	return all
}
