package media

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/test/buildtest"
)

func object(t testing.TB, text string) (o map[string]jsontext.Value) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// shown writes references as the tables do.
func shown(list []Reference) string {
	var b strings.Builder
	for i, r := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(r.Member + "=" + r.Path)
		if r.Inline != nil {
			fmt.Fprintf(&b, "<%s>", r.Inline)
		}
	}
	return b.String()
}

func TestReferences(t *testing.T) {
	for _, tc := range []struct{ metadata, want string }{
		{`{}`, ``},
		// The form of a path is enough, in any member.
		{`{"note":"/etc/passwd"}`, `metadata.note=/etc/passwd`},
		{`{"x":{"y":[["~/id_ed25519"]]}}`, `metadata.x.y[0][0]=~/id_ed25519`},
		{`{"note":"~root/x"}`, `metadata.note=~root/x`},
		{`{"note":"./a.png"}`, `metadata.note=./a.png`},
		{`{"note":"..\\a.png"}`, `metadata.note=..\a.png`},
		{`{"note":"C:\\a.png"}`, `metadata.note=C:\a.png`},
		{`{"note":"\\\\host\\share\\a.png"}`, `metadata.note=\\host\share\a.png`},
		{`{"note":"//etc/passwd"}`, `metadata.note=//etc/passwd`},
		{`{"note":"/home/me/My Files/a.png"}`, `metadata.note=/home/me/My Files/a.png`},
		{`{"note":"\u200b\n/etc/passwd "}`, `metadata.note=/etc/passwd`},
		{`{"note":"/flag.txt"}`, `metadata.note=/flag.txt`},
		{`{"note":"\u002fetc\u002fpasswd"}`, `metadata.note=/etc/passwd`},
		{`{"note":"file:///etc/passwd"}`, `metadata.note=/etc/passwd`},
		{`{"note":"FILE:/etc/pass%77d"}`, `metadata.note=FILE:/etc/pass%77d`},
		{`{"note":"fi\tle:etc/passwd"}`, `metadata.note=file:etc/passwd`},
		{`{"note":"file://host/etc/passwd"}`, `metadata.note=file://host/etc/passwd`},
		{`{"note":"file:///a?/../etc/passwd"}`, `metadata.note=file:///a?/../etc/passwd`},
		{`{"note":"Media : /etc/passwd"}`, `metadata.note=/etc/passwd`},
		{`{"note":"media://inbound/a.png"}`, `metadata.note=media://inbound/a.png`},
		{`{"note":"see file:///etc/passwd."}`, `metadata.note=/etc/passwd`},
		{`{"exchange":{"data":[{"source":"/crm/x"}]}}`, ``},
		// Strings of other forms are no references.
		{`{"note":"see /etc/passwd and https://x.example"}`, ``},
		{`{"note":"/start","x":"/model openai/gpt","y":"12/24","z":"a.png","u":"https://x.example/a.png","v":"~5/6","w":"..."}`, ``},
		{`{"note":"File: the report","x":"Data: a, b","y":"MEDIA: none","z":"10:30"}`, ``},
		{`{"files":[" "],"file":7,"path":null,"profile":"dev/ops"}`, ``},
		// Members that are known to name media accept more forms.
		{`{"mediaUrls":["https://x.example/a.png","/home/me/a.png"]}`, `metadata.mediaUrls[0]= metadata.mediaUrls[1]=/home/me/a.png`},
		{`{"mediaUrl":"a"}`, `metadata.mediaUrl=a`},
		{`{"media_url":"../a.png"}`, `metadata.media_url=../a.png`},
		{`{"mediaUrl":"ftp://x/a"}`, `metadata.mediaUrl=ftp://x/a`},
		{`{"avatar_url":"mxc://x.example/abc"}`, `metadata.avatar_url=`},
		{`{"photo":"AgACAgIAAxkBAAI"}`, ``},
		{`{"photo":"a.png"}`, `metadata.photo=a.png`},
		{`{"document":{"source":"My report.pdf"}}`, `metadata.document.source=My report.pdf`},
		{`{"attachments":[{"filename":"b.png","mimeType":"image/png","path":"/x/b"},{"url":"http://x.example/c"}]}`, `metadata.attachments[0].path=/x/b metadata.attachments[1].url=`},
		{`{"attachments":[{"ref":{"deep":"x/b"}}]}`, `metadata.attachments[0].ref.deep=x/b`},
		// Inline data is decoded.
		{`{"image":"DATA:text/plain;base64,aGk="}`, `metadata.image=<hi>`},
		{`{"note":"data:,h%69"}`, `metadata.note=<hi>`},
		{`{"note":"data: ;base64,aG k"}`, `metadata.note=<hi>`},
		{`{"note":"![](data:text/plain;base64,aGk)"}`, `metadata.note=<hi>`},
		{`{"buffer":"aGVsbG8gdGhlcmUsIHlvdQ=="}`, `metadata.buffer=<hello there, you>`},
		{`{"attachments":[{"content":"aGVsbG8gdGhlcmUsIHlvdQ=="}],"content":"aGVsbG8gdGhlcmUsIHlvdQ=="}`, `metadata.attachments[0].content=<hello there, you>`},
		{`{"fileData":"aGVsbG8gdGhlcmUsIHlvdQ==","attachmentBase64":"aGk=","imageData":"base64:aGk="}`, `metadata.#1=<hi> metadata.fileData=<hello there, you> metadata.imageData=<hi>`},
		{`{"media":{"payload":"aGk="},"attachments":[{"filename":"a.txt","body":"aG k="},{"contents":"6869"}]}`, `metadata.attachments[0].body=<hi> metadata.attachments[1].contents=<hi> metadata.media.payload=<hi>`},
		{`{"media":"aGVsbG8gdGhlcmUsIHlvdQ==","photo":"base64,aGVsbG8gdGhlcmUsIHlvdQ"}`, `metadata.media=<hello there, you> metadata.photo=<hello there, you>`},
		{`{"attachment":{"type":"Buffer","data":[104,105]},"media":[{"bytes":[104.9,361]}]}`, `metadata.attachment.data=<hi> metadata.media[0].bytes=<hi>`},
		{`{"media":{"buffer":{"0":104,"1":105}}}`, `metadata.media.buffer=<hi>`},
		{`{"x":{"type":"Buffer","data":[104,105,104,105,104,105,104,105,104,105,104,105,104,105,104,105]}}`, `metadata.x.data=<hihihihihihihihi>`},
		{`{"x":[1,2,3],"y":[0.1,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"image":{"size":[640,480],"width":640}}`, ``},
		{`{"media":{"data":["aGVsbG8g","dGhlcmUs"]}}`, `metadata.media.data[0]=<hello > metadata.media.data[1]=<there,> metadata.media.data=<hello there,>`},
	} {
		_, list := Read(object(t, tc.metadata), nil)
		if got := shown(list); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.metadata, got, tc.want)
		}
	}
	if _, list := Read(object(t, `{"target":"/srv/a"}`), func(name string) bool { return name == "target" }); len(list) > 0 {
		t.Errorf("of what is skipped: %v", list)
	}
	if !Mentioned(object(t, `{"x":"/a/b"}`)) || Mentioned(object(t, `{"x":"a"}`)) {
		t.Error("what is mentioned")
	}
}

