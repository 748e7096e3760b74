package runtimecmd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/bridge/a2aproxy"
	"github.com/openclawos/ocipd/internal/bridge/mcpproxy"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// a2aFlags are the flags of a2a-proxy.
type a2aFlags struct {
	agent, token, address, listen, local, public string
	cert, key, clientCA, ca, peerKey             string
	hold, wait                                   time.Duration
	webhooks                                     []string
	pushListen, pushPublic                       string
}

// NewA2AProxy returns the command that decides about the messages of an agent and its peers.
func NewA2AProxy(s *cli.Process) *cobra.Command {
	var f a2aFlags
	c := &cobra.Command{
		Use:   "a2a-proxy --agent ID --url PEER | --agent ID --listen ADDRESS --url AGENT",
		Short: "have each message of an agent and its A2A peers decided first",
		Long: `Stand between an agent and its peers in the A2A protocol (version 1.0, and the names of
0.3), and have the daemon decide about each message, task, artifact and card.

Without --listen, PEER is another party's agent. The agent's client speaks to an address
on this machine as to the peer: to the agent card whose address is written to stdout.
The address stays the same, and only a holder of the agent's token can know it.

With --listen, AGENT is the agent's own A2A server, and its peers reach it at ADDRESS. That
needs --cert and --key, unless ADDRESS is one of this machine alone.

The peer's session is a2a:HOST if TLS or the signature of its card (--peer-key) proves it,
and a2a:unverified:HOST otherwise. The directory names the peer by that session.

The agent has no app and speaks by a grant: ocipd task grant --agent ID --out FILE. A
message that a person has to approve keeps its call open; then the call is answered HELD,
and the message is sent once it is approved. Without a running daemon nothing passes.

Push notifications pass if --webhook names the addresses to which they may go. The other side
gets an address of the proxy in place of the webhook: one at --push-listen, where the peer has
to reach it. With --listen, the agent's own server gets one of this machine, and a peer is
notified at webhooks of its own host alone, or at those that PEER=URL names for it.`,
		Example: "  ocipd a2a-proxy --agent ann --token-file ~/ann.token --url https://agents.example.com\n" +
			"  ocipd a2a-proxy --agent ann --listen 127.0.0.1:7443 --url http://[::1]:9000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s) },
	}
	c.Flags().StringVar(&f.agent, "agent", "", "speak as the agent with this `ID`")
	c.Flags().StringVar(&f.token, "token-file", "", "act by the grant whose token stands in `FILE`")
	c.Flags().StringVar(&f.address, "url", "", "the peer, or with --listen the agent's own server, at `URL`: the address before /.well-known")
	c.Flags().StringVar(&f.listen, "listen", "", "let peers reach the agent at `ADDRESS`")
	c.Flags().StringVar(&f.local, "local", "127.0.0.1:7421", "without --listen, serve the agent's client at `ADDRESS`")
	c.Flags().StringVar(&f.public, "public", "", "with --listen, peers know the address as `URL`")
	c.Flags().StringVar(&f.cert, "cert", "", "show the certificate in `FILE` (PEM): to peers that call with --listen, otherwise to the peer")
	c.Flags().StringVar(&f.key, "key", "", "the certificate's private key is in `FILE` (PEM)")
	c.Flags().StringVar(&f.clientCA, "client-ca", "", "with --listen, peers are known by certificates of the authorities in `FILE` (PEM)")
	c.Flags().StringVar(&f.ca, "ca", "", "trust the authorities in `FILE` (PEM) in place of the system's")
	c.Flags().StringVar(&f.peerKey, "peer-key", "", "the peer is known by the key in `FILE` (PEM or JWK), with which it signs its card, and not by its certificate")
	c.Flags().StringArrayVar(&f.webhooks, "webhook", nil, "let push notifications go to webhooks at or below `URL`, or PEER=URL with --listen; may stand more than once")
	c.Flags().StringVar(&f.pushListen, "push-listen", "", "take push notifications at `ADDRESS`; without --listen that needs --cert and --key, unless it is one of this machine alone")
	c.Flags().StringVar(&f.pushPublic, "push-public", "", "the other side knows the address of --push-listen as `URL`")
	c.Flags().DurationVar(&f.hold, "hold", 4*time.Minute, "keep a call open for this `TIME` for a person")
	c.Flags().DurationVar(&f.wait, "wait", 5*time.Minute, "wait for an answer, or for the next event of a stream, for this `TIME`")
	return c
}

