package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// SetFlag adds --set to a command that reads the configuration.
func SetFlag(c *cobra.Command, into *[]string) {
	c.Flags().StringArrayVar(into, "set", nil, "set a configuration key that holds one value, as `KEY=VALUE`")
}

// KeyValues parses the values of --set.
func KeyValues(set []string) (map[string]any, error) {
	flags := map[string]any{}
	for _, kv := range set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok || key == "" {
			return nil, Usagef("cannot read --set %q: want KEY=VALUE, such as ocip.max_rounds=5", kv)
		}
		flags[key] = value
	}
	return flags, nil
}

// Moment parses a person's time; an empty text is the zero time.
func Moment(text string, now time.Time) (time.Time, error) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch text {
	case "":
		return time.Time{}, nil
	case "now":
		return now, nil
	case "today":
		return midnight, nil
	case "yesterday":
		return midnight.AddDate(0, 0, -1), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 1e6 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time such as 2026-01-02T15:04:05Z, 2026-01-02, 2h, 7d or today", text)
}

// Choices completes an existing flag of a command with its values.
func Choices(c *cobra.Command, flag string, values []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic("cli: " + err.Error())
	}
}

// Required makes flags of a command mandatory.
func Required(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := c.MarkFlagRequired(flag); err != nil {
			panic("cli: " + err.Error())
		}
	}
}
