package page_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	protocol "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// guides are the pictures of the guide. TestScreens makes them.
var guides = []string{
	"console-now-1280-light", "console-request-1280-light", "console-request-390-dark", "console-messages-1280-dark",
	"console-trends-1280-light", "console-map-1280-light",
}

// shots is the folder of the guide's pictures.
const shots = "../../../../docs/pictures"

// guide makes a picture of the guide anew, if UPDATE_SAMPLES is set (make pictures).
func (w *world) guide(name string) {
	w.Helper()
	if os.Getenv("UPDATE_SAMPLES") == "" || !slices.Contains(guides, name) {
		return
	}
	w.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		shot, err := chromedp.Call(ctx, protocol.CaptureScreenshot, protocol.CaptureScreenshotParams{Format: protocol.CaptureScreenshotFormatWebp, Quality: new(int64(60))})
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(shots, name+".webp"), shot.Data, 0o600)
	}))
}

// TestGuide holds the guide to its pictures: it shows each of them, each is there and small, and no
// other picture of the console lies beside them.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/guides/console.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range guides {
		if !strings.Contains(string(text), "](../pictures/"+name+".webp)") {
			t.Errorf("the guide does not show %s", name)
		}
		if info, err := os.Stat(filepath.Join(shots, name+".webp")); err != nil || info.Size() > 64<<10 {
			t.Errorf("the picture %s is not there, or too large: %v", name, err)
		}
	}
	found, err := filepath.Glob(filepath.Join(shots, "console-*"))
	if err != nil || len(found) != len(guides) {
		t.Errorf("%d pictures of the console, want %d: %v", len(found), len(guides), err)
	}
}
