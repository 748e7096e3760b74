package config

import (
	"errors"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/openclawos/ocipd/internal/api"
	redaction "github.com/openclawos/ocipd/internal/audit/redact"
	"github.com/openclawos/ocipd/internal/audit/sealedtext"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/mask"
	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
)

// The words of the protocol, levels lowest first.
func levels() []string { return []string{"public", "internal", "confidential", "restricted"} }

// Treatments of tool calls about which a runtime asks.
const (
	ToolsRecord  = "record"
	ToolsSecrets = "secrets"
	ToolsEnforce = "enforce"
	ToolsOff     = "off"
)

// ToolModes lists the treatments of tool calls.
func ToolModes() []string { return []string{ToolsSecrets, ToolsRecord, ToolsEnforce, ToolsOff} }

func exchangeTypes() []string {
	return []string{"information_query", "commitment_request", "meeting_scheduling"}
}

// maxSocketPath is the kernel's limit for the path of a Unix socket, in bytes without the
// closing zero.
const maxSocketPath = 107

// maxChainHops bounds the agents in a chain.
const maxChainHops = 64

// maxApprovers bounds the people who must approve one message.
const maxApprovers = 10

// maxNames bounds the agents listed in an error.
const maxNames = 20

// minLineBytes leaves room for the smallest sensible request.
const minLineBytes = 1024

// AdvisedKeep is how long records have to be kept if the EU AI Act requires logs (articles
// 19 and 26: at least six months). The daemon warns of shorter times.
const AdvisedKeep = 183 * 24 * time.Hour

// minKeep prevents a typing error from removing today's evidence.
const minKeep = 24 * time.Hour

// minRotateBytes prevents a segment for every few records.
const minRotateBytes = 4096

// Validate checks a configuration that was not loaded. [Load] has already done
// so. The error is [Errors].
func (c *Config) Validate() error {
	p := &problems{}
	c.check(p)
	return p.err()
}

func (c *Config) check(p *problems) {
	c.checkIPC(p)
	c.checkSecrets(p)
	c.checkAgents(p)
	c.checkDirectory(p)
	c.checkAccess(p)
	c.checkSinks(p)
	c.checkRules(p)
	c.checkMetrics(p)
	c.checkTasks(p)

	key := func(names ...string) keypath.Path {
		var at keypath.Path
		for _, name := range names {
			at = at.Key(name)
		}
		return at
	}
	p.positive(key("hooks", "wait"), c.Hooks.Wait)
	p.positive(key("hooks", "answer"), c.Hooks.Answer)
	for app, t := range c.Hooks.Apps {
		p.app(key("hooks", "apps", app), app)
		p.positive(key("hooks", "apps", app, "wait"), t.Wait)
		p.positive(key("hooks", "apps", app, "answer"), t.Answer)
	}
	p.positive(key("health", "unhealthy_after"), c.Health.UnhealthyAfter)
	p.positive(key("ocip", "expires_after"), c.OCIP.ExpiresAfter)
	p.positive(key("ocip", "chain", "max_age"), c.OCIP.Chain.MaxAge)
	p.positive(key("ocip", "chain", "window"), c.OCIP.Chain.Window)
	c.checkApprovals(p)
	p.positive(key("policy", "timeout"), c.Policy.Timeout)
	p.positive(key("store", "commit_timeout"), c.Store.CommitTimeout)
	c.checkStore(p)
	p.positive(key("sessions", "active_window"), c.Sessions.ActiveWindow)
	if c.DrainTimeout < 0 {
		p.bad(key("drain_timeout"), "want a duration of zero or more, got %s", c.DrainTimeout)
	}

	p.atLeast(key("ocip", "max_rounds"), c.OCIP.MaxRounds, 1)
	p.size(key("ocip", "max_annotation_bytes"), c.OCIP.MaxAnnotationBytes, 1, 0)
	if c.IPC.MaxLineBytes >= minLineBytes && c.OCIP.MaxAnnotationBytes >= c.IPC.MaxLineBytes {
		p.bad(key("ocip", "max_annotation_bytes"), "want less than ipc.max_line_bytes (%s), got %s",
			c.IPC.MaxLineBytes, c.OCIP.MaxAnnotationBytes)
	}
	p.word(key("ocip", "default_classification"), "level", c.OCIP.DefaultClassification, levels()...)
	p.word(key("ocip", "default_exchange_type"), "exchange type", c.OCIP.DefaultExchangeType, exchangeTypes()...)
	p.word(key("tools"), "mode", c.Tools, ToolModes()...)
	p.word(key("ocip", "disclosure"), "place", c.OCIP.Disclosure, "suffix", "prefix", "none")
	p.word(key("ocip", "commitment", "match"), "match", c.OCIP.Commitment.Match, "word", "substring")
	p.word(key("ocip", "commitment", "enforcement"), "enforcement", c.OCIP.Commitment.Enforcement, "enforce", "monitor")
	p.word(key("ocip", "chain", "enforcement"), "enforcement", c.OCIP.Chain.Enforcement, "enforce", "monitor", "off")
	p.between(key("ocip", "chain", "max_hops"), c.OCIP.Chain.MaxHops, 1, maxChainHops)
	p.atLeast(key("ocip", "chain", "max_revisits"), c.OCIP.Chain.MaxRevisits, 1)
	p.words(key("policy", "data", "allowed_exchange_types"), "exchange type", c.Policy.Data.AllowedExchangeTypes, exchangeTypes())
	c.checkPeople(p)
	p.word(key("policy", "data", "max_classification_shared"), "level", c.Policy.Data.MaxClassificationShared, levels()...)
	p.word(key("audit", "content"), "content", c.Audit.Content, "digest", "held", "full")
	if keep := c.Audit.Keep; keep != 0 && keep < minKeep {
		p.bad(key("audit", "keep"), "%s is less than %s; 0s keeps all", keep, minKeep)
	}
	p.size(key("audit", "rotate", "bytes"), c.Audit.Rotate.Bytes, minRotateBytes, 0)
	p.positive(key("audit", "rotate", "age"), c.Audit.Rotate.Age)
	p.word(key("log", "level"), "log level", c.Log.Level, "debug", "info", "warn", "error")
	p.word(key("log", "format"), "format", c.Log.Format, "auto", "json", "console")
}

