package cli

import (
	"cmp"
	"fmt"
	"strings"
)

// Token is the token of the grant that a command acts by: what stands in the file, or in
// that of OCIPD_TOKEN_FILE, or OCIPD_TOKEN. It is "" where there is none.
func (s *Process) Token(file string) (string, error) {
	if file = cmp.Or(file, s.Getenv("OCIPD_TOKEN_FILE")); file == "" {
		return s.Getenv("OCIPD_TOKEN"), nil
	}
	text, err := ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
