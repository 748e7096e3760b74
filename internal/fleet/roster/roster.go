// Package roster reads and writes the roster of a fleet: which hosts one tenant has, with which
// keys, and which agent runs on which host.
//
// A roster is a file of JSON lines. The first line names the tenant and the version, each further
// one a host, an agent or a former version, and the last one has an operator's SSH signature (SSHSIG, namespace
// fleet@ocipd) over all bytes before it:
//
//	{"fleet":"acme-corp","version":3}
//	{"host":"laptop-a","epoch":1,"sign":"…","seal":"…","line":"…"}
//	{"agent":"alice","host":"laptop-a","instance_id":"agent-alice-1","user_id":"alice","org_unit":"sales","accepts":["public"]}
//	{"former":"sha256:…"}
//	{"signature":"-----BEGIN SSH SIGNATURE-----\n…"}
//
// The former lines are the digests of the versions before it, the newest last, so that a daemon that has missed
// some of them can see that it has the one from which they come.
//
// A file is valid as a whole or not at all. The package does no I/O: the caller checks the
// signature with [Roster.Signed], and that the version follows the one in force with
// [Roster.Follows].
package roster

import (
	"bytes"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/fleet/frame"
)

// Namespace is the namespace of the signatures of rosters.
const Namespace = "fleet@ocipd"

// The bounds of a roster, in bytes, hosts, agents and former versions.
const (
	MaxBytes  = 8 << 20
	MaxHosts  = 1000
	MaxAgents = 50_000
	maxFormer = 1000
	maxLine   = 16 << 10
	maxName   = 256
)

// Host is a daemon of the fleet. Its keys change together, with its epoch: the frames of an earlier
// epoch count for nothing.
type Host struct {
	Name string `json:"host"`
	// Epoch grows by at least one with each new pair of keys, from 1.
	Epoch int `json:"epoch"`
	// Sign is the Ed25519 key that signs its frames, and Seal the X25519 key to which frames for it
	// are sealed. Each has 32 bytes.
	Sign []byte `json:"sign"`
	Seal []byte `json:"seal"`
	// Line is the Ed25519 key by which its line logs in to a broker, nil for none. It proves nothing
	// to another host, and may change without a new epoch.
	Line []byte `json:"line,omitzero"`
}

// Agent is an agent of a host. Its tenant is the fleet's.
type Agent struct {
	ID         string `json:"agent"`
	Host       string `json:"host"`
	InstanceID string `json:"instance_id"`
	UserID     string `json:"user_id"`
	OrgUnit    string `json:"org_unit"`
	// Accepts are the levels that the agent accepts, "public" alone if there are none.
	Accepts []string `json:"accepts,omitzero"`
}

// Roster is a valid roster. It never changes once it is read.
type Roster struct {
	Tenant  string
	Version int
	Hosts   []Host
	Agents  []Agent

	// signed are the bytes under the signature, digest their SHA-256 with those of the signature.
	signed    []byte
	signature string
	digest    string
	hosts     map[string]*Host
	// former are the digests of the versions before it, the newest last.
	former []string
	// lines are the lines of the agents.
	lines []int
}

