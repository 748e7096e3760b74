package daemon

import (
	"fmt"
	"os"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/sshsig"
)

// signers reads the file of allowed signers anew for each decision, so that
// whoever is taken out of it decides nothing more.
type signers struct{ file string }

func (s signers) load() (*sshsig.Signers, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, fmt.Errorf("cannot read approvals.allowed_signers: %w", err)
	}
	defer f.Close()
	list, err := sshsig.ParseAllowedSigners(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use approvals.allowed_signers %s: %w", s.file, err)
	}
	return list, nil
}

// Verify checks a signature over a decision.
func (s signers) Verify(armored, text []byte, at time.Time) (principal, fingerprint string, err error) {
	list, err := s.load()
	if err != nil {
		return "", "", err
	}
	signature, err := list.Verify(armored, text, api.ApprovalNamespace, at)
	return signature.Principal, signature.Fingerprint, err
}
