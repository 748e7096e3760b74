package console

import (
	"os"
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
)

func TestMain(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		play(part)
		return
	}
	buildtest.Isolated(m).Run()
}