// LineError is the reason that a roster is refused, and the line that is wrong, from 1.
type LineError struct {
	Line    int
	Problem string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

type head struct {
	Tenant  string `json:"fleet"`
	Version int    `json:"version"`
}

type former struct {
	Digest string `json:"former"`
}

type tail struct {
	Signature string `json:"signature"`
}

// Parse reads a roster with its signature, which it does not check. The error is a [*LineError].
func Parse(data []byte) (*Roster, error) {
	if len(data) > MaxBytes {
		return nil, &LineError{1, fmt.Sprintf("the file has more than %d bytes", MaxBytes)}
	}
	r := &Roster{hosts: make(map[string]*Host)}
	number, rest := 0, data
	for p := (parser{Roster: r, agents: map[string]int{}, instances: map[string]int{}, keys: map[string]int{}}); len(rest) > 0; {
		number++
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if !ended {
			return nil, &LineError{number, "the line does not end: the file was cut off"}
		}
		if r.signature != "" {
			return nil, &LineError{number, "there is a line behind the signature"}
		}
		if err := p.line(number, line); err != nil {
			return nil, &LineError{number, err.Error()}
		}
		if r.signature == "" {
			r.signed = data[:len(data)-len(after)]
		}
		rest = after
	}
	if r.signature == "" {
		return nil, &LineError{number + 1, "the roster has no signature; sign it with `ocipd fleet`"}
	}
	sum := sha256.Sum256(data)
	r.digest = "sha256:" + hex.EncodeToString(sum[:])
	return r, nil
}

// parser reads the lines of a roster. The maps have the lines of names and keys.
type parser struct {
	*Roster
	agents, instances, keys map[string]int
}

func (p *parser) line(number int, line []byte) error {
	if number == 1 {
		var h head
		if err := decode(line, &h, "fleet", "version"); err != nil {
			return err
		}
		p.Tenant, p.Version = h.Tenant, h.Version
		if h.Version < 1 {
			return fmt.Errorf("version: want a number from 1, got %d", h.Version)
		}
		return name("fleet", h.Tenant)
	}
	switch kindOf(line) {
	case "agent":
		return p.agent(number, line)
	case "host":
		return p.host(number, line)
	case "former":
		var f former
		if err := decode(line, &f); err != nil {
			return err
		}
		if !digestForm.MatchString(f.Digest) {
			return fmt.Errorf("former: want the digest of a roster, got %q", text.Clip(f.Digest, maxName))
		}
		if len(p.former) == maxFormer {
			return fmt.Errorf("there are more than %d former versions", maxFormer)
		}
		p.former = append(p.former, f.Digest)
		return nil
	case "signature":
		var t tail
		if err := decode(line, &t, "signature"); err != nil {
			return err
		}
		if t.Signature == "" {
			return errors.New("signature: it is empty")
		}
		p.signature = t.Signature
		return nil
	}
	return errors.New("it is no JSON object whose first member is host, agent, former or signature")
}

func (p *parser) host(number int, line []byte) error {
	var h Host
	if err := decode(line, &h, "host", "epoch", "sign", "seal"); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	if p.hosts[h.Name] != nil {
		return fmt.Errorf("host: %s is listed already", h.Name)
	}
	for member, key := range map[string][]byte{"sign": h.Sign, "seal": h.Seal, "line": h.Line} {
		if key == nil {
			continue
		}
		if before, used := p.keys[string(key)]; used {
			return fmt.Errorf("%s: line %d has the same key", member, before)
		}
		p.keys[string(key)] = number
	}
	if len(p.Hosts) == MaxHosts {
		return fmt.Errorf("there are more than %d hosts", MaxHosts)
	}
	p.Hosts = append(p.Hosts, h)
	p.hosts[h.Name] = &h
	return nil
}

// Fingerprints are the SHA-256 of each key of a host, by which two people compare them: a line for each.
func (h *Host) Fingerprints() string {
	var b strings.Builder
	for _, key := range []struct {
		name  string
		bytes []byte
	}{{"sign", h.Sign}, {"seal", h.Seal}, {"line", h.Line}} {
		if key.bytes != nil {
			sum := sha256.Sum256(key.bytes)
			fmt.Fprintf(&b, "  %s SHA256:%s\n", key.name, base64.RawStdEncoding.EncodeToString(sum[:]))
		}
	}
	return b.String()
}

// Account names the tenant in the configuration of a broker, as [Host.Mailbox] names a host.
func (r *Roster) Account() string { return "T_" + hashed([]byte(r.Tenant)) }

// hashed is a name that contains nothing chosen.
func hashed(b []byte) string {
	sum := sha256.Sum256(b)
	return base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// Mailbox names the host in the subjects of a broker: 26 characters of the SHA-256 of its line's key in
// base32, so that no chosen name gets into a subject. It is empty for a host without such a key.
func (h *Host) Mailbox() string {
	if h.Line == nil {
		return ""
	}
	return hashed(h.Line)
}

// check checks the members of a host.
func (h *Host) check() error {
	if !frame.IsHost(h.Name) {
		return fmt.Errorf("host: want 1 to 63 small letters, digits and -, got %q", text.Clip(h.Name, maxName))
	}
	if h.Epoch < 1 {
		return fmt.Errorf("epoch: want a number from 1, got %d", h.Epoch)
	}
	if len(h.Sign) != 32 {
		return fmt.Errorf("sign: want an Ed25519 key of 32 bytes in base64, got %d bytes", len(h.Sign))
	}
	if h.Line != nil && len(h.Line) != 32 {
		return fmt.Errorf("line: want an Ed25519 key of 32 bytes in base64, got %d bytes", len(h.Line))
	}
	// An all-zero point or one of small order makes the shared secret known to all: RFC 7748, 6.1.
	if _, err := ecdh.X25519().NewPublicKey(h.Seal); err != nil {
		return fmt.Errorf("seal: want an X25519 key of 32 bytes in base64, got %d bytes", len(h.Seal))
	}
	return nil
}

// digestForm is the form of [Roster.Digest].
var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

var agentID = regexp.MustCompile(`^[^\s:*]+$`)

func (p *parser) agent(number int, line []byte) error {
	var a Agent
	if err := decode(line, &a, "agent", "host", "instance_id", "user_id", "org_unit"); err != nil {
		return err
	}
	switch {
	case !agentID.MatchString(a.ID):
		return fmt.Errorf("agent: want an id without colons, stars and spaces, got %q", text.Clip(a.ID, maxName))
	case p.hosts[a.Host] == nil:
		return fmt.Errorf("host: no line before this one has host %q", text.Clip(a.Host, maxName))
	case p.agents[a.ID] > 0:
		return fmt.Errorf("agent: line %d has agent %s too", p.agents[a.ID], a.ID)
	case p.instances[a.InstanceID] > 0:
		return fmt.Errorf("instance_id: line %d has instance %s too", p.instances[a.InstanceID], a.InstanceID)
	case len(p.Agents) == MaxAgents:
		return fmt.Errorf("there are more than %d agents", MaxAgents)
	}
	for _, one := range [...]struct{ member, value string }{{"agent", a.ID}, {"instance_id", a.InstanceID}, {"user_id", a.UserID}, {"org_unit", a.OrgUnit}} {
		if err := name(one.member, one.value); err != nil {
			return err
		}
	}
	for i, level := range a.Accepts {
		if !slices.Contains(levels[:], level) || slices.Contains(a.Accepts[:i], level) {
			return fmt.Errorf("accepts: want each of %s at most once, got %q", strings.Join(levels[:], ", "), text.Clip(level, maxName))
		}
	}
	p.agents[a.ID], p.instances[a.InstanceID] = number, number
	p.Agents, p.lines = append(p.Agents, a), append(p.lines, number)
	return nil
}

// levels are the names of the levels that an agent can accept.
var levels = [...]string{"public", "internal", "confidential", "restricted"}

// name refuses a name that is not in the spelling for ids.
func name(member, value string) error {
	if value == "" || len(value) > maxName {
		return fmt.Errorf("%s: want 1 to %d bytes, got %d", member, maxName, len(value))
	}
	if err := text.Canonical(value); err != nil {
		return fmt.Errorf("%s: %+q is not spelled as ids are: %w", member, value, err)
	}
	return nil
}

// kindOf returns the name of the first member of an object, "" for anything else.
func kindOf(line []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(line))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '"' {
		return ""
	}
	return t.String()
}

// decode reads an object without unknown and doubled members. Needed are the members that it must
// have.
func decode(line []byte, into any, needed ...string) error {
	if len(line) > maxLine {
		return fmt.Errorf("it has more than %d bytes", maxLine)
	}
	if err := json.Unmarshal(line, into, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(line, &members); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	for _, member := range needed {
		if _, there := members[member]; !there {
			return fmt.Errorf("%s: it is missing", member)
		}
	}
	return nil
}

// Write returns the lines of a roster without the signature: the bytes to sign. Formers are the digests of the
// versions before it, see [Roster.History].
func Write(tenant string, version int, hosts []Host, agents []Agent, formers ...string) ([]byte, error) {
	lines := []any{head{tenant, version}}
	for i := range hosts {
		lines = append(lines, hosts[i])
	}
	for i := range agents {
		lines = append(lines, agents[i])
	}
	for _, digest := range formers {
		lines = append(lines, former{digest})
	}
	var b bytes.Buffer
	for _, line := range lines {
		one, err := Line(line)
		if err != nil {
			return nil, err
		}
		b.Write(one)
	}
	return b.Bytes(), nil
}

// Line returns one line of a roster.
func Line(value any) ([]byte, error) {
	one, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("cannot write a line of the roster: %w", err)
	}
	return append(one, '\n'), nil
}

// Sign adds an armored signature to the lines of [Write]. The result is parsed again, so that
// nobody distributes a roster that its readers refuse.
func Sign(lines []byte, armored string) ([]byte, error) {
	last, err := Line(tail{armored})
	if err != nil {
		return nil, err
	}
	whole := append(slices.Clip(lines), last...)
	if _, err := Parse(whole); err != nil {
		return nil, err
	}
	return whole, nil
}

// Lines reads the lines that a host prints when it joins: its own, and then those of its agents. A
// line of another host, or of an agent of one, refuses them all: it would give that host other keys.
// The error is a [*LineError].
func Lines(data []byte) (Host, []Agent, error) {
	r := &Roster{hosts: make(map[string]*Host)}
	p := parser{Roster: r, agents: map[string]int{}, instances: map[string]int{}, keys: map[string]int{}}
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		var err error
		switch kind := kindOf(line); {
		case kind == "host" && i == 0:
			err = p.host(1, line)
		case kind == "host":
			err = errors.New("host: line 1 names the host, and lines of a host name no second one")
		case kind == "agent":
			err = p.agent(i+1, line)
		default:
			err = errors.New("it is no JSON object whose first member is host or agent")
		}
		if err != nil {
			return Host{}, nil, &LineError{i + 1, err.Error()}
		}
	}
	return r.Hosts[0], r.Agents, nil
}