// maxReserve bounds the unused part of the disk; the last records need far less.
const maxReserve = 1 << 30

func (c *Config) checkStore(p *problems) {
	at := keypath.Path{}.Key("store")
	if url := c.Store.URL; url != "" && databaseFile(url) == "" {
		p.bad(at.Key("url"), "want a file, as a path or behind sqlite:, or nothing, because this daemon keeps its store in SQLite; got %q", mask.URL(url))
	}
	p.size(at.Key("warn_free_bytes"), c.Store.WarnFreeBytes, 0, 0)
	p.size(at.Key("min_free_bytes"), c.Store.MinFreeBytes, 0, 0)
	if warn := c.Store.WarnFreeBytes; warn > 0 && c.Store.MinFreeBytes > warn {
		p.bad(at.Key("min_free_bytes"), "want at most store.warn_free_bytes (%s), so that the warning comes first, got %s", warn, c.Store.MinFreeBytes)
	}
	p.size(at.Key("reserve_bytes"), c.Store.ReserveBytes, 0, maxReserve)
}

// loopback matches a numeric address of this machine's loopback with a port: a name could
// lead elsewhere.
var loopback = regexp.MustCompile(`^(?:127\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})|\[::1\]):(\d{1,5})$`)

// notLoopback says why an address is reachable from elsewhere or invalid, or is "".
func notLoopback(address string) string {
	m := loopback.FindStringSubmatch(address)
	if m == nil {
		return elsewhereReached
	}
	for i, most := range []int{255, 255, 255, maxPort} {
		// A match is digits, or empty.
		switch n, _ := strconv.Atoi(m[i+1]); {
		case n <= most:
		case most == maxPort:
			return "want a port of 1 to 65535"
		default:
			return elsewhereReached
		}
	}
	return ""
}

const (
	maxPort          = 65535
	elsewhereReached = "want an address of the loopback by its number, such as 127.0.0.1:9464 or [::1]:9464"
)

