package consolecmd

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// quickly is how long a browser may take to fail.
const quickly = 2 * time.Second

// browse opens a file in the person's browser: $BROWSER, a list of commands, or xdg-open. The
// browser outlives this process.
func (s *command) browse(file string) error {
	var tries [][]string
	for name := range strings.SplitSeq(s.Getenv("BROWSER"), ":") {
		words := strings.Fields(name)
		if len(words) == 0 {
			continue
		}
		named := false
		for i := range words {
			if strings.Contains(words[i], "%s") {
				words[i], named = strings.ReplaceAll(words[i], "%s", file), true
			}
		}
		if !named {
			words = append(words, file)
		}
		tries = append(tries, words)
	}
	if s.Getenv("DISPLAY") != "" || s.Getenv("WAYLAND_DISPLAY") != "" {
		tries = append(tries, []string{"xdg-open", file})
	}
	if len(tries) == 0 {
		return errors.New("no display is here, and BROWSER is not set")
	}
	var failed error
	for _, words := range tries {
		if failed = s.start(words); failed == nil {
			return nil
		}
	}
	return failed
}

// start starts a program and waits a little for its failure.
func (s *command) start(words []string) error {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.SysProcAttr = s.Env, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late := time.NewTimer(quickly)
	defer late.Stop()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s: %w", words[0], err)
		}
	case <-late.C:
	}
	return nil
}