func TestTexts(t *testing.T) {
	list, _ := Read(object(t, `{"ours":"secret","b":[1,{"c":"d \"e\""},"xy",123456789012],"a":"one two","my token 1":"three","n":{"":"four"},"e":"\u00e9\u00e9"}`),
		func(name string) bool { return name == "ours" })
	var got []string
	for _, p := range list {
		got = append(got, fmt.Sprintf("%s=%s %v", p.Member, p.Text, p.Prose))
	}
	want := []string{
		"metadata.a=one two true", `metadata.b[1].c=d "e" true`, "metadata.b[3]=123456789012 false", "metadata.e=éé false",
		"metadata (name 4)=my token 1 false", "metadata.#4=three false", "metadata.n.=four false",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNumbers checks that a number is read with all the digits of its value.
func TestNumbers(t *testing.T) {
	for number, want := range map[string]string{
		"4.532015112830366e15": "4532015112830366",
		"4.1E15":               "4100000000000000",
		"-4.1e+15":             "-4100000000000000",
		"45320151128303660e-1": "4532015112830366",
		"45320151128303665e-1": "4532015112830366.5",
		"4532015112830366.0":   "4532015112830366.0",
		"4.1e3":                "",
		"4e300":                "",
		"1e-15":                "",
		"123456789":            "",
	} {
		list, _ := Read(object(t, `{"n":`+number+`}`), nil)
		if want == "" && len(list) > 0 || want != "" && (len(list) != 1 || list[0].Text != want) {
			t.Errorf("%s is read as %v, want %q", number, list, want)
		}
	}
}

func TestInText(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"see /etc/hosts, ~/notes and C:\\x", ""},
		{"MEDIA:/tmp/a.png", "content=/tmp/a.png"},
		{"Here it is:\n  MEDIA: `/tmp/a.png`\nBye.", "content=/tmp/a.png"},
		{"MEDIA:\"/tmp/My Files/a.png\"", "content=/tmp/My Files/a.png"},
		{"MEDIA:/tmp/My Files/a.png", "content=/tmp/My content=Files/a.png"},
		{"MEDIA:/tmp/My file.png", "content=/tmp/My file.png"},
		{"MEDIA:/tmp/a.png /tmp/b.png", "content=/tmp/a.png content=/tmp/b.png"},
		{"MEDIA:/tmp/a.png\"}],\"details\":{}", "content=/tmp/a.png"},
		{"MEDIA:media/a.png", "content=media/a.png"},
		{"MEDIA:render final.png", "content=render final.png"},
		{"MEDIA:https://x.example/a.png", "content="},
		{"MEDIA:\n/tmp/a.png", "content=/tmp/a.png"},
		{"```\nMEDIA:/tmp/a.png\n```", "content=/tmp/a.png"},
		{"I say media:/tmp/a.png", "content=/tmp/a.png"},
		{"(MEDIA:~/a.png)", "content=~/a.png"},
		{"MEDIA:/tmp/a.png MEDIA:/tmp/b.png", "content=/tmp/a.png content=/tmp/b.png"},
		{"Media: and/or, on social media: x/y and media: a.png", ""},
		{"The MEDIA: tag fails to deliver; multimedia:/x/y", ""},
		{"MEDIA: see the report of 3.5 pages", ""},
		{"go to file:///etc/passwd, or <FILE:/etc/shadow>", "content=/etc/passwd content=/etc/shadow"},
		{"profile:/etc/passwd and file: /etc/passwd", ""},
		{"![a](/etc/passwd) [b](<~/My notes>) [c](./d 'title')", "content=/etc/passwd content=~/My notes content=./d"},
		{"![a]( &#47;etc&sol;passwd) ![b](\\/etc\\/shadow)", "content=/etc/passwd content=/etc/shadow"},
		{"![a](file&colon;///etc/passwd) ![b](C:\\x\\y)", "content=/etc/passwd content=C:\\x\\y"},
		{"[a](https://x.example/a) [b](#c) [d](docs/e.md) [f](mailto:a@b.example) [g](/help) f[1](x) [h](", ""},
		{"an image: data:text/plain;base64,aGk=, and another data:,x", "content=<hi> content=<x>"},
		{"data: a, b; {\"data\":1,\"x\":2}; data:1,2", ""},
		// Paths that a renderer opens.
		{"![a](" + strings.Repeat(" ", 5000) + "/etc/passwd)", "content=/etc/passwd"},
		{"![a][r]\n\n[r]: /etc/passwd\n", "content=/etc/passwd"},
		{"> [r]: <~/My notes>\n[s]:\n  /etc/shadow 'title'", "content=~/My notes content=/etc/shadow"},
		{"[r]: https://x.example/a\n[error]: /var/log/x cannot be read\n[10:30]: /start", ""},
		{"<img src=\"/etc/passwd\"> <img SRC='&#47;etc&#47;group'> <a href = /etc/shadow>x</a>", "content=/etc/passwd content=/etc/group content=/etc/shadow"},
		{"<video poster=file:/etc/passwd> <img src=\"https://x.example/a.png\"> https://x.example/?src=/a/b&href=/c/d", "content=/etc/passwd content=/etc/passwd"},
		{"<img src=\"data:text/plain;base64,\naGk=\">", "content=<> content=<hi>"},
		{"data:text/plain;q=" + strings.Repeat("a", 5000) + ";base64,aGk=", "content=<hi>"},
		{"data:text/plain,(h%69", "content=<(hi>"},
	} {
		list, err := InText(nil, "content", tc.text)
		if got := shown(list); err != nil || got != tc.want {
			t.Errorf("%q: got %q, %v, want %q", tc.text, got, err, tc.want)
		}
	}
	var refused *Refused
	for _, many := range []string{"file:/a/%d ", "MEDIA:/a/%d\n", "[x](/a/%d)"} {
		var text string
		for i := range MaxReferences + 1 {
			text += fmt.Sprintf(many, i)
		}
		if _, err := InText(nil, "content", text); !errors.As(err, &refused) {
			t.Errorf("%s: too many: %v", many, err)
		}
	}
}

