package attachments

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

func rules(t *testing.T) *ocip.Rules {
	t.Helper()
	found, err := content.New(content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	promises, err := commitment.New(commitment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &ocip.Rules{Content: found, Commitments: promises}
}

const secret = "Use AKIAIOSFODNN7SAMPLED for now.\n"

func TestLook(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{folder + "/plain.txt": "nothing of note\n", folder + "/key.txt": secret, elsewhere + "/key.txt": secret} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(elsewhere, "key.txt"), filepath.Join(folder, "link.txt")); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(secret))
	quoted := func(s string) jsontext.Value {
		q, err := jsontext.AppendQuote(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	all := rules(t)
	for _, test := range []struct {
		name     string
		content  string
		metadata api.Object
		// items are the expected attachments, and found is set if something is found in them.
		items   []string
		found   bool
		refused string
	}{
		{name: "nothing", content: "Where do we stand?"},
		{name: "words alone", content: "hello", metadata: api.Object{"topic": quoted("the lighthouse")}},
		{name: "an address", content: "hello", metadata: api.Object{"mediaUrl": quoted("https://example.com/a.png")}, items: []string{"metadata.mediaUrl"}},
		{name: "a file", content: "hello", metadata: api.Object{"mediaUrl": quoted(folder + "/plain.txt")}, items: []string{"metadata.mediaUrl"}},
		{name: "a file with a secret", content: "hello", metadata: api.Object{"mediaUrl": quoted(folder + "/key.txt")}, items: []string{"metadata.mediaUrl"}, found: true},
		{name: "bytes with a secret", content: "hello", metadata: api.Object{"mediaUrl": quoted("data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte(secret)))}, items: []string{"metadata.mediaUrl"}, found: true},
		{name: "in the text", content: "MEDIA:" + folder + "/key.txt", items: []string{"content"}, found: true},
		{name: "a file elsewhere", content: "hello", metadata: api.Object{"mediaUrl": quoted(elsewhere + "/key.txt")}, refused: "in none of the folders"},
		{name: "a file elsewhere by a link", content: "hello", metadata: api.Object{"mediaUrl": quoted(folder + "/link.txt")}, refused: "in none of the folders"},
		{name: "no file", content: "hello", metadata: api.Object{"mediaUrl": quoted(folder + "/none.txt")}, refused: "in none of the folders"},
		{name: "the daemon's own", content: "hello", metadata: api.Object{"ocip": quoted(elsewhere + "/key.txt")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := NewLooker(1).Look(t.Context(), &Message{
				Content: test.content, Metadata: test.metadata, Folders: []string{folder}, Rendering: text.Renderings(),
				Known: func(member string) bool { return member == "ocip" },
			}, all)
			refused, is := errors.AsType[*media.Refused](err)
			if is != (test.refused != "") || err != nil && !is {
				t.Fatalf("it ends with %v", err)
			}
			if is {
				if !strings.Contains(refused.Reason, test.refused) {
					t.Errorf("refused because %s", refused.Reason)
				}
				return
			}
			var members []string
			for _, item := range f.Items {
				members = append(members, item.Member)
				if strings.HasSuffix(item.Path, "/key.txt") && (item.SHA256 != hex.EncodeToString(sum[:]) || item.Bytes != int64(len(secret))) {
					t.Errorf("the file is %+v", item)
				}
			}
			if strings.Join(members, " ") != strings.Join(test.items, " ") {
				t.Errorf("with it goes %+v, want %q", f.Items, test.items)
			}
			if found := !reflect.DeepEqual(f.Files, ocip.Weighed{}); found != test.found {
				t.Errorf("in what goes with it is found: %+v", f.Files)
			}
		})
	}
}

// A text that a caller chose is clipped for a record, and stays valid UTF-8.
func TestClipped(t *testing.T) {
	for _, long := range []string{strings.Repeat("a", 5000), strings.Repeat("é", 5000), "a" + strings.Repeat("é", 5000)} {
		got := clipped(long)
		if len(got) > 520 || !strings.HasSuffix(got, "…") || strings.ToValidUTF8(got, "?") != got {
			t.Errorf("%.20s… becomes %q", long, got)
		}
	}
	if got := clipped("short"); got != "short" {
		t.Errorf("a short one becomes %q", got)
	}
}
