package exchangecmd

import "github.com/openclawos/ocipd/internal/cli"

// command is the process of a command.
type command struct{ *cli.Process }
