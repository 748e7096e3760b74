package config

import (
	"crypto/sha256"
	"maps"
	"time"

	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
	"github.com/openclawos/ocipd/internal/ocip/label"
)

// Config is the daemon's configuration. Durations are written as Go durations
// (250ms, 5s, 24h) and sizes as in [Size] (64KB, 1MiB).
//
// The tag reload of a key, or of all keys below it, says whether another value takes effect
// while the daemon runs (live) or at its next start (restart), see [Config.Keep]. The tag
// show says how much of a value people, logs and records see, see [Config.Redacted].
type Config struct {
	// File is the file that was read, empty for the defaults.
	File string `yaml:"-"`

	IPC          IPC       `yaml:"ipc"`
	Agents       []Agent   `yaml:"agents" reload:"live"`
	DefaultAgent string    `yaml:"default_agent" reload:"live"`
	Routes       []Route   `yaml:"routes" reload:"live"`
	Directory    []Contact `yaml:"directory" reload:"live"`
	// DirectoryFile names a file with further entries, see [Config.DirectoryPath].
	DirectoryFile string `yaml:"directory_file" reload:"live"`
	// Listed are the entries of that file, if [Load] read it.
	Listed *entries.List `yaml:"-"`
	// Access says what apps may do besides speaking for their agents. It is
	// never served to apps.
	Access    Access    `yaml:"access" reload:"live"`
	Hooks     Hooks     `yaml:"hooks" reload:"live"`
	Health    Health    `yaml:"health" reload:"live"`
	OCIP      OCIP      `yaml:"ocip" reload:"live"`
	Approvals Approvals `yaml:"approvals" reload:"live"`
	Console   Console   `yaml:"console" reload:"live"`
	Tasks     Tasks     `yaml:"tasks" reload:"live"`
	Fleet     Fleet     `yaml:"fleet" reload:"live"`
	Policy    Policy    `yaml:"policy" reload:"live"`
	// Tools is the treatment of tool calls about which an agent's runtime asks: record,
	// enforce (the policy's decision) or off.
	Tools    string   `yaml:"tools" reload:"live"`
	Store    Store    `yaml:"store" reload:"restart"`
	Audit    Audit    `yaml:"audit"`
	Sessions Sessions `yaml:"sessions" reload:"live"`
	// Channels and Apps are served to apps by config.get. They are raw trees of maps, lists
	// and scalars, with every key as written.
	Channels map[string]any `yaml:"channels" reload:"live" show:"nothing"`
	Apps     map[string]any `yaml:"apps" reload:"live" show:"nothing"`
	Metrics  Metrics        `yaml:"metrics" reload:"restart"`
	Log      Log            `yaml:"log"`
	// DrainTimeout bounds calls in progress once the daemon was told to stop. Zero does not wait.
	DrainTimeout time.Duration `yaml:"drain_timeout" reload:"live"`

	origins map[string]origin
	// overridden are the keys whose values in the file are overridden.
	overridden []string
	// listed is the directory file, whose entries are not in origins.
	listed *listing
	// opts are the options of the load, for [Config.Reload].
	opts   Options
	asRead `yaml:"-"`
	doubt  doubt
}

// asRead identifies the content of the file as it was read: its digest, and whether it was empty.
type asRead struct {
	empty bool
	sum   [sha256.Size]byte
}

// doubt lists the keys of unknown places, and says why they are unknown, see [Config.Certain].
type doubt struct {
	why  string
	keys []string
}

