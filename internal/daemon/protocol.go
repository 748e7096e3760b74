package daemon

import (
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/schema"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// Protocol returns the published schema of the methods for apps, for operators, or for
// both. It needs no running daemon.
func Protocol(apps, operators bool) (*jsonschema.Schema, error) {
	return schema.Protocol(ipc.DescribeFor(methodTable(), apps, operators))
}

// Reference returns the reference page of all methods and events as Markdown. It needs no running daemon.
func Reference() ([]byte, error) {
	list, matrix := ipc.DescribeFor(methodTable(), true, true), taskservice.Matrix()
	for i := range list {
		if m := &list[i]; m.Access == string(ipc.AccessTask) {
			m.Roles = taskservice.Named(matrix[m.Name])
		}
	}
	page, err := schema.Reference(list, schema.About(), schema.Part{Name: "metadata.exchange", Type: exchangehints.Form()},
		schema.Part{Name: "Data of tool_executing", Type: api.ToolExecuting.Data()})
	return append(page, taskservice.PhasesPage()...), err
}

// methodTable is the table of methods without a running daemon behind it; its methods must
// not be called.
func methodTable() []ipc.Method { return (&Daemon{kernel: new(kernel.Kernel)}).methods() }
