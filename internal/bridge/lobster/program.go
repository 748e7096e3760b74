package lobster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/child"
)

const (
	// maxOutput bounds Lobster's output, keptErrors its kept standard error, and leave the
	// time that it may take to end.
	maxOutput  = 16 << 20
	keptErrors = 4 << 10
	leave      = 5 * time.Second
)

// Find looks for Lobster, by its name or path.
func Find(name string) (path string, err error) {
	if path, err = exec.LookPath(name); err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find Lobster (npm install -g @clawdbot/lobster): %w", err)
	}
	return path, nil
}

// Program runs Lobster as a process, in a process group that ends with it.
func Program(path string) func(ctx context.Context, env []string, args ...string) ([]byte, error) {
	return func(ctx context.Context, env []string, args ...string) ([]byte, error) {
		cmd := &exec.Cmd{Path: path, Args: append([]string{path}, args...), Env: env}
		out, said := head{limit: maxOutput}, head{limit: keptErrors}
		cmd.Stdout, cmd.Stderr = &out, &said
		err := child.Run(ctx, cmd, leave)
		if errors.Is(err, child.ErrStays) {
			return nil, err
		}
		if out.more {
			return nil, errors.New("Lobster wrote more than 16 MiB") //nolint:staticcheck // it is a name
		}
		if text := strings.TrimSpace(string(said.kept)); err != nil && text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return out.kept, err
	}
}

// Environment returns the environment of Lobster and its steps. It replaces the caller's
// own token by the grant's, and adds the socket and this program.
func Environment(env []string, token, socket, program string) []string {
	kept := []string{"OCIPD_TOKEN=" + token, "OPENCLAWOS_KERNEL_SOCKET=" + socket}
	bin := false
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		switch name {
		case "OCIPD_TOKEN", "OCIPD_TOKEN_FILE", "OPENCLAWOS_KERNEL_SOCKET":
			continue
		case "OCIPD_BIN":
			bin = true
		}
		kept = append(kept, pair)
	}
	if !bin {
		kept = append(kept, "OCIPD_BIN="+program)
	}
	return kept
}

// head is a writer that keeps the beginning of the text.
type head struct {
	kept  []byte
	limit int
	more  bool
}

func (h *head) Write(b []byte) (int, error) {
	n := min(len(b), h.limit-len(h.kept))
	h.kept = append(h.kept, b[:n]...)
	h.more = h.more || n < len(b)
	return len(b), nil
}