func (c *Config) checkMetrics(p *problems) {
	at := keypath.Path{}.Key("metrics")
	if address := c.Metrics.Listen; address != "" {
		switch why := notLoopback(address); why {
		case "":
		case elsewhereReached:
			p.bad(at.Key("listen"), "%s, got %q; the numbers are served without a password, so for another machine put a proxy in front", why, address)
		default:
			p.bad(at.Key("listen"), "%s, got %q", why, address)
		}
	}
	p.absolute(at.Key("socket"), c.Metrics.Socket)
	if n := len(c.Metrics.Socket); n > maxSocketPath {
		p.bad(at.Key("socket"), "want a path of at most %d bytes, got %d", maxSocketPath, n)
	}
}

// checkSecrets checks the keys about texts in records.
func (c *Config) checkSecrets(p *problems) {
	at := keypath.Path{}.Key("audit")
	to := at.Key("recipients")
	for i, text := range c.Audit.Recipients {
		if _, err := sealedtext.ParseRecipients(text); err != nil {
			p.bad(to.Index(i), "%v", err)
		}
	}
	if len(c.Audit.Recipients) > 1 {
		if _, err := sealedtext.ParseRecipients(c.Audit.Recipients...); err != nil {
			p.bad(to, "%v", err)
		}
	}
	if (c.Audit.Content == "held" || c.Audit.Content == "full") && len(c.Audit.Recipients) == 0 {
		p.bad(at.Key("content"), "%s keeps texts sealed to audit.recipients, and there is none: "+
			"age-keygen -o FILE makes a key and prints the public one (age1…) to list there", c.Audit.Content)
	}
	redacted := at.Key("redact")
	for i, name := range c.Audit.Redact.Members {
		if err := redaction.CheckMember(name); err != nil {
			p.bad(redacted.Key("members").Index(i), "cannot redact %.80q: %v", name, err)
		}
	}
	if n := len(c.Audit.Redact.Patterns); n > redaction.MaxPatterns {
		p.bad(redacted.Key("patterns"), "want at most %d, got %d", redaction.MaxPatterns, n)
	}
	for i, pattern := range c.Audit.Redact.Patterns {
		if err := redaction.CheckPattern(pattern); err != nil {
			p.bad(redacted.Key("patterns").Index(i), "cannot use %.80q: %v", mask.Text(pattern, mask.Regexp), expressionFault(pattern, err))
		}
	}
}

// expressionFault says why an expression is invalid, without its hidden parts.
func expressionFault(expression string, err error) error {
	if fault, ok := errors.AsType[*syntax.Error](err); ok && mask.Text(expression, mask.Regexp) != expression {
		return errors.New(fault.Code.String())
	}
	return err
}

func (c *Config) checkIPC(p *problems) {
	ipc := keypath.Path{}.Key("ipc")
	p.size(ipc.Key("max_line_bytes"), c.IPC.MaxLineBytes, minLineBytes, 0)
	p.size(ipc.Key("max_queue_bytes"), c.IPC.MaxQueueBytes, 1, 0)
	if c.IPC.MaxQueueBytes >= 1 && c.IPC.MaxQueueBytes < c.IPC.MaxLineBytes {
		p.bad(ipc.Key("max_queue_bytes"), "want at least ipc.max_line_bytes (%s), so that one line fits, got %s",
			c.IPC.MaxLineBytes, c.IPC.MaxQueueBytes)
	}
	p.size(ipc.Key("max_total_queue_bytes"), c.IPC.MaxTotalQueueBytes, 1, 0)
	p.atLeast(ipc.Key("max_in_flight"), c.IPC.MaxInFlight, 1)
	p.atLeast(ipc.Key("max_connections"), c.IPC.MaxConnections, 1)
	p.atLeast(ipc.Key("max_connections_per_process"), c.IPC.MaxConnectionsPerProcess, 1)
	for i, uid := range c.IPC.AllowUIDs {
		p.atLeast(ipc.Key("allow_uids").Index(i), uid, 0)
	}
	socket := c.IPC.Socket
	if socket == "" {
		return
	}
	if n := max(len(socket), len(OperatorPath(socket))); n > maxSocketPath {
		p.bad(ipc.Key("socket"), "want a path that leaves room for operator.sock within %d bytes, got %d", maxSocketPath, n)
	}
	if filepath.Clean(socket) == OperatorPath(socket) {
		p.bad(ipc.Key("socket"), "operator.sock is the name of the operators' own socket, want another")
	}
}

