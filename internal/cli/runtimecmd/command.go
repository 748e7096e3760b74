// Package runtimecmd has the commands that stand between the daemon and agents' runtimes.
package runtimecmd

import "github.com/openclawos/ocipd/internal/cli"

// command is the process of a command.
type command struct{ *cli.Process }
