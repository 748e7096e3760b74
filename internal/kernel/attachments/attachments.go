// Package attachments finds what a message sends along besides its text. It lists remote addresses,
// hashes local files and inline bytes, and weighs all text in them. That takes long, so it is
// bounded: see [Looker].
package attachments

import (
	"context"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

// Message is a message to look at.
type Message struct {
	Content  string
	Metadata api.Object
	// Known reports the members of the metadata that the daemon wrote.
	Known func(member string) bool
	// Tenant and Agent are the sender's. A message waits for others of the same agent.
	Tenant, Agent string
	// Folders are those whose files the sender may send, and Rendering how the receiver's program
	// renders texts.
	Folders   []string
	Rendering []text.Rendering
}

// Found lists the parts of a message besides its content.
type Found struct {
	// Passages are the strings of the metadata, Items the attachments, Files the findings in them,
	// and Extracts the parts of them that people are shown.
	Passages []ocip.Passage
	Items    []api.MediaItem
	Files    ocip.Weighed
	Extracts []ocip.Extract
}

// shownBytes limits the beginnings of files that people are shown, all files together.
const shownBytes = 64 << 10

// keptBytes bounds a Looker's memory of the files that it has weighed.
const keptBytes = 8 << 20

// Looker looks at the attachments of messages. It weighs a few messages at a time, each agent and
// tenant in turn, and remembers its findings by content. Its methods are safe for concurrent use.
type Looker struct {
	turns turns
	cache cache
}

// NewLooker makes a Looker that weighs so many files at a time. Leave processors for the rest of
// the daemon.
func NewLooker(atOnce int) *Looker {
	return &Looker{turns: turns{free: max(1, atOnce)}, cache: cache{half: keptBytes / 2}}
}

// Look looks at a message by rules. A file that may not be sent is a [media.Refused]; the findings
// before it are returned too. It ends with its context.
func (l *Looker) Look(ctx context.Context, m *Message, rules *ocip.Rules) (f Found, err error) {
	var references []media.Reference
	f.Passages, references = media.Read(m.Metadata, m.Known)
	references, err = media.InText(references, "content", m.Content)
	if err != nil || len(references) == 0 {
		return f, err
	}
	turn, err := l.turns.enter(ctx, m.Tenant, m.Agent)
	if err != nil {
		return f, err
	}
	defer turn.leave()
	of := subject{tenant: m.Tenant, head: shownBytes / len(references), renderings: fmt.Sprint(m.Rendering)}
	looking := media.Look{Folders: m.Folders, Pace: turn}
	named := make(map[string]int)
	var texts []ocip.NamedText
	for _, r := range references {
		name := r.Member
		if named[name]++; named[name] > 1 {
			// One text can name several files.
			name = fmt.Sprintf("%s (%d)", name, named[name])
		}
		item := api.MediaItem{Member: strings.TrimPrefix(ocip.ClipMember(api.FileMember+name), api.FileMember)}
		if r.Path == "" {
			item.URL = clipped(r.Address())
		}
		if r.Path != "" || r.Inline != nil || r.Refused != "" {
			var (
				file media.File
				text *ocip.Text
			)
			if file, text, err = l.weigh(&looking, r, rules, m.Rendering, of); err != nil {
				break
			}
			item.Path, item.SHA256, item.Bytes = file.Path, file.SHA256, file.Bytes
			texts = append(texts, ocip.NamedText{Member: api.FileMember + item.Member, Text: text})
		}
		f.Items = append(f.Items, item)
	}
	if err == nil {
		f.Files, f.Extracts = ocip.Together(texts)
	}
	return f, err
}

// weigh hashes the file of a reference, and weighs its text unless the same bytes were weighed
// before.
func (l *Looker) weigh(looking *media.Look, r media.Reference, rules *ocip.Rules, as []text.Rendering, of subject) (media.File, *ocip.Text, error) {
	var found *ocip.Text
	weigher := rules.Weigher(as, of.head)
	looking.Text = weigher
	looking.Known = func(sha256 string) (text int64, known bool) {
		of.sha256 = sha256
		if found = l.cache.get(rules, of); found == nil {
			return 0, false
		}
		return int64(found.Len()), true
	}
	file, err := looking.At(r)
	if err != nil || found != nil {
		return file, found, err
	}
	if err := looking.Pace.Wait(); err != nil {
		return file, nil, err
	}
	found = weigher.Found()
	looking.Pace.Rest()
	of.sha256 = file.SHA256
	l.cache.add(rules, of, found)
	return file, found, nil
}

// clipped bounds a text that a caller chose for a record.
func clipped(s string) string {
	const longest = 512
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}