func (c *Config) checkAgents(p *problems) {
	ids, instances := map[string]spot{}, map[string]spot{}
	for i, a := range c.Agents {
		at := keypath.Path{}.Key("agents").Index(i)
		p.required(at.Key("id"), a.ID)
		if a.App != "" {
			p.app(at.Key("app"), a.App)
		}
		p.required(at.Key("instance_id"), a.InstanceID)
		p.required(at.Key("user_id"), a.UserID)
		p.required(at.Key("org_unit"), a.OrgUnit)
		p.required(at.Key("tenant_id"), a.TenantID)
		p.unique(at.Key("id"), a.ID, ids, spot{"agents.id", i, -1})
		p.unique(at.Key("instance_id"), a.InstanceID, instances, spot{"agents.instance_id", i, -1})
		if strings.ContainsFunc(a.ID, func(r rune) bool { return strings.ContainsRune(":*", r) || unicode.IsSpace(r) }) {
			p.bad(at.Key("id"), "want no colon, star or space, because session keys hold the id, got %q", a.ID)
		}
		if a.UID != nil {
			p.atLeast(at.Key("uid"), *a.UID, 0)
		}
		p.absolute(at.Key("exe"), a.Exe)
		p.word(at.Key("max_classification_shared"), "level", a.MaxClassificationShared, levels()...)
		p.word(at.Key("min_classification"), "level", a.MinClassification, levels()...)
		if most := slices.Index(levels(), a.MaxClassificationShared); most >= 0 && slices.Index(levels(), a.MinClassification) > most {
			p.bad(at.Key("min_classification"), "want at most max_classification_shared (%s), or nothing could ever leave, got %s",
				a.MaxClassificationShared, a.MinClassification)
		}
		p.words(at.Key("supported_exchange_types"), "exchange type", a.SupportedExchangeTypes, exchangeTypes())
		if len(a.SupportedExchangeTypes) == 0 {
			p.bad(at.Key("supported_exchange_types"), "want at least one, or leave the key out for all")
		}
		p.atLeast(at.Key("max_rounds"), a.MaxRounds, 1)
		a.checkUnknown(p, at)
	}
	for i, a := range c.Agents {
		// People and clients name an agent by either, and one name must not be two agents.
		if first, ok := instances[a.ID]; ok && first.i != i {
			p.taken(keypath.Path{}.Key("agents").Index(i).Key("id"), a.ID, first)
		}
	}

	known := c.agentIDs()
	if c.DefaultAgent != "" {
		known.check(p, keypath.Path{}.Key("default_agent"), c.DefaultAgent)
	}
	routed := map[string]spot{}
	for i, r := range c.Routes {
		at := keypath.Path{}.Key("routes").Index(i)
		p.session(at.Key("session"), r.Session)
		p.unique(at.Key("session"), r.Session, routed, spot{"routes.session", i, -1})
		known.check(p, at.Key("agent"), r.Agent)
	}
}

// checkDirectory checks all entries, those of the directory file last.
func (c *Config) checkDirectory(p *problems) {
	list := c.Listed
	d := &directoryCheck{
		problems:  p,
		agents:    c.agentIDs().set,
		instances: holders{few: make(map[string]spot), value: list.Instance, spot: func(i int) spot { return spot{listingKey + ".instance_id", i, -1} }},
		sessions: holders{few: make(map[string]spot), value: func(n int) string {
			key, _ := list.Session(n)
			return key
		}, spot: func(n int) spot {
			_, i := list.Session(n)
			first, _ := list.SessionsOf(i)
			return spot{listingKey + ".sessions", i, n - first}
		}},
	}
	for i := range c.Agents {
		d.instances.few[c.Agents[i].InstanceID] = spot{"agents.instance_id", i, -1}
	}
	// The path of an entry overwrites the previous entry's.
	d.at = append(make(keypath.Path, 0, 4), keypath.Path{}.Key(directoryKey)...)
	for i := range c.Directory {
		d.entry(i, &c.Directory[i], func(at keypath.Path, value string) {
			d.unique(at, value, d.instances.few, spot{directoryKey + ".instance_id", i, -1})
		}, func(at keypath.Path, j int, value string) {
			d.unique(at, value, d.sessions.few, spot{directoryKey + ".sessions", i, j})
		})
	}
	d.at = append(d.at[:0], keypath.Path{}.Key(listingKey)...)
	d.instances.many.Grow(list.Len())
	d.sessions.many.Grow(list.Sessions())
	for i := range list.Len() {
		e := Contact(list.At(i))
		first, _ := list.SessionsOf(i)
		d.entry(i, &e, func(at keypath.Path, value string) {
			d.instances.enter(p, at, value, i)
		}, func(at keypath.Path, j int, value string) {
			d.sessions.enter(p, at, value, first+j)
		})
	}
	d.members()
	checkFleet(c, p)
}

