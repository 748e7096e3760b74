package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/consoleapi"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"golang.org/x/crypto/ssh"
)

const (
	// enrolTime is how long the terminal's code is good, and maxTries how often a page may try it.
	enrolTime = 5 * time.Minute
	maxTries  = 3
	// maxPasskeys and maxPasskeyFile bound the file of passkeys.
	maxPasskeys    = 256
	maxPasskeyFile = 1 << 20
	maxCredential  = 1023 // bytes of a credential's id (WebAuthn, 4)
)

// passkeys is the file of the enrolled passkeys. The list of signers says which of them count.
type passkeys struct {
	Passkeys []passkey `json:"passkeys"`
}

// passkey is one of them: the id by which a browser finds it, and the key as a line of allowed
// signers has it.
type passkey struct {
	CredentialID bytes64 `json:"credentialId"`
	Key          string  `json:"key"`
}

// readPasskeys reads the file. None is there before the first passkey.
func readPasskeys(path string) (p passkeys, err error) {
	text, err := durable.ReadUpTo(path, maxPasskeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = parsePasskeys(text, &p)
	}
	if err != nil {
		return p, fmt.Errorf("cannot read the enrolled passkeys: %w", err)
	}
	return p, nil
}

func parsePasskeys(text []byte, p *passkeys) error {
	if err := json.Unmarshal(text, p, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	for _, k := range p.Passkeys {
		if _, err := k.public(); err != nil || len(k.CredentialID) == 0 {
			return fmt.Errorf("the passkey %q is none", k.Key)
		}
	}
	return nil
}

func (k passkey) public() (ssh.PublicKey, error) {
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(k.Key))
	if err == nil && len(rest) > 0 {
		err = errors.New("several keys")
	}
	return key, err
}

// find returns the key of a credential.
func (p passkeys) find(id []byte) (ssh.PublicKey, error) {
	for _, k := range p.Passkeys {
		if slices.Equal(k.CredentialID, id) {
			return k.public()
		}
	}
	return nil, errNotEnrolled
}

// credential is an enrolled passkey for a browser, with the name under which decisions by it are
// recorded. The name is empty if the list of signers does not have the key.
type credential struct {
	ID   bytes64 `json:"id"`
	Name string  `json:"name,omitzero"`
}

// credentials returns the enrolled passkeys.
func (c *Console) credentials() ([]credential, error) {
	keys, err := readPasskeys(c.o.Passkeys)
	if err != nil {
		return nil, err
	}
	list := &sshsig.Signers{}
	if path := c.o.Signers(); path != "" && len(keys.Passkeys) > 0 {
		if list, err = (sshsig.File{Path: path, Key: "approvals.allowed_signers"}).Load(); err != nil {
			return nil, err
		}
	}
	all := make([]credential, 0, len(keys.Passkeys))
	for _, k := range keys.Passkeys {
		key, err := k.public()
		if err != nil {
			return nil, err
		}
		all = append(all, credential{k.CredentialID, list.NameOf(key, api.ApprovalNamespace)})
	}
	return all, nil
}

// names are those under which the decisions of the enrolled passkeys are recorded.
func (c *Console) names() []string {
	names := []string{}
	all, err := c.credentials()
	if err != nil {
		c.o.Log.Warn("cannot name the enrolled passkeys", "error", err)
	}
	for _, one := range all {
		if one.Name != "" && !slices.Contains(names, one.Name) {
			names = append(names, one.Name)
		}
	}
	return names
}

// add writes the file with one more passkey.
func (p passkeys) add(path string, k passkey) error {
	if len(p.Passkeys) >= maxPasskeys {
		return fmt.Errorf("%d passkeys are enrolled: remove some from %s", maxPasskeys, path)
	}
	others := slices.DeleteFunc(slices.Clone(p.Passkeys), func(old passkey) bool { return slices.Equal(old.CredentialID, k.CredentialID) })
	text, err := json.Marshal(passkeys{Passkeys: append(others, k)})
	if err != nil {
		return err
	}
	return durable.Replace(path, ".part", 0o600, append(text, '\n'))
}

// enrolments is the one enrolment that a terminal waits for, if any.
type enrolments struct {
	now func() time.Time
	mu  sync.Mutex
	one *enrolment
}

// enrolment waits for a page that knows the terminal's code.
type enrolment struct {
	code  string
	ends  time.Time
	tries int
	// key takes the page's key; the terminal has then written a line, or said why not.
	key  chan enrolled
	over chan struct{}
}