func (f *a2aFlags) run(ctx context.Context, s *cli.Process) error {
	target, err := mcpproxy.Target(f.address)
	if err != nil || target.RawQuery != "" {
		return cli.Usagef("--url: %q is no address of an A2A agent", f.address)
	}
	link, err := newLink(s, f.agent, f.token, "speaks")
	if err != nil {
		return err
	}
	defer link.Close()
	log := slog.New(slog.NewTextHandler(s.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := link.Check(ctx); err != nil {
		// The daemon may start before the first message.
		log.Warn("nothing passes until this is well", "error", err)
	}
	o := &a2aproxy.Options{
		Link: link, Incoming: f.listen != "", Target: target, Hold: f.hold, Wait: f.wait, Log: log, NewID: newID, Now: time.Now,
		Origin: (&mcpproxy.Source{Name: "a2a", Shown: "a2a " + target.Host, Address: target.String()}).Origin(link.Token),
	}
	if err := f.trust(o); err != nil {
		return err
	}
	if o.Push, err = f.push(ctx, o.Certificate); err != nil {
		return err
	}
	l, err := f.open(ctx, o, link.Token)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Stdout, "%s/.well-known/agent-card.json\n", o.Public)
	return a2aproxy.New(ctx, o).Serve(l)
}

// trust reads the keys and certificates.
func (f *a2aFlags) trust(o *a2aproxy.Options) error {
	if (f.cert == "") != (f.key == "") {
		return cli.Usagef("--cert and --key belong together")
	}
	if f.cert != "" {
		c, err := certificate(f.cert, f.key)
		if err != nil {
			return err
		}
		o.Certificate = c
	}
	if f.ca != "" {
		pool, err := authorities(f.ca)
		if err != nil {
			return err
		}
		o.Roots = pool
	}
	if f.peerKey != "" {
		text, err := cli.ReadFile(f.peerKey)
		if err != nil {
			return err
		}
		if o.PeerKey, err = a2aproxy.ParseKey(text); err != nil {
			return fmt.Errorf("%s: %w", f.peerKey, err)
		}
	}
	return nil
}

// push opens the port for push notifications, if there is a webhook that they may go to. The
// certificate is shown to peers alone.
func (f *a2aFlags) push(ctx context.Context, shown *tls.Certificate) (*a2aproxy.Push, error) {
	p := new(a2aproxy.Push)
	for _, given := range f.webhooks {
		w, err := a2aproxy.ParseWebhook(given)
		if err == nil && w.Peer != "" && f.listen == "" {
			err = errors.New("a peer in front of the address is for --listen")
		}
		if err != nil {
			return nil, cli.Usagef("--webhook: %v", err)
		}
		p.Webhooks = append(p.Webhooks, w)
	}
	at := f.pushListen
	switch {
	case len(f.webhooks) == 0 && at == "" && f.pushPublic == "":
		return nil, nil
	case len(f.webhooks) == 0:
		return nil, cli.Usagef("--push-listen and --push-public need --webhook: the addresses to which notifications may go")
	case at == "" && f.listen == "":
		return nil, cli.Usagef("--webhook needs --push-listen: the address where the peer reaches the proxy")
	case at == "":
		at = "127.0.0.1:0"
	}
	var c *tls.Config
	if f.listen == "" && shown != nil {
		c = &tls.Config{Certificates: []tls.Certificate{*shown}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	var err error
	if p.Listener, p.Public, err = a2aproxy.Listen(ctx, at, c); err != nil {
		return nil, err
	}
	if f.pushPublic != "" {
		if p.Public, err = mcpproxy.Target(f.pushPublic); err != nil || p.Public.RawQuery != "" {
			return nil, errors.Join(cli.Usagef("--push-public: %q is no address", f.pushPublic), p.Listener.Close())
		}
		p.Public.Path = strings.TrimSuffix(p.Public.Path, "/")
	}
	return p, nil
}

// open opens the port, and says at which address clients find it.
func (f *a2aFlags) open(ctx context.Context, o *a2aproxy.Options, secret string) (a2aproxy.Listener, error) {
	if f.listen == "" {
		if f.public != "" || f.clientCA != "" {
			return nil, cli.Usagef("--public and --client-ca need --listen")
		}
		l, err := mcpproxy.Listen(ctx, f.local)
		if err != nil {
			return nil, err
		}
		o.Public = &url.URL{Scheme: "http", Host: l.Addr().String(), Path: mcpproxy.Path(secret, o.Target)}
		return l, nil
	}
	if f.peerKey != "" {
		return nil, cli.Usagef("--peer-key is for a peer that is called; with --listen, peers are known by --client-ca")
	}
	var c *tls.Config
	if o.Certificate != nil {
		c = &tls.Config{Certificates: []tls.Certificate{*o.Certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
		// The agent's own server is shown no certificate.
		o.Certificate = nil
	}
	if f.clientCA != "" {
		if c == nil {
			return nil, cli.Usagef("--client-ca needs --cert and --key")
		}
		pool, err := authorities(f.clientCA)
		if err != nil {
			return nil, err
		}
		c.ClientCAs, c.ClientAuth = pool, tls.VerifyClientCertIfGiven
	}
	l, public, err := a2aproxy.Listen(ctx, f.listen, c)
	if err != nil {
		return nil, err
	}
	o.Public = public
	if f.public != "" {
		if o.Public, err = mcpproxy.Target(f.public); err != nil || o.Public.RawQuery != "" {
			return nil, errors.Join(cli.Usagef("--public: %q is no address", f.public), l.Close())
		}
		o.Public.Path = strings.TrimSuffix(o.Public.Path, "/")
	}
	return l, nil
}

func certificate(cert, key string) (*tls.Certificate, error) {
	public, err := cli.ReadFile(cert)
	if err != nil {
		return nil, err
	}
	private, err := cli.ReadFile(key)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(public, private)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return &c, nil
}

func authorities(file string) (*x509.CertPool, error) {
	text, err := cli.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}