// holders find the place of a value that no two entries share. Those of the directory file may be
// many, and are kept by their numbers.
type holders struct {
	few   map[string]spot
	many  entries.Table
	value func(n int) string
	spot  func(n int) spot
}

func (h *holders) find(value string) (spot, bool) {
	if first, ok := h.few[value]; ok {
		return first, true
	}
	n, ok := h.many.Find(value, func(n int) bool { return h.value(n) == value })
	if !ok {
		return spot{}, false
	}
	return h.spot(n), true
}

// enter is [problems.unique] for a value of the directory file.
func (h *holders) enter(p *problems, key keypath.Path, value string, n int) {
	if value == "" {
		return
	}
	if first, ok := h.find(value); ok {
		p.taken(key, value, first)
		return
	}
	h.many.Set(value, n, func(n int) bool { return h.value(n) == value })
}

// directoryCheck checks the entries of a directory one after another.
type directoryCheck struct {
	*problems
	// agents are the ids of this daemon's agents.
	agents              map[string]struct{}
	instances, sessions holders
	groups              []groupMember
	at                  keypath.Path
}

// entry checks one entry. The functions check that no other one has its instance id or one of its
// sessions.
func (d *directoryCheck) entry(i int, c *Contact, instance func(at keypath.Path, value string), session func(at keypath.Path, j int, value string)) {
	at := d.at.Item(i)
	d.word(at.Under("kind"), "kind", c.Kind, "agent", kindPerson, kindGroup)
	if c.Kind == "agent" {
		d.required(at.Under("instance_id"), c.InstanceID)
		d.required(at.Under("user_id"), c.UserID)
		d.required(at.Under("org_unit"), c.OrgUnit)
		d.required(at.Under("tenant_id"), c.TenantID)
	}
	if (c.Kind == kindPerson || c.Kind == kindGroup) && len(c.Sessions) == 0 {
		d.bad(at.Under("sessions"), "a %s is known by sessions alone, want at least one", c.Kind)
	}
	d.group(at, c)
	if c.Kind != "agent" {
		d.canonical(at.Under("instance_id"), c.InstanceID)
		d.canonical(at.Under("user_id"), c.UserID)
		d.canonical(at.Under("org_unit"), c.OrgUnit)
		d.canonical(at.Under("tenant_id"), c.TenantID)
	}
	instance(at.Under("instance_id"), c.InstanceID)
	d.words(at.Under("accepts"), "level", c.Accepts, levels())
	if len(c.Accepts) == 0 {
		d.bad(at.Under("accepts"), "want at least one level, or leave the key out for public")
	}
	for j, s := range c.Sessions {
		at := at.Under("sessions").Item(j)
		d.session(at, s)
		d.elsewhere(at, s)
		session(at, j, s)
	}
}

// elsewhere refuses a session of this daemon's own agents: agents describes them, and the
// entry would have no effect.
func (d *directoryCheck) elsewhere(at keypath.Path, session string) {
	own, ok := strings.CutPrefix(session, "agent:")
	if !ok {
		return
	}
	id, _, _ := strings.Cut(own, ":")
	if _, local := d.agents[id]; local {
		d.bad(at, "sessions that begin with agent:%s: are agent %[1]s's own, and this entry would never be used; take the session out", id)
	}
}

