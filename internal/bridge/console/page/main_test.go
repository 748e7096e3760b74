package page_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
)

func TestMain(m *testing.M) {
	for variable, run := range map[string]func(string) error{consoleVariable: serveConsole, readerVariable: readStream} {
		if value := os.Getenv(variable); value != "" {
			if err := run(value); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	buildtest.Isolated(m, "UPDATE_SAMPLES", "CONSOLE_PICTURES").Run()
}