// IPC holds the limits of connections.
type IPC struct {
	// Socket is the path of the app socket, empty for the defaults of [SocketPath].
	Socket string `yaml:"socket" reload:"restart"`
	// MaxLineBytes bounds one line of a client, at least 1024.
	MaxLineBytes Size `yaml:"max_line_bytes" reload:"live"`
	// AllowUIDs lists the users besides the daemon's own that may connect.
	AllowUIDs []int `yaml:"allow_uids" reload:"restart"`
	// AppsMayOperate admits registered apps' processes and their child processes to the
	// operator socket. It is for tests only.
	AppsMayOperate bool `yaml:"apps_may_operate" reload:"live"`
	// MaxQueueBytes bounds the bytes that wait for one slow reader. It holds at least one line.
	MaxQueueBytes Size `yaml:"max_queue_bytes" reload:"live"`
	// MaxTotalQueueBytes bounds the bytes that wait for all readers together; one process
	// may have half of it. It is at least twice MaxQueueBytes.
	MaxTotalQueueBytes Size `yaml:"max_total_queue_bytes" reload:"live"`
	// MaxInFlight bounds the requests in progress on one connection.
	MaxInFlight int `yaml:"max_in_flight" reload:"live"`
	// MaxConnections bounds the connections of apps, and MaxConnectionsPerProcess those of
	// one process. Operators have a separate limit.
	MaxConnections           int `yaml:"max_connections" reload:"live"`
	MaxConnectionsPerProcess int `yaml:"max_connections_per_process" reload:"live"`
}

// Agent is a local identity and the app that may speak for it. The daemon uses this and
// never a client's claims.
type Agent struct {
	// ID is the agentId of session keys: no colon, star or space.
	ID string `yaml:"id"`
	// App is the id of the app that speaks for the agent, empty for an agent that uses the
	// grants of tasks. UID and Exe, if set, narrow that to one user and one executable.
	App        string `yaml:"app"`
	UID        *int   `yaml:"uid,omitempty"`
	Exe        string `yaml:"exe,omitempty"`
	InstanceID string `yaml:"instance_id"`
	UserID     string `yaml:"user_id"`
	OrgUnit    string `yaml:"org_unit"`
	TenantID   string `yaml:"tenant_id"`
	// MaxClassificationShared is the highest level the agent may share,
	// internal unless set.
	MaxClassificationShared string `yaml:"max_classification_shared"`
	// MinClassification is the floor of the caller's claim, public unless set.
	MinClassification string `yaml:"min_classification"`
	// SupportedExchangeTypes are all three unless set.
	SupportedExchangeTypes []string `yaml:"supported_exchange_types"`
	// MaxRounds is ocip.max_rounds unless set.
	MaxRounds         int  `yaml:"max_rounds"`
	CanReceiveQueries bool `yaml:"can_receive_queries"`
	CanAutoRespond    bool `yaml:"can_auto_respond"`
	// MaxClassificationUnknown is the highest level the agent may share with a stranger:
	// MaxClassificationShared unless set, and then at most internal.
	MaxClassificationUnknown string `yaml:"max_classification_unknown"`
	// MaxPerHour is how many messages the agent may send in an hour, zero for any number.
	// The daemon holds further ones.
	MaxPerHour int `yaml:"max_per_hour"`
	// Keywords is enforce or weigh, and empty for ocip.commitment.keywords.
	Keywords string `yaml:"keywords,omitempty"`
	// OwnTurns trusts the agent's runtime when it says that no message of another agent led
	// to a message: that message begins a causal chain.
	OwnTurns bool `yaml:"own_turns"`
	// Media are the folders from which the agent may send files.
	Media []string `yaml:"media,omitempty"`
	// Tools is the treatment of tool calls; by default the common one.
	Tools string `yaml:"tools"`
	// DisclosureText is the text of the agent's AI disclosure: by default the common one, with the
	// names of its user and its runtime in the places of the placeholders.
	DisclosureText string `yaml:"disclosure_text"`
}

// Route names the agent for a session's incoming messages. Session is a session key, or the
// beginning of one followed by a star.
type Route struct {
	Session string `yaml:"session"`
	Agent   string `yaml:"agent"`
}

// Contact is a known counterparty: an agent elsewhere, a person, or a group.
type Contact struct {
	// Kind is agent, person or group, agent unless set. A person and a group need no
	// identity, only sessions.
	Kind       string `yaml:"kind" json:"kind"`
	InstanceID string `yaml:"instance_id,omitempty" json:"instance_id,omitzero"`
	UserID     string `yaml:"user_id,omitempty" json:"user_id,omitzero"`
	OrgUnit    string `yaml:"org_unit,omitempty" json:"org_unit,omitzero"`
	TenantID   string `yaml:"tenant_id,omitempty" json:"tenant_id,omitzero"`
	// Accepts are the levels the contact accepts, public alone unless set.
	Accepts []string `yaml:"accepts" json:"accepts"`
	// Sessions are the session keys of the contact, or beginnings followed by a star. No
	// two contacts share one.
	Sessions []string `yaml:"sessions" json:"sessions,omitzero"`
	// Members are the members of a group: instance ids, and session keys of people.
	Members []string `yaml:"members,omitempty" json:"members,omitzero"`
}

