package page_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(consoleVariable); dir != "" {
		if err := serveConsole(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	buildtest.Isolated(m, "UPDATE_SAMPLES", "CONSOLE_PICTURES").Run()
}
