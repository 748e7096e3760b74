package sealedtext

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
)

// sealScheme begins every sealed text.
const sealScheme = "age:"

// maxIdentityBytes bounds a file of private keys.
const maxIdentityBytes = 4 << 20

// maxSealedBytes bounds what is unsealed: no record holds more.
const maxSealedBytes = 1 << 20

// Recipients are the public keys that texts are sealed to. The holder of a private key of one of
// them can read the text; the daemon cannot.
type Recipients struct {
	keys []age.Recipient
}

// ParseRecipients reads the public keys of age, as age-keygen prints them: age1… or, for those that
// quantum computers do not break, age1pq1…. The two kinds cannot be mixed: a text is as safe as the
// weaker.
func ParseRecipients(texts ...string) (*Recipients, error) {
	if len(texts) == 0 {
		return nil, errors.New("cannot seal texts to nobody")
	}
	r := &Recipients{}
	for _, text := range texts {
		if upper := strings.ToUpper(text); strings.Contains(upper, "SECRET-KEY") || strings.Contains(upper, "PRIVATE KEY") {
			return nil, errors.New("cannot use a recipient: it is a private key; name the public one, and keep this one to yourself")
		}
		key, err := parseRecipient(text)
		if err != nil {
			return nil, fmt.Errorf("cannot use the recipient %q: %w", text, err)
		}
		r.keys = append(r.keys, key)
	}
	// Only a use shows whether the keys can be combined.
	_, err := r.Seal("")
	return r, err
}

func parseRecipient(text string) (age.Recipient, error) {
	switch {
	case strings.HasPrefix(text, "age1pq1"):
		return age.ParseHybridRecipient(text)
	case strings.HasPrefix(text, "age1"):
		return age.ParseX25519Recipient(text)
	}
	return nil, errors.New("want a public key that begins with age1; age-keygen makes one")
}

// Seal encrypts a text to the recipients: "age:" and the age file in base64.
func (r *Recipients) Seal(text string) (string, error) {
	var sealed strings.Builder
	sealed.WriteString(sealScheme)
	encoder := base64.NewEncoder(base64.StdEncoding, &sealed)
	w, err := age.Encrypt(encoder, r.keys...)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = encoder.Close()
	}
	if err != nil {
		return "", fmt.Errorf("cannot seal a text: %w", err)
	}
	return sealed.String(), nil
}

// Identities are private keys to unseal texts with.
type Identities []age.Identity

// ReadIdentities reads private keys from a file, as age-keygen writes them.
func ReadIdentities(file string) (Identities, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the identity: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIdentityBytes))
	if err != nil {
		return nil, fmt.Errorf("cannot read the identity: %w", err)
	}
	keys, err := parseIdentities(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use the identity %s: %w", file, err)
	}
	return keys, nil
}

// parseIdentities keeps its input out of errors: it was meant to be a private key.
func parseIdentities(text []byte) (Identities, error) {
	keys, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("it holds no private key such as age-keygen writes (AGE-SECRET-KEY-1…)")
	}
	return keys, nil
}

// ErrNotRecipient means that a text was sealed to others.
var ErrNotRecipient = errors.New("it was sealed to others")

// Unseal decrypts a text of [Recipients.Seal], with the private key of one of its recipients. With
// none the error is [ErrNotRecipient].
func (i Identities) Unseal(sealed string) (string, error) {
	encoded, ok := strings.CutPrefix(sealed, sealScheme)
	if !ok {
		return "", errors.New("cannot unseal a text: it is not sealed (age:…)")
	}
	plain, err := age.Decrypt(base64.NewDecoder(base64.StdEncoding, strings.NewReader(encoded)), i...)
	if _, others := errors.AsType[*age.NoIdentityMatchError](err); others {
		return "", fmt.Errorf("cannot unseal a text: %w", ErrNotRecipient)
	}
	if err != nil {
		return "", fmt.Errorf("cannot unseal a text: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(plain, maxSealedBytes+1))
	if err == nil && len(text) > maxSealedBytes {
		err = fmt.Errorf("it has more than %d bytes", maxSealedBytes)
	}
	if err != nil {
		return "", fmt.Errorf("cannot unseal a text: %w", err)
	}
	return string(text), nil
}

// Unseal decrypts a text with the private keys in a file.
func Unseal(identityFile, sealed string) (string, error) {
	keys, err := ReadIdentities(identityFile)
	if err != nil {
		return "", err
	}
	return keys.Unseal(sealed)
}
