package natsline

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/openclawos/ocipd/internal/bridge/carrier"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/roster"
)

// Tenant is one account of a broker.
type Tenant struct {
	Roster *roster.Roster
	// Admin is the key that makes the stream and its consumers.
	Admin ed25519.PrivateKey
}

// Broker has the settings of a broker besides the rosters.
type Broker struct {
	// Listen is an address and a port, and Store the directory of the streams.
	Listen, Store string
	// Cert and Key are the files of the broker's certificate, "" for no TLS.
	Cert, Key string
}

// Configuration is the configuration of a nats-server with one account for each tenant, and one user
// in it for each host that has a key of its line.
func (b *Broker) Configuration(tenants []Tenant) (string, error) {
	var t strings.Builder
	fmt.Fprintf(&t, `# Written by "ocipd fleet broker" from signed rosters. Run the command again after a roster has
# changed, and then: nats-server --signal reload
listen: %s
server_name: "ocipd-fleet"
max_payload: %d
jetstream { store_dir: %s, sync_interval: "1s" }
`, quote(b.Listen), maxPayload, quote(b.Store))
	if b.Cert != "" {
		fmt.Fprintf(&t, "tls { cert_file: %s, key_file: %s }\n", quote(b.Cert), quote(b.Key))
	}
	t.WriteString("accounts {\n")
	if err := distinct(tenants); err != nil {
		return "", err
	}
	for i := range tenants {
		if err := tenants[i].write(&t); err != nil {
			return "", err
		}
	}
	t.WriteString("}\n")
	return t.String(), nil
}

// distinct refuses a key that logs in for two hosts, or for a host and an administrator: the broker would
// take one of them into the other's account, or not start. The keys are public, so that a host can copy
// one of another tenant.
func distinct(tenants []Tenant) error {
	owners := map[string]string{}
	for i := range tenants {
		r := tenants[i].Roster
		keys := map[string][]byte{"the administrator": tenants[i].Admin.Public().(ed25519.PublicKey)}
		for j := range r.Hosts {
			if r.Hosts[j].Line != nil {
				keys["host "+r.Hosts[j].Name] = r.Hosts[j].Line
			}
		}
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			owner := name + " of " + r.Tenant
			if before := owners[string(keys[name])]; before != "" {
				return fmt.Errorf("%s and %s log in with the same key: one of them needs another (fleet-line.key)", before, owner)
			}
			owners[string(keys[name])] = owner
		}
	}
	return nil
}

// maxPayload is a frame with the headers of the broker.
const maxPayload = frame.MaxBytes + 4<<10

// quote writes a string of a configuration.
func quote(s string) string { return strconv.Quote(s) }

// write adds a tenant's account.
func (a *Tenant) write(t *strings.Builder) error {
	admin, err := PublicKey(a.Admin.Public().(ed25519.PublicKey))
	if err != nil {
		return err
	}
	fmt.Fprintf(t, "  %s { # tenant %s\n    jetstream: enabled\n    users: [\n", a.Roster.Account(), quote(a.Roster.Tenant))
	user := func(comment, key string, publish, subscribe []string, responses string) {
		fmt.Fprintf(t, "      # %s\n      { nkey: %s, permissions: {\n        publish: { allow: [%s] }\n        subscribe: { allow: [%s] }%s\n      } }\n",
			comment, key, list(publish), list(subscribe), responses)
	}
	user("makes the stream and its consumers", admin, adminRights, []string{answers(adminName) + ".>"}, "")
	for i := range a.Roster.Hosts {
		h := &a.Roster.Hosts[i]
		if h.Line == nil {
			continue
		}
		key, err := PublicKey(h.Line)
		if err != nil {
			return fmt.Errorf("cannot use the key of host %s: %w", h.Name, err)
		}
		publish, subscribe := rights(h.Mailbox())
		user("host "+h.Name, key, publish, subscribe, "\n        allow_responses: { max: 1, expires: \"1m\" }")
	}
	t.WriteString("    ]\n  }\n")
	return nil
}

func list(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, ", ")
}

// rights are the subjects that a host may publish and subscribe to. It speaks under its own mailbox
// alone, and takes from its own alone; it makes and removes nothing.
func rights(own string) (publish, subscribe []string) {
	return []string{direct("*", own), stored("*", own, "*"), nextOf(own), "$JS.ACK." + stream + "." + own + ".>"},
		[]string{direct(own, "*"), answers(own) + ".>"}
}

// adminName is the mailbox of the administrator, which no host can have.
const adminName = "admin"

