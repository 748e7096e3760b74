package keyring

import (
	"fmt"
	"io/fs"
	"path/filepath"
)

// notOurs is an error of a file that is another user's, or open to others: it is an
// [fs.ErrPermission].
type notOurs struct{ error }

// Is reports whether the error is an [fs.ErrPermission].
func (notOurs) Is(target error) bool { return target == fs.ErrPermission }

// SignerFits reports whether the private key of a directory is that of the public key beside
// it. An error says what is wrong with it; where this process may not read it, or there is
// none, it is an [fs.ErrPermission] or an [fs.ErrNotExist].
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

// DigestIDs are those of the digest keys in a directory, as [Digests.IDs] has them. An error is
// as one of [SignerFits].
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