// Hooks bounds the wait for interceptors, see [HookTimes].
type Hooks struct {
	Wait   time.Duration `yaml:"wait"`
	Answer time.Duration `yaml:"answer"`
	// Apps overrides the times for single apps, by app id. Each entry is complete: the
	// common times fill in missing values.
	Apps map[string]HookTimes `yaml:"apps"`
}

// HookTimes are the two time limits of an interceptor.
type HookTimes struct {
	// Wait is for an app that only subscribed; silence then passes.
	Wait time.Duration `yaml:"wait"`
	// Answer is for an app that declared itself an interceptor; silence then blocks.
	Answer time.Duration `yaml:"answer"`
	// Required makes the app a mandatory interceptor: if it is silent or absent, nothing goes out.
	Required bool `yaml:"required"`
}

// For returns the times for an app.
func (h Hooks) For(app string) HookTimes {
	if t, ok := h.Apps[app]; ok {
		return t
	}
	return HookTimes{Wait: h.Wait, Answer: h.Answer}
}

// Health says when a silent app counts as unhealthy.
type Health struct {
	UnhealthyAfter time.Duration `yaml:"unhealthy_after"`
}

// OCIP holds the protocol's defaults and limits.
type OCIP struct {
	DefaultClassification string `yaml:"default_classification"`
	DefaultExchangeType   string `yaml:"default_exchange_type"`
	MaxRounds             int    `yaml:"max_rounds"`
	// ExpiresAfter is the life of a new exchange.
	ExpiresAfter time.Duration `yaml:"expires_after"`
	// MaxAnnotationBytes bounds the encoded annotation of one message.
	MaxAnnotationBytes Size `yaml:"max_annotation_bytes"`
	// Disclosure is the place of the AI disclosure in content: suffix, prefix or none.
	Disclosure string `yaml:"disclosure"`
	// DisclosureText is the text of the AI disclosure, see [label.Of].
	DisclosureText string     `yaml:"disclosure_text"`
	Commitment     Commitment `yaml:"commitment"`
	Content        Content    `yaml:"content"`
	Chain          Chain      `yaml:"chain"`
	// Unknown applies to strangers, and Person to people in the directory who are not the
	// agent's owner.
	Unknown People `yaml:"unknown"`
	Person  People `yaml:"person"`
	// SameOwner is the treatment of commitments between two agents of one person: enforce or
	// record.
	SameOwner string `yaml:"same_owner"`
	// LookAlike is the treatment of a message to a counterparty whose key resembles that of
	// a directory entry: hold, deny or allow.
	LookAlike string  `yaml:"look_alike"`
	Inbound   Inbound `yaml:"inbound"`
	Judge     Judge   `yaml:"judge"`
}

// Chain bounds causal chains: how far one message may lead to others between agents, see
// docs/reference/protocol/exchanges.md.
type Chain struct {
	// Enforcement is enforce, monitor (record only) or off.
	Enforcement string `yaml:"enforcement"`
	// MaxHops is how many messages a chain may have, 1 to 64.
	MaxHops int `yaml:"max_hops"`
	// MaxRevisits is how often a chain may return to an agent, other than by an answer.
	MaxRevisits int `yaml:"max_revisits"`
	// MaxAge bounds the age of a chain.
	MaxAge time.Duration `yaml:"max_age"`
	// Window is how long after a message its receiver's next exchanges count as caused by it.
	Window time.Duration `yaml:"window"`
}

// Commitment says how to find commitments, and what a finding does.
type Commitment struct {
	// Match is word or substring.
	Match string `yaml:"match"`
	// Enforcement is enforce (hold for a person) or monitor (record only).
	Enforcement string `yaml:"enforcement"`
	// Keywords is enforce (a keyword holds a message) or weigh (a message that only keywords
	// hold is held if it may commit somebody).
	Keywords string `yaml:"keywords"`
	// Families says for families of cues, by name, whether they enforce, are
	// only recorded (shadow) or off. The keywords cannot be switched off.
	Families map[string]string `yaml:"families"`
}