// Every text takes time in proportion to its length.
func TestWorstTexts(t *testing.T) {
	for _, unit := range []string{":", "file:", "file:/", "media:", "MEDIA: ", "MEDIA:/", "data:", "data:,", "data:/", "](", "](/", "](&", "](<", "](\\", "[](/a", "MEDIA:\n", "media:x ", "](~", "](.", "((", "/", "]:", "]:\n", "[]:/", "\n[]:/", "]( ", "[]: <", "src=", " src='", " src=\"/", "data:x/", "=", "data:data/data:,"} {
		text := strings.Repeat(unit, 1<<20/len(unit))
		began := buildtest.Used(t)
		_, _ = InText(nil, "content", text)
		_, _ = Read(map[string]jsontext.Value{"x": jsontext.Value(`"` + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "\n", `\n`) + `"`)}, nil)
		if took := buildtest.Used(t) - began; took > 3*time.Second {
			t.Errorf("%q: took %v", unit, took)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, tc := range []struct {
		of   Reference
		want string
	}{
		{Reference{Value: "https://me:secret@x.example/a.png?token=abc#d"}, "https://x.example/a.png"},
		{Reference{Value: "data:text/plain,hello", Inline: []byte("hello")}, "data:…"},
		{Reference{Value: "aGVsbG8=", Inline: []byte("hello")}, "data:…"},
	} {
		if got := tc.of.Address(); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.of.Value, got, tc.want)
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
	link := filepath.Join(folder, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	var found bytes.Buffer
	look := &Look{Folders: []string{folder}, Text: &found}
	if f, err := look.At(Reference{Member: "m", Path: note}); err != nil || found.String() != "hello" || f != (File{note, hello, 5}) {
		t.Errorf("got %+v, %q, %v", f, found.String(), err)
	}
	found.Reset()
	if f, err := (&Look{Text: &found}).At(Reference{Member: "m", Inline: []byte("hello")}); err != nil || found.String() != "hello" || f != (File{"", hello, 5}) {
		t.Errorf("inline: got %+v, %q, %v", f, found.String(), err)
	}
	refused := func(look *Look, r Reference, want string) {
		t.Helper()
		var refused *Refused
		if _, err := look.At(r); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", r.Path, err, want)
		}
	}
	for path, want := range map[string]string{
		secret: "in none of the folders", link: "in none of the folders", "/dev/zero": "in none of the folders",
		folder + "/../in/secret": "not by its whole path", folder + "/./note.txt": "not by its whole path", "/" + note: "not by its whole path",
		"note.txt": "not by its whole path", "~/note.txt": "not by its whole path", `\\host\share\x`: "not by its whole path",
		filepath.Join(folder, "none"): "in none of the folders", folder: "no regular file",
	} {
		refused(look, Reference{Member: "m", Path: path}, want)
	}
	refused(&Look{}, Reference{Member: "m", Path: note}, "agents[].media")

	// A file is checked as a whole, or refused.
	big := write("out/big.txt", strings.Repeat("All is well here. ", MaxTextBytes/18)+strings.Repeat("x", 18))
	refused(&Look{Folders: []string{folder}, Text: &found}, Reference{Member: "m", Path: big}, "as much as is weighed")
	huge := write("out/huge", "")
	if err := os.Truncate(huge, MaxBytes/2+1); err != nil {
		t.Fatal(err)
	}
	look = &Look{Folders: []string{folder}, Text: &found}
	if _, err := look.At(Reference{Member: "m", Path: huge}); err != nil {
		t.Error(err)
	}
	refused(look, Reference{Member: "n", Path: huge}, "the limit is")
}

// A look reads the file that the exact bytes name. A path that other programs read as another name
// is refused.
func TestOneReading(t *testing.T) {
	for _, tc := range []struct {
		text    string // in metadata if it begins like JSON, else in a text
		refused bool
	}{
		{"mediaUrl /o/a.txt", false},
		{"mediaUrl /o/a b.txt", false},
		{"mediaUrl file:///o/a b.txt", false},
		{"mediaUrl /o/a.txt ", true},
		{"mediaUrl /o/a.txt\u200b", true},
		{"mediaUrl /o/a.txt\n", true},
		{"mediaUrl /o/a.txt\u00a0", true},
		{"mediaUrl \u200b/o/a.txt", true},
		{"mediaUrl MEDIA:/o/a.txt", true},
		{"mediaUrl file:///o/a%20b.txt", true},
		{"mediaUrl file://localhost/o/a.txt", true},
		{"mediaUrl file:///o/a\t.txt", true},
		{"mediaUrl file:///o/a.txt ", true},
		{"photo /o/a.txt\u200b", true},
		{"x /o/a.txt\u200b", true},
		{"x MEDIA:/o/a.txt", false},
		{"x MEDIA: /o/a.txt", true},
		{"x MEDIA:/o/a.txt\u200b", true},
		{"see file:///o/a.txt", false},
		{"see file:///o/a.txt in the folder", false},
		{"see <file:///o/a.txt>, [a](file:///o/a.txt), \"file:///o/a.txt\" and `file:///o/a.txt`.", false},
		{"see <file:///o/a.txt'b>", true},
		{"see <file:///o/a.txt(b)>", true},
		{"see <file:///o/a.txt!>", true},
		{"see file:///o/a.txt.", true},
		{"see 'file:///o/a.txt'b", true},
		{"see (file:///o/a.txt)", true},
		{"see file:///o/a.txt\u00a0b", true},
		{"see file:///o/a.txt\u200b", true},
		{"see file:///o/a%74.txt", true},
		{"![a](/o/a.txt) [b](</o/a b.txt>)", false},
		{"![a](/o/a.txt\u200b)", true},
		{"![a](</o/a.txt >)", true},
		{"![a](/o/a.txt\u00a0)", true},
		{"![a](/o/a.txt 'title')", true},
		{"![a]( /o/a.txt)", true},
		{"![a](/o/a.txt(b))", true},
		{"![a](/o/a%20b.txt)", true},
		{"![a](/o/a.txt#b)", true},
		{"![a](/o/a\\.txt)", true},
		{"![a](/o/a&#46;txt)", true},
		{"MEDIA:/o/a.txt", false},
		{"MEDIA: `/o/a.txt`", false},
		{"MEDIA:\"/o/a b.txt\"\nBye.", false},
		{"MEDIA:/o/a.txt\u200b", true},
		{"MEDIA:/o/a.txt\u00a0", true},
		{"MEDIA:/o/a.txt)", true},
		{"MEDIA:/o/a.txt,", true},
		{"MEDIA:/o/a b.txt", true},
		{"MEDIA:/o/a.txt /o/b.txt", true},
	} {
		member, value, _ := strings.Cut(tc.text, " ")
		var list []Reference
		if member == "mediaUrl" || member == "photo" || member == "x" {
			text, _ := json.Marshal(map[string]string{member: value})
			_, list = Read(object(t, string(text)), nil)
		} else {
			list, _ = InText(nil, "content", tc.text)
		}
		refused := false
		for _, r := range list {
			refused = refused || r.Refused != ""
		}
		if len(list) == 0 || refused != tc.refused {
			t.Errorf("%q: refused is %v of %+v", tc.text, refused, list)
		}
	}
}

// An agent gets one error for everything outside the folders, whether or not it exists.
func TestOutsideIsOneText(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "out")
	for name, text := range map[string]string{"out/note.txt": "x", "in/secret": "x"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"there": "in/secret", "not": "in/none", "folder": "in", "below": "in/secret/x"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	look := &Look{Folders: []string{folder}, Text: io.Discard}
	heard := make(map[string]bool)
	for _, path := range []string{
		dir + "/in/secret", dir + "/in/none", dir + "/in", dir + "/in/secret/x", dir, "/proc/self/fd/0", "/proc/self/fd/999",
		folder + "/there", folder + "/not", folder + "/folder", folder + "/below", folder + "/folder/secret", folder + "/folder/none", folder + "/none",
	} {
		_, err := look.At(Reference{Member: "m", Path: path})
		if err == nil {
			t.Fatalf("%s goes along", path)
		}
		heard[err.Error()] = true
	}
	if len(heard) != 1 {
		t.Errorf("heard: %v", heard)
	}
	// A link may name a folder, and contain links to other listed folders.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link + "/note.txt", folder + "/note.txt", link + "/there"} {
		if f, err := (&Look{Folders: []string{link, filepath.Join(dir, "in")}, Text: io.Discard}).At(Reference{Member: "m", Path: path}); err != nil || f.Bytes != 1 {
			t.Errorf("%s: %+v, %v", path, f, err)
		}
	}
}

