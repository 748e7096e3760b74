// Package attachments finds what a message sends along besides its text: addresses
// elsewhere are listed, and local files and inline bytes are hashed and all text in them
// weighed.
package attachments

import (
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/media"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/text"
)

// Message is what is looked at.
type Message struct {
	Content  string
	Metadata api.Object
	// Known reports the members of the metadata that are the daemon's own.
	Known func(member string) bool
	// Folders are those whose files the sender may send, and Rendering what the receiver's
	// program makes of texts.
	Folders   []string
	Rendering []text.Rendering
}

// Found is what a message has besides its content.
type Found struct {
	// Passages are the strings of the metadata, Items what goes along besides the text,
	// and Files what was found in that.
	Passages []ocip.Passage
	Items    []api.MediaItem
	Files    ocip.Weighed
}

// Look looks at a message by rules. A file that may not be sent is a [media.Refused]; what
// was found before it is returned.
func Look(m *Message, rules *ocip.Rules) (f Found, err error) {
	var references []media.Reference
	f.Passages, references = media.Read(m.Metadata, m.Known)
	references, err = media.InText(references, "content", m.Content)
	if err == nil && len(references) == 0 {
		return f, nil
	}
	weigher := rules.Weigher(m.Rendering)
	looking := media.Look{Folders: m.Folders, Text: weigher}
	for _, r := range references {
		item := api.MediaItem{Member: clipped(r.Member)}
		if r.Path == "" {
			item.URL = clipped(r.Address())
		}
		if r.Path != "" || r.Inline != nil || r.Refused != "" {
			weigher.Begin("file " + item.Member)
			var file media.File
			if file, err = looking.At(r); err != nil {
				break
			}
			item.Path, item.SHA256, item.Bytes = file.Path, file.SHA256, file.Bytes
		}
		f.Items = append(f.Items, item)
	}
	if err == nil {
		f.Files = weigher.Found()
	}
	return f, err
}

// clipped bounds a text that a caller chose for a record.
func clipped(s string) string {
	const longest = 512
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}