// Content are rules that raise a message's level besides the built-in ones.
type Content struct {
	Patterns []Pattern `yaml:"patterns"`
	// Personal says for kinds of personal data, by name, to which level they raise a
	// message, or that they are only recorded (shadow) or off.
	Personal map[string]string `yaml:"personal"`
}

// Pattern is an operator's own rule: a regular expression (RE2) whose match
// raises a message to a level.
type Pattern struct {
	Name   string `yaml:"name"`
	Regexp string `yaml:"regexp" show:"regexp"`
	Level  string `yaml:"level"`
}

// Approvals are the rules of approval requests.
type Approvals struct {
	// MaxOpen bounds the pending requests of one agent.
	MaxOpen int `yaml:"max_open"`
	// ExpiresAfter is how long a request stays pending, at most as long as its exchange.
	ExpiresAfter time.Duration `yaml:"expires_after"`
	// Required is how many people must approve, 1 to 10. A policy can ask for
	// more by constraints.approvers.
	Required int `yaml:"required"`
	// AllowedSigners is a file in the format of ssh-keygen(1). If it is set, one of the
	// listed signers must sign every decision.
	AllowedSigners string `yaml:"allowed_signers"`
	// Origins are those of the pages on which a passkey of a listed signer may sign, as
	// browsers write them: "http://NAME.localhost:7443". Empty accepts no passkeys.
	Origins []string `yaml:"origins"`
	// KeepContent keeps the texts of held messages after the decision. Otherwise they are
	// dropped with it.
	KeepContent bool   `yaml:"keep_content"`
	Notify      Notify `yaml:"notify"`
}

// Console are the rules of the page that `ocipd console` serves.
type Console struct {
	// Decide says what a decision on the page takes if AllowedSigners is empty: passkey refuses it,
	// and session takes a click. With AllowedSigners, each decision is signed in any case.
	Decide string `yaml:"decide"`
}

// The words of [Console.Decide].
const (
	DecidePasskey = "passkey"
	DecideSession = "session"
)

// Notify says how to tell a person about a held message.
type Notify struct {
	// Desktop shows a notification if there is a session bus.
	Desktop bool `yaml:"desktop"`
	// Command is a program, by absolute path, with its arguments. It gets the notice on its
	// standard input. Empty runs none.
	Command []string `yaml:"command" show:"program"`
}

// Policy gives the policy's source and its data.
type Policy struct {
	// Path is a directory or file of Rego, empty for the built-in policy.
	Path  string `yaml:"path"`
	Watch bool   `yaml:"watch"`
	// Timeout bounds one evaluation; past it the answer is a denial.
	Timeout time.Duration `yaml:"timeout"`
	Data    PolicyData    `yaml:"data"`
}

// PolicyData is data.policy in the policy: four keys of the built-in policy, and any
// further keys for the operator's own policy.
type PolicyData struct {
	Enabled                 bool     `yaml:"enabled"`
	CrossOrg                bool     `yaml:"cross_org"`
	AllowedExchangeTypes    []string `yaml:"allowed_exchange_types"`
	MaxClassificationShared string   `yaml:"max_classification_shared"`
	// Extra holds the further keys, as written.
	Extra map[string]any `yaml:"*" show:"data"`
}

// Map returns the data as one tree, for data.policy.
func (d PolicyData) Map() map[string]any {
	m := make(map[string]any, len(d.Extra)+4)
	maps.Copy(m, d.Extra)
	types := make([]any, len(d.AllowedExchangeTypes))
	for i, t := range d.AllowedExchangeTypes {
		types[i] = t
	}
	m["enabled"] = d.Enabled
	m["cross_org"] = d.CrossOrg
	m["allowed_exchange_types"] = types
	m["max_classification_shared"] = d.MaxClassificationShared
	return m
}

// MarshalYAML writes all keys at one level, as in the file.
func (d PolicyData) MarshalYAML() (any, error) { return d.Map(), nil }

