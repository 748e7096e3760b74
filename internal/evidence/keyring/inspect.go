package keyring

import (
	"fmt"
	"io/fs"
	"path/filepath"
)

// notOurs is the error for a file that belongs to another user, or is open to others. It is an
// [fs.ErrPermission].
type notOurs struct{ error }

// Is reports whether the error is an [fs.ErrPermission].
func (notOurs) Is(target error) bool { return target == fs.ErrPermission }

// SignerFits checks that the private key in a directory belongs to the public key beside it. An
// error describes the problem. It is an [fs.ErrPermission] if this process may not read the key, or
// an [fs.ErrNotExist] if there is none.
func SignerFits(dir string) error {
	public, err := publicKey(dir, publicFile)
	if err != nil {
		return err
	}
	text, err := read(dir, signingFile, secretMode)
	if err != nil {
		return err
	}
	k, err := parseSigningKey(line(text))
	if err != nil {
		return fmt.Errorf("%s holds no signing key", filepath.Join(dir, signingFile))
	}
	if k.public != public.Verifier {
		return fmt.Errorf("%s is not the key of %s beside it", filepath.Join(dir, signingFile), publicFile)
	}
	return nil
}

// DigestIDs returns the ids of the digest keys in a directory, like [Digests.IDs]. Errors are like
// those of [SignerFits].
func DigestIDs(dir string) (map[string]string, error) {
	text, err := read(dir, digestFile, secretMode)
	if err != nil {
		return nil, err
	}
	stored, err := parseDigestKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, digestFile), err)
	}
	ids := make(map[string]string, len(stored.Tenants))
	for tenant, key := range stored.Tenants {
		ids[tenant] = newDigestKey(key).id()
	}
	return ids, nil
}