const (
	createStream    = "$JS.API.STREAM.CREATE." + stream
	updateStream    = "$JS.API.STREAM.UPDATE." + stream
	consumerNames   = "$JS.API.CONSUMER.NAMES." + stream
	createConsumer  = "$JS.API.CONSUMER.DURABLE.CREATE." + stream + "."
	deleteConsumer  = "$JS.API.CONSUMER.DELETE." + stream + "."
	consumersATime  = 1024
	errStreamExists = 10058
)

// adminRights are the subjects that the administrator may publish to. It reads no message.
var adminRights = []string{createStream, updateStream, consumerNames, createConsumer + "*", deleteConsumer + "*"}

// streamConfig is the stream of an account, with times in nanoseconds. A slot holds one frame until the receiver has taken it: a
// second one is refused. No message ids are remembered.
type streamConfig struct {
	Name                 string   `json:"name"`
	Subjects             []string `json:"subjects"`
	Retention            string   `json:"retention"`
	Discard              string   `json:"discard"`
	DiscardNewPerSubject bool     `json:"discard_new_per_subject"`
	MaxMsgsPerSubject    int64    `json:"max_msgs_per_subject"`
	MaxConsumers         int      `json:"max_consumers"`
	MaxMsgs              int64    `json:"max_msgs"`
	MaxBytes             int64    `json:"max_bytes"`
	MaxAge               int64    `json:"max_age"`
	Storage              string   `json:"storage"`
	Replicas             int      `json:"num_replicas"`
	Duplicates           int64    `json:"duplicate_window"`
	DenyDelete           bool     `json:"deny_delete"`
	DenyPurge            bool     `json:"deny_purge"`
}

// wantedStream is the stream that a keeper makes.
func wantedStream() *streamConfig {
	subjects := slots()
	for i, slot := range subjects {
		subjects[i] = stored("*", "*", slot)
	}
	return &streamConfig{
		Name: stream, Subjects: subjects, Retention: "workqueue", Discard: "new", DiscardNewPerSubject: true,
		MaxMsgsPerSubject: 1, MaxConsumers: 2 * roster.MaxHosts, MaxMsgs: -1, MaxBytes: maxStored, MaxAge: int64(72 * time.Hour), Storage: "file", Replicas: 1,
		Duplicates: int64(100 * time.Millisecond), DenyDelete: true, DenyPurge: true,
	}
}

// maxStored bounds the stream of a tenant, in bytes. A host may store for mailboxes that nobody has: it
// fills no disk. The broker refuses a stream with a bound that its disk has no room for.
const maxStored = 1 << 30

// consumerConfig is the consumer of a host. It is in the broker's memory: a file for each would be
// written at every acknowledgement.
type consumerConfig struct {
	Durable       string `json:"durable_name"`
	DeliverPolicy string `json:"deliver_policy"`
	AckPolicy     string `json:"ack_policy"`
	AckWait       int64  `json:"ack_wait"`
	MaxDeliver    int    `json:"max_deliver"`
	FilterSubject string `json:"filter_subject"`
	MaxAckPending int    `json:"max_ack_pending"`
	Replicas      int    `json:"num_replicas"`
	MemoryStorage bool   `json:"mem_storage"`
}

func wantedConsumer(own string) *consumerConfig {
	return &consumerConfig{
		Durable: own, DeliverPolicy: "all", AckPolicy: "explicit", AckWait: int64(30 * time.Second), MaxDeliver: -1, FilterSubject: stored(own, "*", "*"),
		MaxAckPending: 10_000, Replicas: 1, MemoryStorage: true,
	}
}

// Keeper are the inputs of [Keep].
type Keeper struct {
	URL, CA string
	// Key is the key of the tenant's administrator.
	Key ed25519.PrivateKey
	// Roster reads the newest roster.
	Roster func() (*roster.Roster, error)
	// Every is how often the broker is asked what it has.
	Every time.Duration
	// Say tells a person of a change.
	Say func(format string, args ...any)
}

// Keep makes the stream of a tenant and the consumers of its hosts, and again whenever the broker has lost
// them, until the context ends. The error is that of a broker that is too old.
func Keep(ctx context.Context, k *Keeper) error {
	return carrier.Repeat(ctx, "nothing is kept", errOld, k.Say, func() (bool, error) { return k.session(ctx) })
}

