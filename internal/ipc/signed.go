package ipc

import (
	"context"
	"crypto/rand"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// challenge begins a signed call: it makes the nonce for the connection's next one. Only the
// connection knows the nonce, so that no signature is valid on another connection, after a restart,
// or twice.
func (c *conn) challenge(method string) (api.Challenge, error) {
	m, known := c.server.table[faceOperator][method]
	if !known {
		return api.Challenge{}, api.Errorf(api.NotFound, "there is no method %.64q of operators; kernel.methods lists them", method)
	}
	switch {
	case !c.server.callers.signs():
		return api.Challenge{}, nil
	case m.Signing != api.Signed:
		return api.Challenge{SignatureRequired: m.Signing == api.SignedParams}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nonce = rand.Text() + rand.Text()
	return api.Challenge{SignatureRequired: true, Nonce: c.nonce}, nil
}

// maxBehalf bounds the name of a process, in bytes.
const maxBehalf = 64

// takesMembers refuses a signature that nobody would check, and a process that nobody would judge.
func (m *Method) takesMembers(c *conn, r *wire.Request) error {
	switch {
	case r.Behalf != "" && c.face == faceOperator && (m.Pace != Patient || c.server.callers.behalf == nil):
		return api.Errorf(api.InvalidRequest, "%s is not called on behalf of another process: leave behalf out", m.Name)
	case len(r.Behalf) > maxBehalf && c.face == faceOperator:
		return api.Errorf(api.InvalidRequest, "behalf is longer than %d bytes", maxBehalf)
	case r.Signature == "" || c.face != faceOperator:
		return nil
	case m.Signing == api.SignedParams:
		return api.Errorf(api.InvalidRequest, "the signature of %s belongs into its params", m.Name)
	case m.Signing != api.Signed:
		return api.Errorf(api.InvalidRequest, "%s takes no signature: leave it out", m.Name)
	case len(r.Signature) > api.MaxSignature:
		return api.Errorf(api.InvalidRequest, "the signature is longer than %d bytes", api.MaxSignature)
	}
	return nil
}

// callerOf returns the context of an operator's call, which has the process that the caller asks for
// and the signer, if there are any.
func callerOf(ctx context.Context, c *conn, r *wire.Request, m *Method) (context.Context, error) {
	if r.Behalf != "" {
		who, err := c.server.callers.behalf(c.peer, r.Behalf, m.Name, m.Signing)
		if err != nil {
			return ctx, err
		}
		ctx = caller.With(ctx, who)
	}
	if m.Signing != api.Signed {
		return ctx, nil
	}
	return c.signed(ctx, r, m)
}

// signed identifies the signer of a call, and uses up the connection's nonce.
func (c *conn) signed(ctx context.Context, r *wire.Request, m *Method) (context.Context, error) {
	c.mu.Lock()
	nonce := c.nonce
	c.nonce = ""
	c.mu.Unlock()
	text := ""
	if nonce != "" {
		var err error
		if text, err = api.SignedCall(m.Name, nonce, r.Params); err != nil {
			return ctx, api.Errorf(api.InvalidParams, "%v", err)
		}
	}
	who, err := c.server.callers.vouch(caller.Of(ctx, c.peer), m.Name, text, r.Signature)
	if err != nil {
		return ctx, err
	}
	return caller.With(ctx, who), nil
}
