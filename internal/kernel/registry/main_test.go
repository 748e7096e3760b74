package registry

import (
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
)

func TestMain(m *testing.M) { buildtest.Isolated(m).Run() }
