package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/spf13/cobra"
)

// versionReport is the output of `ocipd version --json`.
type versionReport struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Protocol string `json:"protocolVersion"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// buildVersion is the linker's version, or else the go command's information about the build.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func buildCommit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "none"
}

// thisVersion is this program's version.
func thisVersion() versionReport {
	return versionReport{
		Version: buildVersion(), Commit: buildCommit(), Protocol: api.ProtocolVersion,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// versionLine is the output of `ocipd version`.
func versionLine() string {
	v := thisVersion()
	return fmt.Sprintf("ocipd %s (commit %s, protocol %s, %s, %s)\n", v.Version, v.Commit, v.Protocol, v.Go, v.Platform)
}

func newVersion(s *shell) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Example: "  ocipd version --json",
		Short:   "print the version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return s.PrintJSON(thisVersion())
			}
			_, err := io.WriteString(s.Stdout, versionLine())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
