package media

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func object(t testing.TB, text string) (o map[string]jsontext.Value) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReferences(t *testing.T) {
	for _, tc := range []struct{ metadata, want string }{
		{`{}`, ``},
		{`{"note":"/etc/passwd and https://x.example"}`, ``},
		{`{"mediaUrls":["https://x.example/a.png","/home/me/a.png"]}`, `metadata.mediaUrls[0]= metadata.mediaUrls[1]=/home/me/a.png`},
		{`{"mediaUrl":"a.png"}`, `metadata.mediaUrl=a.png`},
		{`{"media_url":"../a.png"}`, `metadata.media_url=../a.png`},
		{`{"note":"file:///etc/passwd"}`, `metadata.note=/etc/passwd`},
		{`{"note":"FILE:/etc/pass%77d"}`, `metadata.note=/etc/passwd`},
		{`{"photo":"AgACAgIAAxkBAAI"}`, ``},
		{`{"photo":"~/id_ed25519"}`, `metadata.photo=~/id_ed25519`},
		{`{"attachments":[{"filename":"b","path":"/x/b"},{"url":"http://x.example/c"}]}`, `metadata.attachments[0].path=/x/b metadata.attachments[1].url=`},
		{`{"attachments":[{"data":{"deep":"/x/b"}}]}`, `metadata.attachments[0].data.deep=/x/b`},
		{`{"image":"DATA:image/png;base64,AAAA"}`, `metadata.image=`},
		{`{"exchange":{"data":[{"source":"/crm/x"}]}}`, ``},
		{`{"mediaUrls":[" "],"file":7,"path":null}`, ``},
	} {
		list, err := References(object(t, tc.metadata))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			got = append(got, r.Member+"="+r.Path)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %q, want %q", tc.metadata, got, tc.want)
		}
	}
	many := `{"files":["/a"` + strings.Repeat(`,"/a"`, MaxReferences) + `]}`
	var refused *Refused
	if _, err := References(object(t, many)); !errors.As(err, &refused) {
		t.Errorf("too many: %v", err)
	}
}

func TestAddress(t *testing.T) {
	for value, want := range map[string]string{
		"https://me:secret@x.example/a.png?token=abc#d": "https://x.example/a.png",
		"data:text/plain,hello":                         "data:…",
	} {
		if got := (Reference{Value: value}).Address(); got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	folder, outside := filepath.Join(dir, "out"), filepath.Join(dir, "in")
	for _, d := range []string{folder, outside} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	note, secret := write("out/note.txt", "hello"), write("in/secret", "x")
	picture := write("out/picture.png", "\x89PNG\x00\x00\x00AKIAIOSFODNN7EXAMPLE\x00\x01ab\x02")
	link := filepath.Join(folder, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	f, err := Look(Reference{Member: "m", Path: note}, []string{folder})
	if err != nil || f.Text != "hello" || f.Bytes != 5 || f.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf("got %+v, %v", f, err)
	}
	if f, err := Look(Reference{Member: "m", Path: picture}, []string{folder}); err != nil || f.Text != "AKIAIOSFODNN7EXAMPLE\n" {
		t.Errorf("got %+v, %v", f, err)
	}
	for path, want := range map[string]string{
		secret: "in none of the folders", link: "in none of the folders", filepath.Join(folder, "../in/secret"): "in none of the folders",
		"note.txt": "not by its whole path", filepath.Join(folder, "none"): "cannot be found", folder: "no regular file", "/dev/zero": "in none of the folders",
	} {
		var refused *Refused
		if _, err := Look(Reference{Member: "m", Path: path}, []string{folder}); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	if _, err := Look(Reference{Member: "m", Path: note}, nil); err == nil || !strings.Contains(err.Error(), "agents[].media") {
		t.Errorf("without folders: %v", err)
	}
}

func FuzzReferences(f *testing.F) {
	f.Add(`{"mediaUrls":["file:///etc/passwd",{"a":[1]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var o map[string]jsontext.Value
		if json.Unmarshal([]byte(text), &o) != nil {
			return
		}
		list, err := References(o)
		if err == nil && len(list) > MaxReferences {
			t.Errorf("%d references", len(list))
		}
	})
}