// Store is the place of state and records.
type Store struct {
	// URL is empty for SQLite at [DatabasePath].
	URL string `yaml:"url" show:"url"`
	// CommitTimeout bounds one commit, which no caller can cut short.
	CommitTimeout time.Duration `yaml:"commit_timeout"`
	// WarnFreeBytes is the free space below which the daemon warns, and MinFreeBytes the
	// free space below which it takes nothing new; zero disables a limit. ReserveBytes is
	// kept beside the database for the last records, zero keeps none.
	WarnFreeBytes Size `yaml:"warn_free_bytes"`
	MinFreeBytes  Size `yaml:"min_free_bytes"`
	ReserveBytes  Size `yaml:"reserve_bytes"`
}

// Audit configures the contents of records and the folder of their mirror.
type Audit struct {
	// Mirror is empty for [MirrorPath].
	Mirror string `yaml:"mirror" reload:"restart"`
	// Keep is the age at which a record is removed for good; zero keeps all.
	Keep time.Duration `yaml:"keep" reload:"live"`
	// Checkpoints is empty for [CheckpointsPath].
	Checkpoints string `yaml:"checkpoints" reload:"restart"`
	// Content is digest (keyed digest only), held (held texts are also sealed to
	// Recipients) or full (all texts are).
	Content string `yaml:"content" reload:"live"`
	Rotate  Rotate `yaml:"rotate" reload:"restart"`
	// Recipients are the age public keys to which texts are sealed.
	Recipients []string `yaml:"recipients" reload:"live"`
	// Keys is the directory of the daemon's keys, empty for [KeysPath].
	Keys   string `yaml:"keys" reload:"restart"`
	Redact Redact `yaml:"redact" reload:"live"`
	// Sinks are other systems that get the log.
	Sinks []Sink `yaml:"sinks" reload:"restart"`
}

// Redact names what is kept out of records besides credentials and account and identity
// numbers, see internal/audit/redact.
type Redact struct {
	// Members are members of records that are replaced by a keyed digest.
	Members []string `yaml:"members"`
	// Patterns are regular expressions (RE2) whose matches are removed from texts of others.
	Patterns []string `yaml:"patterns" show:"regexp"`
}

// Rotate says when the mirror's file becomes a segment and a new one begins: at the first
// of two limits.
type Rotate struct {
	// Bytes bounds the file, except for a single longer record.
	Bytes Size `yaml:"bytes"`
	// Age bounds the age of the file's first record.
	Age time.Duration `yaml:"age"`
}

// Sessions says how long a session stays active after its last message.
type Sessions struct {
	ActiveWindow time.Duration `yaml:"active_window"`
}

// Metrics are the places of the metrics for Prometheus. Empty is nowhere.
type Metrics struct {
	// Socket is the path of a Unix socket, for the daemon's user alone.
	Socket string `yaml:"socket"`
	// Listen is an address of this machine's loopback with a port, such as 127.0.0.1:9464.
	// Every user of the machine can read there.
	Listen string `yaml:"listen"`
}

// Log says how much is logged and in which format.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `yaml:"level" reload:"live"`
	// Format is json, console, or auto: console if a terminal reads it.
	Format string `yaml:"format" reload:"restart"`
}

