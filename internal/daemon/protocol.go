package daemon

import (
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api/schema"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
)

// Protocol returns the published schema of the methods for apps, for operators, or for
// both. It needs no running daemon.
func Protocol(apps, operators bool) (*jsonschema.Schema, error) {
	return schema.Protocol(ipc.DescribeFor(methodTable(), apps, operators))
}

// methodTable is the table of methods without a running daemon behind it; its methods must
// not be called.
func methodTable() []ipc.Method { return (&Daemon{kernel: new(kernel.Kernel)}).methods() }