func (p *problems) atLeast(key keypath.Path, n, least int) {
	if n < least {
		p.bad(key, "want at least %d, got %d", least, n)
	}
}

func (p *problems) between(key keypath.Path, n, least, most int) {
	if n < least || n > most {
		p.bad(key, "want %d to %d, got %d", least, most, n)
	}
}

func (p *problems) positive(key keypath.Path, d time.Duration) {
	if d <= 0 {
		p.bad(key, "want a duration above zero, got %s", d)
	}
}

// absolute reports a relative path.
func (p *problems) absolute(key keypath.Path, path string) {
	if path != "" && !filepath.IsAbs(path) {
		p.bad(key, "want an absolute path, got %q", path)
	}
}

func (p *problems) required(key keypath.Path, value string) {
	if strings.TrimSpace(value) == "" {
		p.bad(key, "is required")
		return
	}
	p.canonical(key, value)
}

// canonical reports a name with another spelling that looks the same.
func (p *problems) canonical(key keypath.Path, value string) {
	if err := notCanonical(value); err != nil {
		p.bad(key, "%v", err)
	}
}

// notCanonical is [text.Canonical], with a fast path for ASCII names, which are nearly all
// in a long directory.
func notCanonical(value string) error {
	for i := range len(value) {
		if c := value[i]; c < '!' || c > '~' {
			return text.Canonical(value)
		}
	}
	return nil
}

// app reports an id with which no app can register.
func (p *problems) app(key keypath.Path, id string) {
	if strings.TrimSpace(id) != "" && !api.ValidAppID(id) {
		p.bad(key, "want the id of an app, which is a package name such as @acme/telegram, got %q", id)
	}
}

// spot is a value in a list of entries: the entry i, the last key of its path, and the item
// j of a list there, or -1.
type spot struct {
	name string
	i, j int
}

func (s spot) path() keypath.Path {
	names := strings.Split(s.name, ".")
	last := len(names) - 1
	var at keypath.Path
	for _, name := range names[:last] {
		at = at.Key(name)
	}
	at = at.Index(s.i).Key(names[last])
	if s.j >= 0 {
		at = at.Index(s.j)
	}
	return at
}

// unique reports a value that another entry has; "" is no value.
func (p *problems) unique(key keypath.Path, value string, taken map[string]spot, here spot) {
	if value == "" {
		return
	}
	if first, ok := taken[value]; ok {
		p.taken(key, value, first)
		return
	}
	taken[value] = here
}

// taken reports a value that the value at a spot equals.
func (p *problems) taken(key keypath.Path, value string, first spot) {
	by := first.path()
	if at, listed := p.listed.find(by); listed {
		p.bad(key, "%q is taken by %s", value, at.source(true))
		return
	}
	p.bad(key, "%q is taken by %s", value, by)
}

// word reports a value that is not one of the words.
func (p *problems) word(key keypath.Path, what, value string, known ...string) {
	if !slices.Contains(known, value) {
		p.add(key, text.Nearest(value, known, text.Near(value)), "%s: unknown %s %q, want one of %s",
			key, what, value, strings.Join(known, ", "))
	}
}

// words reports list items that are not one of the words, or come twice.
func (p *problems) words(key keypath.Path, what string, values, known []string) {
	for i, value := range values {
		if p.full() {
			return
		}
		p.word(key.Item(i), what, value, known...)
		if slices.Contains(values[:i], value) {
			p.bad(key.Item(i), "%q is listed twice", value)
		}
	}
}

// session reports a text that is neither a session key nor a beginning of one with a star.
func (p *problems) session(key keypath.Path, session string) {
	channel, rest, ok := strings.Cut(session, ":")
	star := strings.IndexByte(session, '*')
	switch {
	case !ok || channel == "" || rest == "":
		p.bad(key, "want a session key such as telegram:123, agent:bob:* or chat:*, got %q", session)
	case notCanonical(session) != nil:
		p.bad(key, "%v", notCanonical(session))
	case star >= 0 && star < max(len(session)-1, len(channel)+1):
		p.bad(key, "want a star at the end only, after the colon, got %q", session)
	}
}