// Default returns the configuration that applies if nothing is configured.
func Default() *Config {
	return &Config{
		IPC: IPC{
			MaxLineBytes:             256 << 10,
			MaxQueueBytes:            4 << 20,
			MaxTotalQueueBytes:       64 << 20,
			MaxInFlight:              256,
			MaxConnections:           4096,
			MaxConnectionsPerProcess: 256,
		},
		Hooks:  Hooks{Wait: 250 * time.Millisecond, Answer: 5 * time.Second},
		Health: Health{UnhealthyAfter: 90 * time.Second},
		OCIP: OCIP{
			DefaultClassification: "internal",
			DefaultExchangeType:   "information_query",
			MaxRounds:             3,
			ExpiresAfter:          24 * time.Hour,
			MaxAnnotationBytes:    4096,
			Disclosure:            "suffix",
			DisclosureText:        label.Default,
			Commitment:            Commitment{Match: "word", Enforcement: "enforce", Keywords: "enforce"},
			Chain:                 Chain{Enforcement: "enforce", MaxHops: 24, MaxRevisits: 2, MaxAge: 24 * time.Hour, Window: time.Hour},
			Unknown:               defaultPeople(),
			Person:                defaultPeople(),
			SameOwner:             "enforce",
			LookAlike:             "hold",
			Inbound:               Inbound{Unannotated: "bind"},
			Judge:                 Judge{Timeout: 10 * time.Second, May: JudgeAnnotates},
		},
		Approvals: Approvals{MaxOpen: 100, ExpiresAfter: 24 * time.Hour, Required: 1, Notify: Notify{Desktop: true}},
		Console:   Console{Decide: DecidePasskey},
		Tasks:     defaultTasks(),
		Fleet:     defaultFleet(),
		Policy: Policy{
			Watch:   true,
			Timeout: 100 * time.Millisecond,
			Data: PolicyData{
				Enabled:                 true,
				AllowedExchangeTypes:    exchangeTypes(),
				MaxClassificationShared: "internal",
			},
		},
		Tools:        ToolsSecrets,
		Store:        Store{CommitTimeout: 10 * time.Second, WarnFreeBytes: 1 << 30, MinFreeBytes: 64 << 20, ReserveBytes: 16 << 20},
		Audit:        Audit{Content: "digest", Rotate: Rotate{Bytes: 64 << 20, Age: 24 * time.Hour}},
		Sessions:     Sessions{ActiveWindow: 30 * time.Minute},
		Log:          Log{Level: "info", Format: "auto"},
		DrainTimeout: 10 * time.Second,
	}
}

// defaultAgent is an agent with the default values.
func defaultAgent() Agent {
	return Agent{
		MaxClassificationShared: "internal",
		MinClassification:       "public",
		SupportedExchangeTypes:  exchangeTypes(),
		CanReceiveQueries:       true,
		CanAutoRespond:          true,
	}
}

// defaultContact accepts the least, so that a forgotten line shares nothing.
func defaultContact() Contact {
	return Contact{Kind: "agent", Accepts: []string{"public"}}
}

// InstanceOf returns the instance id of an agent by its name, "" if no agent has it.
func InstanceOf(agents []Agent, name string) string {
	for i := range agents {
		if agents[i].ID == name {
			return agents[i].InstanceID
		}
	}
	return ""
}

// inherit fills missing values of entries from the common ones. It looks at the origin of a
// value and not for zero, so that a written zero stays and is refused.
func (c *Config) inherit() {
	for i := range c.Agents {
		if c.SourceAt(keypath.Path{}.Key("agents").Index(i).Key("max_rounds")) == SourceDefault {
			c.Agents[i].MaxRounds = c.OCIP.MaxRounds
		}
		if c.SourceAt(keypath.Path{}.Key("agents").Index(i).Key("tools")) == SourceDefault {
			c.Agents[i].Tools = c.Tools
		}
		a := &c.Agents[i]
		if c.SourceAt(keypath.Path{}.Key("agents").Index(i).Key("disclosure_text")) == SourceDefault {
			a.DisclosureText = c.OCIP.DisclosureText
		}
		a.DisclosureText = label.Of(a.DisclosureText, a.UserID, directory.RuntimeOf(a.App))
		if c.SourceAt(keypath.Path{}.Key("agents").Index(i).Key("max_classification_unknown")) == SourceDefault {
			c.Agents[i].MaxClassificationUnknown = lower(c.Agents[i].MaxClassificationShared, maxUnknown)
		}
	}
	for app, t := range c.Hooks.Apps {
		at := keypath.Path{}.Key("hooks").Key("apps").Key(app)
		if c.SourceAt(at.Key("wait")) == SourceDefault {
			t.Wait = c.Hooks.Wait
		}
		if c.SourceAt(at.Key("answer")) == SourceDefault {
			t.Answer = c.Hooks.Answer
		}
		c.Hooks.Apps[app] = t
	}
}

// Visible returns the sections for apps, as a tree for [keypath.Lookup] and [keypath.Diff]:
// channels and apps. It is not a copy.
func (c *Config) Visible() map[string]any {
	tree := map[string]any{"channels": map[string]any{}, "apps": map[string]any{}}
	if c.Channels != nil {
		tree["channels"] = c.Channels
	}
	if c.Apps != nil {
		tree["apps"] = c.Apps
	}
	return tree
}
