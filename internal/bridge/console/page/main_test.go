package page_test

import (
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
)

func TestMain(m *testing.M) { buildtest.Isolated(m, "UPDATE_SAMPLES", "CONSOLE_PICTURES").Run() }
