package a2aproxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
)

// Listener is a port.
type Listener = net.Listener

// Listen opens a port for peers, and says at which address they find it. Without TLS it is
// one of this machine alone.
func Listen(ctx context.Context, address string, c *tls.Config) (Listener, *url.URL, error) {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if err != nil || ip == nil {
		return nil, nil, fmt.Errorf("%q is no IP address with a port, such as 0.0.0.0:8443", address)
	}
	if c == nil && !ip.IsLoopback() {
		return nil, nil, fmt.Errorf("%s needs a certificate: others may not send messages in the clear", address)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	public := &url.URL{Scheme: "http", Host: l.Addr().String()}
	if c != nil {
		public.Scheme = "https"
		l = tls.NewListener(l, c)
	}
	return l, public, nil
}
