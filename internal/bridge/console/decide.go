package console

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/base/text"
)

// decision is what a person decides about a request.
type decision struct {
	ApprovalID string      `json:"approvalId" is:"required max=256"`
	Decision   string      `json:"decision" is:"required words=approve|deny|takeover|resolve|request_changes"`
	Note       string      `json:"note,omitzero" is:"max=1024"`
	Content    string      `json:"content,omitzero"`
	Exchange   *api.Bounds `json:"exchange,omitzero"`
	// Digest is the digest that the person saw with the request. It can be absent if only the text is
	// asked for.
	Digest string `json:"digest,omitzero" is:"max=256"`
}

// made is a decision that is made, with the answer of a passkey.
type made struct {
	decision
	Assertion *asserted `json:"assertion,omitzero"`
}

// asserted is a browser's answer in base64url.
type asserted struct {
	CredentialID      bytes64 `json:"credentialId"`
	ClientDataJSON    bytes64 `json:"clientDataJSON"`
	AuthenticatorData bytes64 `json:"authenticatorData"`
	Signature         bytes64 `json:"signature"`
}

// bytes64 are bytes in base64url without padding, as WebAuthn writes them.
type bytes64 []byte

// UnmarshalText reads them. There is one way to write them.
func (b *bytes64) UnmarshalText(text []byte) (err error) {
	*b, err = base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	return err
}

// MarshalText writes them.
func (b bytes64) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

// texts returns the text that is signed for a decision, made as the daemon makes it.
func (c *Console) texts(q *request) (answer, *refusal) {
	p, no := parse[decision](q.body)
	if no != nil {
		return nil, no
	}
	a, signed, no, err := c.look(q.Context(), p)
	if no != nil || err != nil {
		return orFailed(no, err)
	}
	credentials, err := c.credentials()
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, api.InternalError, "%v", err)
	}
	return map[string]any{
		"text": signed, "words": text.Proquints(a.Digest), "digest": a.Digest, "challenge": bytes64(sshsig.Challenge([]byte(signed), api.ApprovalNamespace)),
		"credentials": credentials, "command": commandFor(p), "signature": a.SignatureRequired, "click": !a.SignatureRequired && c.o.Clicks(), "rpId": c.o.Place.Host,
	}, nil
}

func orFailed(no *refusal, err error) (answer, *refusal) {
	if no != nil {
		return nil, no
	}
	return failed(err)
}

// look reads the request that a decision is about, and makes the text that is signed.
func (c *Console) look(ctx context.Context, p *decision) (a api.Approval, signed string, no *refusal, err error) {
	if err := c.calls.call(ctx, "approval.get", api.ApprovalParams{ApprovalID: p.ApprovalID}, &a); err != nil {
		return a, "", nil, err
	}
	if a.ApprovalID != p.ApprovalID {
		return a, "", refuse(http.StatusBadRequest, api.NotFound, "the daemon answers about another request"), nil
	}
	if p.Digest != "" && p.Digest != a.Digest {
		return a, "", nil, api.Obstacle{Digest: a.Digest, Changed: a.Changed}.Conflict(api.ApprovalStale, "it is no longer what you saw: look again")
	}
	signed, err = a.TextToSign(p.Decision, p.Content, p.Note, p.Exchange)
	if err != nil {
		return a, "", refuse(http.StatusBadRequest, api.InvalidParams, "%v", err), nil
	}
	return a, signed, nil, nil
}

// commandFor is the command for the same decision.
func commandFor(p *decision) string {
	words := []string{"ocipd", "approvals", strings.ReplaceAll(p.Decision, "_", "-"), quoted(p.ApprovalID)}
	if p.Note != "" {
		words = append(words, "--note", quoted(p.Note))
	}
	if p.Content != "" {
		words = append(words, "--content", quoted(p.Content))
	}
	if p.Exchange != nil {
		words = append(words, "--exchange")
	}
	return strings.Join(words, " ")
}

// errNotEnrolled means that this console has no such passkey.
var errNotEnrolled = errors.New("the passkey is not enrolled here: ocipd console enrol")

// decide makes a decision.
func (c *Console) decide(q *request) (answer, *refusal) {
	p, no := parse[made](q.body)
	if no != nil {
		return nil, no
	}
	if p.Digest == "" {
		return nil, &refusal{http.StatusBadRequest, api.AsError(api.Invalid([]api.FieldError{{Path: "digest", Message: "required: the digest of what the person saw"}}))}
	}
	a, signed, no, err := c.look(q.Context(), &p.decision)
	if no != nil || err != nil {
		return orFailed(no, err)
	}
	params := api.ApprovalResolveParams{ApprovalID: p.ApprovalID, Decision: p.Decision, Digest: p.Digest, Note: p.Note, Content: p.Content, Exchange: p.Exchange}
	// Without a signature, the daemon refuses, unless it is told that a click will do.
	if p.Assertion != nil {
		if params.Signature, err = c.signature(p.Assertion, signed); err != nil {
			return failed(api.Errorf(api.Unauthorized, "%v", err))
		}
	}
	var result api.ApprovalResolveResult
	if err := c.calls.callFor(q.Context(), q.process, "approval.resolve", params, &result); err != nil {
		return failed(err)
	}
	return map[string]any{"result": result, "said": describe.Decided(a.Kind, result)}, nil
}

// signature packs the answer of a passkey.
func (c *Console) signature(a *asserted, signed string) (string, error) {
	keys, err := readPasskeys(c.o.Passkeys)
	if err != nil {
		return "", err
	}
	key, err := keys.find(a.CredentialID)
	if err != nil {
		return "", err
	}
	answer := sshsig.Assertion{ClientData: a.ClientDataJSON, AuthenticatorData: a.AuthenticatorData, Signature: a.Signature}
	armored, err := answer.Sign(key, []byte(signed), api.ApprovalNamespace)
	return string(armored), err
}