// enrolled is a key of a page, and the place for the terminal's answer.
type enrolled struct {
	key    string
	answer chan written
}

// written is what the terminal has done.
type written struct {
	Added
	Error string `json:"error,omitzero"`
}

// Added is a line that was added to the list of signers, and the list's SHA-256 afterwards
// ("sha256:…").
type Added struct {
	Line   string `json:"line,omitzero"`
	Digest string `json:"digest,omitzero"`
}

// begin begins an enrolment, and ends another one.
func (e *enrolments) begin() (*enrolment, error) {
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return nil, err
	}
	one := &enrolment{code: fmt.Sprintf("%06d", n), ends: e.now().Add(enrolTime), key: make(chan enrolled), over: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop()
	e.one = one
	return one, nil
}

// drop ends the enrolment. It is called with the lock.
func (e *enrolments) drop() {
	if e.one != nil {
		close(e.one.over)
		e.one = nil
	}
}

// end ends an enrolment, if it has not ended.
func (e *enrolments) end(one *enrolment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.one == one {
		e.drop()
	}
}

// take returns the enrolment with a code. A code is good for one page, and the third wrong one ends
// the enrolment.
func (e *enrolments) take(code string) (*enrolment, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one := e.one
	switch {
	case one == nil, !e.now().Before(one.ends):
		e.drop()
		return nil, errors.New("no terminal waits for a passkey: run ocipd console enrol")
	case subtle.ConstantTimeCompare([]byte(code), []byte(one.code)) == 1:
		e.one = nil
		return one, nil
	}
	if one.tries++; one.tries >= maxTries {
		e.drop()
		return nil, errors.New("the code is wrong, and was wrong too often: run ocipd console enrol again")
	}
	return nil, errors.New("the code is wrong: type the one that the terminal shows")
}

// enrolKey hands a page's passkey to the terminal, which adds it to the list of signers.
func (c *Console) enrolKey(q *request) (answer, *refusal) {
	p, no := parse[struct {
		Code           string  `json:"code" is:"required max=16"`
		SPKI           bytes64 `json:"spki"`
		CredentialID   bytes64 `json:"credentialId"`
		ClientDataJSON bytes64 `json:"clientDataJSON,omitzero"`
	}](q.body)
	if no != nil {
		return nil, no
	}
	bad := func(err error) (answer, *refusal) {
		return nil, refuse(http.StatusBadRequest, api.InvalidParams, "%v", err)
	}
	key, err := sshsig.PasskeyOf(p.SPKI, c.o.Place.Host)
	if err != nil {
		return bad(err)
	}
	if len(p.CredentialID) == 0 || len(p.CredentialID) > maxCredential {
		return bad(fmt.Errorf("credentialId: want 1 to %d bytes", maxCredential))
	}
	one, err := c.enrol.take(p.Code)
	if err != nil {
		return nil, refuse(http.StatusUnauthorized, api.Forbidden, "%v", err)
	}
	defer close(one.over)
	given := enrolled{key: key.Type() + " " + base64.StdEncoding.EncodeToString(key.Marshal()), answer: make(chan written, 1)}
	late := time.NewTimer(enrolTime)
	defer late.Stop()
	gone := func() (answer, *refusal) {
		return nil, refuse(http.StatusConflict, api.Conflict, "the terminal does not answer: run ocipd console enrol again")
	}
	select {
	case one.key <- given:
	case <-late.C:
		return gone()
	case <-q.Context().Done():
		return gone()
	}
	select {
	case done := <-given.answer:
		if done.Error != "" {
			return nil, refuse(http.StatusConflict, api.Conflict, "the terminal has not added the key: %s", done.Error)
		}
		keys, err := readPasskeys(c.o.Passkeys)
		if err == nil {
			err = keys.add(c.o.Passkeys, passkey{p.CredentialID, given.key})
		}
		if err != nil {
			return nil, refuse(http.StatusInternalServerError, api.InternalError, "the list of signers has the key, and the console has not: %v", err)
		}
		c.report(q.Context(), consoleapi.ConsoleReportParams{Event: consoleapi.Enrolled, Process: q.process, Digest: done.Digest, Fingerprint: ssh.FingerprintSHA256(key)})
		return map[string]any{"line": done.Line, "signers": c.names()}, nil
	case <-late.C:
	case <-q.Context().Done():
	}
	return gone()
}
