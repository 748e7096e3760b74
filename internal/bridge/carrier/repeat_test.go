package carrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Short connections are made again after a pause, which stays short, and one that has lasted begins anew. A
// reason is said once, and a final error ends all.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errLost, errFinal := errors.New("lost"), errors.New("final")
		var said []string
		say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		ended, times := time.Now(), 0
		err := Repeat(t.Context(), "nothing is carried", errFinal, say, func() (bool, error) {
			pause := time.Since(ended)
			defer func() { ended = time.Now() }()
			times++
			switch {
			case times == 1 && pause > 0, times > 1 && pause < firstWait, pause > lastWait*3/2, times == 12 && pause > firstWait*3/2:
				t.Errorf("attempt %d begins after %s", times, pause)
			case times == 11: // it lasts
				<-time.After(2 * steady)
				return true, errLost
			case times == 13:
				return false, errFinal
			}
			return times%2 == 0, errLost
		})
		if !errors.Is(err, errFinal) || times != 13 {
			t.Errorf("it ends with %v after %d attempts", err, times)
		}
		if want := []string{"nothing is carried: lost", "nothing is carried: lost"}; !slices.Equal(said, want) {
			t.Errorf("it says %q, want %q", said, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := Repeat(ctx, "", errFinal, say, func() (bool, error) { cancel(); return true, ctx.Err() }); err != nil {
			t.Errorf("the end of the context ends it with %v", err)
		}
	})
}