// session keeps the stream and the consumers over one connection.
func (k *Keeper) session(ctx context.Context) (kept bool, err error) {
	nc, ended, err := connect(k.URL, k.CA, "ocipd fleet broker", k.Key, func(error) {})
	if err != nil {
		return false, err
	}
	defer nc.Close()
	a := &admin{nc: nc}
	every := time.NewTicker(k.Every)
	defer every.Stop()
	for {
		r, err := k.Roster()
		if err != nil {
			return kept, err
		}
		made, removed, err := a.provide(ctx, r)
		if err != nil {
			return kept, err
		}
		if made > 0 || removed > 0 || !kept {
			k.Say("%s: the stream is there; made the consumers of %d hosts, removed %d", r.Tenant, made, removed)
		}
		kept = true
		select {
		case <-every.C:
		case <-ctx.Done():
			return kept, ctx.Err()
		case <-ended:
			return kept, fmt.Errorf("the connection to the broker at %s was lost", k.URL)
		}
	}
}

// admin is a connection of an administrator to the account of a tenant.
type admin struct{ nc *nats.Conn }

// refusal is the answer of the broker to a request that it refuses.
type refusal struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the broker refuses: %.256q (%d)", r.Description, r.ErrCode)
}

// askWait bounds one request to the broker.
const askWait = 10 * time.Second

// ask makes one request to the broker.
func (a *admin) ask(ctx context.Context, subject string, body, into any) error {
	text, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("cannot ask the broker: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	reply, err := a.request(ctx, subject, text)
	if err != nil {
		return fmt.Errorf("cannot ask the broker (%s): %w", subject, err)
	}
	var head struct {
		Error *refusal `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &head); err != nil {
		return fmt.Errorf("cannot read the broker's answer to %s: %w", subject, err)
	}
	if head.Error != nil {
		return head.Error
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(reply.Data, into)
}

// request asks with a reply subject below the administrator's own.
func (a *admin) request(ctx context.Context, subject string, text []byte) (*nats.Msg, error) {
	inbox := answers(adminName) + "." + nats.NewInbox()[len(nats.InboxPrefix):]
	sub, err := a.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may have ended
	if err := a.nc.PublishRequest(subject, inbox, text); err != nil {
		return nil, err
	}
	reply, err := sub.NextMsgWithContext(ctx)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, errors.New("the broker has no JetStream in this account; use the configuration that ocipd fleet broker writes")
	}
	return reply, err
}

// The status that a broker sends in place of an answer.
const (
	statusHeader = "Status"
	statusNobody = "503"
)

// provide makes the stream, and the consumers of the hosts of a roster, unless they are there, and removes
// the consumers of others. It returns how many consumers it has made and removed.
func (a *admin) provide(ctx context.Context, r *roster.Roster) (made, removed int, err error) {
	err = a.ask(ctx, createStream, wantedStream(), nil)
	if refused, ok := errors.AsType[*refusal](err); ok && refused.ErrCode == errStreamExists {
		err = a.ask(ctx, updateStream, wantedStream(), nil)
	}
	if err != nil {
		return 0, 0, err
	}
	there, err := a.consumers(ctx)
	if err != nil {
		return 0, 0, err
	}
	wanted := map[string]bool{}
	for i := range r.Hosts {
		own := r.Hosts[i].Mailbox()
		if own == "" {
			continue
		}
		wanted[own] = true
		if slices.Contains(there, own) {
			continue
		}
		body := map[string]any{"stream_name": stream, "config": wantedConsumer(own)}
		if err := a.ask(ctx, createConsumer+own, body, nil); err != nil {
			return made, removed, fmt.Errorf("cannot make the consumer of host %s: %w", r.Hosts[i].Name, err)
		}
		made++
	}
	for _, name := range there {
		if wanted[name] {
			continue
		}
		if err := a.ask(ctx, deleteConsumer+name, struct{}{}, nil); err != nil {
			return made, removed, fmt.Errorf("cannot remove the consumer %.64q: %w", name, err)
		}
		removed++
	}
	return made, removed, nil
}

// consumers are the names of the stream's consumers.
func (a *admin) consumers(ctx context.Context) (names []string, err error) {
	for {
		var page struct {
			Total     int      `json:"total"`
			Consumers []string `json:"consumers"`
		}
		if err := a.ask(ctx, consumerNames, map[string]any{"offset": len(names)}, &page); err != nil {
			return nil, err
		}
		names = append(names, page.Consumers...)
		if len(page.Consumers) < consumersATime || len(names) >= min(page.Total, 4*roster.MaxHosts) {
			return names, nil
		}
	}
}