// Signed reports why a roster does not count, or nil: verify checks its armored signature over the
// bytes before it. The error is a [*LineError].
func (r *Roster) Signed(verify func(armored, text []byte) error) error {
	if err := verify([]byte(r.signature), r.signed); err != nil {
		return &LineError{bytes.Count(r.signed, []byte("\n")) + 1, "signature: " + err.Error()}
	}
	return nil
}

// Digest is the SHA-256 of the file, as "sha256:" and hexadecimal digits.
func (r *Roster) Digest() string { return r.digest }

// History lists the digests of this version and of those before it, the newest last, for the next version.
// The zero value comes before the first one, and has none.
func (r *Roster) History() []string {
	if r.Version == 0 {
		return nil
	}
	all := append(slices.Clone(r.former), r.digest)
	return all[max(0, len(all)-maxFormer):]
}

// Follows returns the reason that a roster may not replace the one in force, or nil: it is of another tenant,
// or its version is neither the next nor made from that one. The same file again is no replacement.
func (r *Roster) Follows(inForce *Roster) error {
	switch {
	case inForce == nil || r.digest == inForce.digest:
		return nil
	case r.Tenant != inForce.Tenant:
		return &LineError{1, fmt.Sprintf("fleet: the roster in force is of tenant %s", inForce.Tenant)}
	case r.Version > inForce.Version && slices.Contains(r.former, inForce.digest):
		return nil
	case r.Version != inForce.Version+1:
		return &LineError{1, fmt.Sprintf("version: want %d, the next of the version in force, or a later one that was made from it, got %d", inForce.Version+1, r.Version)}
	}
	return nil
}

// Line returns the line of an agent by its index in Agents.
func (r *Roster) Line(agent int) int { return r.lines[agent] }

// Host returns a host by its name, nil if there is none.
func (r *Roster) Host(name string) *Host { return r.hosts[name] }