// A text that cannot be decoded in a member for bytes is refused. Words, and the channel's names of
// its media, are not.
func TestUndecodable(t *testing.T) {
	for metadata, want := range map[string]bool{
		`{"buffer":"{+}~"}`: true, `{"attachments":[{"data":"hello, you"}]}`: true, `{"fileData":"<~87cURD]j7BEbo80~>"}`: true, `{"media":"87cURD]j7BEbo80!!"}`: true,
		`{"photo":"AgACAgIAAxkBAAI"}`: false, `{"photo":"AgACAgIAAxkBAAIBa2ZkZmRmZGZkZmRm"}`: false, `{"photo":"a photo, of all"}`: false, `{"buffer":"AAAA"}`: false,
		`{"data":"hello, you","content":"x, y","body":"z?"}`: false, `{"media":{"metadata":{"note":"a, b"},"encoding":"base64"}}`: false, `{"buffer":" "}`: false,
	} {
		_, list := Read(object(t, metadata), nil)
		if got := slices.ContainsFunc(list, func(r Reference) bool { return r.Refused != "" }); got != want {
			t.Errorf("%s: refused is %v of %+v", metadata, got, list)
		}
	}
}

func wideText(order binary.ByteOrder, s string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(s)) {
		b = append(b, 0, 0)
		order.PutUint16(b[len(b)-2:], unit)
	}
	return string(b)
}

