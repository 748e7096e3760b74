package daemon

import (
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api/schema"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
)

// Protocol is the published schema of the methods of the sockets of apps, of operators, or
// of both. It takes no running daemon.
func Protocol(apps, operators bool) (*jsonschema.Schema, error) {
	return schema.Protocol(ipc.DescribeFor(methodTable(), apps, operators))
}

// methodTable is the table of methods with nothing behind it: no method of it is called.
func methodTable() []ipc.Method { return (&Daemon{kernel: new(kernel.Kernel)}).methods() }
