package cli

import (
	"cmp"
	"fmt"
	"strings"
)

// Token returns the token of the command's grant: from the file, from the file in
// OCIPD_TOKEN_FILE, or from OCIPD_TOKEN. It is "" if there is none.
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