// extract returns all text in bytes.
func extract(t testing.TB, s string) string {
	var found, hashed bytes.Buffer
	n, err := writeText(&found, strings.NewReader(s), strings.NewReader(s), &hashed)
	if err != nil || n != int64(len(s)) || hashed.String() != s {
		t.Fatalf("%d of %d bytes, %v", n, len(s), err)
	}
	return found.String()
}

func TestTextOf(t *testing.T) {
	noise := make([]byte, 300<<10)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(noise)
	const key = "AKIAIOSFODNN7SAMPLED"
	japanese := strings.Repeat("秘密の鍵は次のとおりです。\n", 40) + "鍵: " + key
	for name, tc := range map[string]struct{ in, want string }{
		"short":                   {"hi", "hi"},
		"UTF-8":                   {"Ça va, 秘密?\n", "Ça va, 秘密?\n"},
		"Latin-1":                 {"Gr\xfc\xdfe, tr\xe8s d\xe9j\xe0 vu", "Grüße, très déjà vu"},
		"controls":                {"AKIA\x01IOSFODNN7SAMPLED", "AKIA\x01IOSFODNN7SAMPLED"},
		"picture":                 {"\x89PNG\x00\x00\x00" + key + "\x00\x01ab\x02", key + "\n"},
		"late":                    {strings.Repeat("\x00\xff\xfe", 1<<20) + key, key},
		"late in a text":          {strings.Repeat("a b\n", 1<<20) + key, key},
		"across blocks":           {strings.Repeat("\x00", blockBytes-5) + key, key},
		"in noise":                {string(noise) + key + string(noise), key},
		"UTF-16LE":                {wideText(binary.LittleEndian, key), key},
		"UTF-16BE":                {wideText(binary.BigEndian, key), key},
		"UTF-16LE odd":            {"x" + wideText(binary.LittleEndian, key), key},
		"UTF-16BE late":           {string(noise) + wideText(binary.BigEndian, key), key},
		"UTF-16LE marked":         {wideText(binary.LittleEndian, "\ufeff"+japanese), japanese},
		"UTF-16BE marked":         {wideText(binary.BigEndian, "\ufeff"+japanese), japanese},
		"UTF-16LE not marked":     {wideText(binary.LittleEndian, japanese), japanese},
		"UTF-16BE not marked":     {wideText(binary.BigEndian, japanese), japanese},
		"UTF-16 across blocks":    {wideText(binary.LittleEndian, strings.Repeat("x 😀", blockBytes/8)+"😀"+key), "😀" + key},
		"UTF-32":                  {strings.Join(strings.Split(key, ""), "\x00\x00\x00") + "\x00\x00\x00", key},
		"marked, and then narrow": {"\xff\xfe" + key, key},
		"marked, and then other":  {"\xff\xfe" + wideText(binary.BigEndian, key), key},
	} {
		got := extract(t, tc.in)
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %.200q", name, got)
		}
		if len(got) > 3*len(tc.in) {
			t.Errorf("%s: %d bytes of %d", name, len(got), len(tc.in))
		}
	}
	if got := extract(t, string(noise)); len(got) > len(noise)/20 {
		t.Errorf("noise says %d bytes of %d", len(got), len(noise))
	}
	if got := extract(t, wideText(binary.LittleEndian, "\ufeffhello there")); strings.Count(got, "hello") != 1 {
		t.Errorf("found twice: %q", got)
	}
	if got := extract(t, "\x89PNG\x00\x00\x00ab\x00"); got != "" {
		t.Errorf("got %q", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"mediaUrls":["file:///etc/passwd",{"a":[1]}]}`)
	f.Add(`{"a":"\ud83d\ude00 ](\u002fx/y","b c":[[],{},"MEDIA:/x",123456789012345]}`)
	f.Fuzz(func(t *testing.T, s string) {
		var o map[string]jsontext.Value
		if json.Unmarshal([]byte(s), &o) != nil {
			return
		}
		texts, list := Read(o, nil)
		if len(list) > MaxReferences+1 {
			t.Errorf("%d references", len(list))
		}
		// Every string of three bytes is weighed: values, and names that are no words.
		var want []string
		d := jsontext.NewDecoder(strings.NewReader(s))
		for {
			token, err := d.ReadToken()
			if err != nil {
				break
			}
			kind, length := d.StackIndex(d.StackDepth())
			isValue := kind != '{' || length%2 == 0
			if token.Kind() == '"' && len(token.String()) >= 3 && (isValue || !plainName([]byte(token.String()))) {
				want = append(want, token.String())
			}
		}
		for _, text := range want {
			found := false
			for _, p := range texts {
				found = found || p.Text == text
			}
			if !found {
				t.Errorf("%q is not weighed", text)
			}
		}
	})
}

func FuzzInText(f *testing.F) {
	for _, s := range []string{"MEDIA:/tmp/a b.png", "![a](</x y>) file:/x", "data:;base64,aGk=", "](&#47;x/y)", "media:\n`x/y`"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := InText(nil, "content", s)
		if err == nil && len(list) > MaxReferences {
			t.Errorf("%d references", len(list))
		}
		// A reference on a line of its own is found, whatever surrounds it.
		if list, err = InText(nil, "content", s+"\nMEDIA:/a/canary.png\n"+s); err == nil && !strings.Contains(shown(list), "=/a/canary.png") {
			t.Errorf("%q hides a file: %q", s, shown(list))
		}
	})
}

func FuzzTextOf(f *testing.F) {
	f.Add("abc", byte(0))
	f.Add("\xff\xfea\x00b\x00", byte(1))
	f.Fuzz(func(t *testing.T, s string, how byte) {
		canary := "CANARY-0123456789"
		switch how % 3 {
		case 1:
			canary = wideText(binary.LittleEndian, canary)
		case 2:
			canary = wideText(binary.BigEndian, canary)
		}
		// The text around it does not split it.
		if got := extract(t, s+"\x00\x00\x00\x00\x00"+canary+"\x00\x00\x00\x00\x00"+s); !strings.Contains(got, "CANARY-0123456789") {
			t.Errorf("%q hides a text: %q", s, got)
		}
	})
}

func FuzzInline(f *testing.F) {
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
			if got, ok := decodeURL(";base64," + e.EncodeToString(b)); !ok || !bytes.Equal(got, b) {
				t.Errorf("%q: got %q", b, got)
			}
		}
	})
}
