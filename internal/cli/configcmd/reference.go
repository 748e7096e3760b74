package configcmd

import (
	"strings"

	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/internal/config"
)

// Reference returns the reference page of the configuration as Markdown.
func Reference() ([]byte, error) {
	return []byte("# Configuration\n\n" +
		"<!-- Made by \"make reference\" from the default configuration and the table of keys. Do not edit. -->\n\n" +
		"A running daemon takes changes by itself, with the effects in [Reload](protocol/pause-and-reload.md#reload). These keys need a restart: `" +
		strings.Join(config.Restarts(), "`, `") + "`.\n\n" +
		"Every key has its default here, except in the examples, which are comments.\n\n" +
		"```yaml\n" + string(configs.Default()) + "```\n"), nil
}
