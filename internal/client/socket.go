package client

import (
	"context"
	"fmt"
	"io"
	"net"
)

// DialSocket connects to a Unix socket that speaks a protocol of its own, such
// as that of ssh-agent. The caller closes it.
func DialSocket(ctx context.Context, path string) (io.ReadWriteCloser, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", path, cause(err))
	}
	return conn, nil
}
