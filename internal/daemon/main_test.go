package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
)

func TestMain(m *testing.M) { buildtest.Isolated(m, roundsVariable, "TEST_MUTANT").Run() }
