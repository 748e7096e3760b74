package a2aproxy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Channel is the channel of sessions with peers. A session is a2a:HOST, with the port unless
// it is the scheme's own and the path if there is one, such as a2a:agents.example.com/billing.
// A peer that nothing proves has a session of another form, a2a:unverified:HOST, so that no
// entry of the directory about a proven peer matches it.
const Channel = "a2a"

const unverified = "unverified:"

// Session is the session of the peer at an address, if its identity is proven or not.
func Session(u *url.URL, proven bool) string {
	name := addressOf(u) + strings.TrimSuffix(u.EscapedPath(), "/")
	if !proven {
		name = unverified + name
	}
	return Channel + ":" + name
}

// sessionOf is the session of the other side of a request. The peer that is called is proven
// by its TLS certificate or its card; a peer that calls, by its client certificate.
func (p *Proxy) sessionOf(r *http.Request, c *card) string {
	if !p.o.Incoming {
		return p.called(c)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		if names := r.TLS.VerifiedChains[0][0].DNSNames; len(names) > 0 {
			return Channel + ":" + strings.ToLower(names[0])
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return Channel + ":" + unverified + host
}

// called is the session of the peer that is called.
func (p *Proxy) called(c *card) string {
	proven := p.o.Target.Scheme == "https"
	if p.o.PeerKey != nil {
		proven = c.proven
	}
	return Session(p.o.Target, proven)
}

// Key is the public key with which a peer signs its card.
type Key struct {
	id  string
	key crypto.PublicKey
}

// ParseKey reads a public key: PEM (PUBLIC KEY or CERTIFICATE), or a JSON Web Key.
func ParseKey(text []byte) (*Key, error) {
	if block, _ := pem.Decode(text); block != nil {
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			return &Key{key: c.PublicKey}, nil
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		return &Key{key: key}, nil
	}
	n, err := parse(text)
	if err != nil {
		return nil, errors.New("it is neither PEM nor a JSON Web Key")
	}
	k := &Key{id: textOf(n, "kid")}
	x, errX := base64.RawURLEncoding.DecodeString(textOf(n, "x"))
	y, errY := base64.RawURLEncoding.DecodeString(textOf(n, "y"))
	switch kind := textOf(n, "kty") + " " + textOf(n, "crv"); kind {
	case "OKP Ed25519":
		if errX != nil || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("x is no key")
		}
		k.key = ed25519.PublicKey(x)
	case "EC P-256":
		if errX != nil || errY != nil || len(x) != 32 || len(y) != 32 {
			return nil, errors.New("x and y are no key")
		}
		key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		if err != nil {
			return nil, err
		}
		k.key = key
	case "RSA ":
		m, errM := base64.RawURLEncoding.DecodeString(textOf(n, "n"))
		e, errE := base64.RawURLEncoding.DecodeString(textOf(n, "e"))
		if errM != nil || errE != nil || len(m) < 256 || len(e) == 0 || len(e) > 4 {
			return nil, errors.New("n and e are no key of 2048 bits or more")
		}
		k.key = &rsa.PublicKey{N: new(big.Int).SetBytes(m), E: int(new(big.Int).SetBytes(e).Int64())}
	default:
		return nil, fmt.Errorf("a key of the type %.50q cannot verify a card", kind)
	}
	return k, nil
}

// verify checks that one of a card's signatures is by the key.
func (k *Key) verify(doc *node) error {
	list := doc.get("signatures")
	if list == nil || list.kind != '[' || len(list.kids) == 0 {
		return errors.New("the card has no signature")
	}
	err := errors.New("no signature is by the key")
	for _, payload := range payloads(doc) {
		for _, s := range list.kids {
			if k.signed(s, payload) {
				return nil
			}
		}
	}
	return err
}

// payloads are the canonical forms of a card. Signers differ in whether they leave out empty
// members.
func payloads(doc *node) (all [][]byte) {
	given := doc.clone()
	given.remove("signatures")
	pruned := given.clone()
	pruned.prune(func(string) bool { return true })
	for _, n := range []*node{given, pruned} {
		text := jsontext.Value(n.write(nil))
		if text.Canonicalize() == nil {
			all = append(all, text)
		}
	}
	return all
}

// signed reports whether a signature is by the key. Its algorithm is that of the key.
func (k *Key) signed(s *node, payload []byte) bool {
	protected := textOf(s, "protected")
	text, errP := base64.RawURLEncoding.DecodeString(protected)
	signature, errS := base64.RawURLEncoding.DecodeString(textOf(s, "signature"))
	if errP != nil || errS != nil {
		return false
	}
	header, err := parse(text)
	if err != nil || header.get("crit") != nil || header.get("b64") != nil || k.id != "" && textOf(header, "kid") != k.id {
		return false
	}
	input := []byte(protected + "." + base64.RawURLEncoding.EncodeToString(payload))
	sum := sha256.Sum256(input)
	alg := textOf(header, "alg")
	switch key := k.key.(type) {
	case ed25519.PublicKey:
		return (alg == "EdDSA" || alg == "Ed25519") && ed25519.Verify(key, input, signature)
	case *ecdsa.PublicKey:
		return alg == "ES256" && key.Curve == elliptic.P256() && len(signature) == 64 &&
			ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	case *rsa.PublicKey:
		return alg == "RS256" && rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil ||
			alg == "PS256" && rsa.VerifyPSS(key, crypto.SHA256, sum[:], signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
	}
	return false
}
