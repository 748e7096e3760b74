package integrate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// Change is what is done to the command of one server.
type Change struct {
	Server
	// Was and Now are the command lines, each the command first.
	Was, Now []string
}

// Plan is what would be written, and why.
type Plan struct {
	runtime *Runtime
	place   *Place
	// Changes are those of the servers, in the order of the files. There are none where
	// all is as it should be.
	Changes []Change
	// Edits are the files in which something else of ours is entered, or is taken out of.
	Edits []Edit
	files []change
	// entered is what is ours in each file besides the commands of servers, and managed is set
	// where the machine's settings have the rest. Both are noted.
	entered map[string][]entered
	managed bool
}

// enters notes what an edit enters.
func (p *Plan) enters(path string, e *Edit) {
	for _, i := range e.items {
		var one entered
		switch i := i.(type) {
		case *settingsfile.JSON:
			one = entered{Path: i.Path, Name: i.Name, Value: i.Value}
		case *settingsfile.Block:
			one.Block = i.Text
		case *tomlPrompts:
			one.Prompts = i.names
		}
		if one.Value == "" && one.Block == "" && len(one.Prompts) == 0 {
			continue // nothing of ours is to stand there
		}
		p.entered[path] = append(p.entered[path], one)
	}
}

// change is one file as it is and as it will be.
type change struct {
	path          string
	before, after []byte
	mode          fs.FileMode
	// original is the file as it was before anything of ours was in it, and missing is set
	// where there was none then, and folders how many of those that it is in were not there
	// either. It is noted where keep is set.
	original      []byte
	missing, keep bool
	folders       int
	// gone is set for a file that is taken away, and out for one that is to have nothing of
	// ours in it. With known, the file is as it was left, and the original is the noted one.
	gone, out, known bool
}

// recall has a file that nobody has changed since go by what is noted of it.
func (f *change) recall(notes map[string]note) {
	if note, ok := notes[f.path]; ok && note.After == Sum(f.before) {
		f.original, f.missing, f.folders, f.known = note.Before, note.Missing, note.Folders, true
	}
}

// Behind plans to put every server of a runtime that is started by a command behind the
// proxy, as an agent. One that is behind it as another agent is put behind it as this
// one.
func (r *Runtime) Behind(p *Place, agent string) (*Plan, error) {
	plan, notes, err := r.plan(p, func(e *entry) (string, []string, bool) {
		if e.Own || e.Name == gateServer || !p.started(&e.Server) || e.Agent == agent && e.Changed == "" && e.named() {
			return "", nil, false
		}
		command, args := e.Command, e.Args
		if command == "" {
			command, args = e.remote.command(p, e.Name)
		}
		if e.Agent != "" {
			command, args = p.inner(e)
		}
		command, args = p.before(agent, e.Name, command, args)
		return command, args, true
	})
	if err == nil {
		err = plan.unambiguous()
	}
	if err != nil || r.gates == nil || !p.Tools {
		return plan, err
	}
	edits, err := r.gates(r, p)
	for i := range edits {
		if err == nil {
			err = plan.edit(&edits[i], notes, edits[i].Out)
		}
	}
	if err != nil {
		return nil, err
	}
	plan.managed = edits[len(edits)-1].Out // the user's own hooks
	offs, err := r.switches(r, p, plan.managed)
	for i := range offs {
		if o := &offs[i]; err == nil && o.out != nil {
			err = plan.edit(&Edit{File: o.File, What: "what keeps the gate from being asked", mends: true, items: []settingsfile.Item{o.out}}, notes, false)
		}
	}
	for i := range plan.files {
		f := &plan.files[i]
		f.keep = !f.out && (len(plan.entered[f.path]) > 0 || !bytes.Equal(f.original, f.after))
		if f.out {
			f.giveBack(notes)
		}
	}
	return plan, err
}

// unambiguous refuses servers whose tools' names can be those of another server's tools: a tool is
// known by its server's name, with _ for each character that a runtime does not write, two
// underscores, and its own name.
func (p *Plan) unambiguous() error {
	for i := range p.Changes {
		name := codexName(p.Changes[i].Name)
		if p.runtime == claudeCode {
			name = claudeToolName(p.Changes[i].Name)
		}
		if strings.Contains(name, parting) || strings.HasSuffix(name, "_") {
			return fmt.Errorf("cannot put the server %q behind the proxy: %s calls it %s in the names of its tools, where %s parts servers from tools, so its tools could be another server's; give it another name", p.Changes[i].Name, p.runtime.Title, name, parting)
		}
	}
	return nil
}

// Remove plans to take every server of a runtime out again.
func (r *Runtime) Remove(p *Place) (*Plan, error) {
	plan, notes, err := r.plan(p, func(e *entry) (string, []string, bool) {
		if e.Agent == "" {
			return "", nil, false
		}
		command, args := p.inner(e)
		return command, args, true
	})
	if err != nil {
		return nil, err
	}
	if r.gates != nil {
		edits, err := r.gates(r, p)
		if err != nil {
			return nil, err
		}
		for i := range edits {
			if err := plan.edit(&edits[i], notes, true); err != nil {
				return nil, err
			}
		}
	}
	for i := range plan.files {
		f := &plan.files[i]
		f.keep = false
		f.giveBack(notes)
	}
	return plan, nil
}

// giveBack has a file become what it was, to the byte, where nobody has changed it since.
func (f *change) giveBack(notes map[string]note) {
	if note, ok := notes[f.path]; ok && note.After == Sum(f.before) {
		f.after, f.gone, f.folders = note.Before, note.Missing, note.Folders
	}
}

func (r *Runtime) plan(p *Place, write func(*entry) (command string, args []string, ok bool)) (*Plan, map[string]note, error) {
	plan := &Plan{runtime: r, place: p, entered: make(map[string][]entered)}
	for _, word := range append([]string{p.Self, p.Token}, p.Options...) {
		if !utf8.ValidString(word) {
			return nil, nil, fmt.Errorf("cannot name %q in another program's settings: it is not UTF-8", word)
		}
	}
	k, err := r.kept(p)
	if err != nil {
		return nil, nil, err
	}
	notes := k.Files
	err = r.each(p, r.files(p), func(path string, text []byte, entries []entry) error {
		after, bare := text, text
		kept, err := r.read(path, notes[path].Before)
		if err != nil {
			kept = nil // there was no file, or none that is understood
		}
		// From the end on, so that what stands before keeps its place.
		slices.SortFunc(entries, func(a, b entry) int { return a.command.begin - b.command.begin })
		for _, e := range slices.Backward(entries) {
			command, args, ok := write(&e)
			var was *remote
			if e.Agent != "" {
				inner, innerArgs := p.inner(&e)
				if was = remoteOf(p, inner, innerArgs); was != nil && e.back != nil {
					bare = swap(bare, e.back(&e, was, kept))
				} else {
					bare = e.replace(bare, inner, innerArgs)
				}
			}
			if !ok {
				continue
			}
			change := Change{Server: e.Server, Was: e.words(), Now: slices.Concat([]string{command}, args)}
			switch {
			case e.Command == "":
				after = swap(after, e.start(command, args))
			case was != nil && e.back != nil && remoteOf(p, command, args) != nil:
				change.Now = []string{was.url}
				after = swap(after, e.back(&e, was, kept))
			default:
				after = e.replace(after, command, args)
			}
			plan.Changes = append(plan.Changes, change)
		}
		if err := r.check(path, after, plan.Changes); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		f := change{path: path, before: text, after: after, original: bare, mode: info.Mode().Perm(), keep: !bytes.Equal(bare, after)}
		f.recall(notes)
		plan.files = append(plan.files, f)
		return nil
	})
	slices.Reverse(plan.Changes)
	return plan, notes, err
}

// Empty reports whether all is as it should be. [Plan.Apply] then changes no file, and notes
// how all stands.
func (p *Plan) Empty() bool {
	return !slices.ContainsFunc(p.files, func(f change) bool { return f.gone || !bytes.Equal(f.before, f.after) })
}

// check reads a changed text as its runtime will, and holds it against what was planned.
func (r *Runtime) check(path string, text []byte, planned []Change) error {
	entries, err := r.read(path, text)
	if err != nil {
		return fmt.Errorf("cannot change %s: it would be broken: %w", path, err)
	}
	for _, c := range planned {
		if !slices.ContainsFunc(entries, func(e entry) bool {
			return e.Name == c.Name && e.Scope == c.Scope && slices.Equal(e.words(), c.Now)
		}) {
			return fmt.Errorf("cannot change %s: server %s is written in a way that is not understood", path, c.Name)
		}
	}
	return nil
}

// replace writes another command line of the entry into a text, in which all behind the
// entry may have changed already.
func (e *entry) replace(text []byte, command string, args []string) []byte {
	first, list := e.write(command, args, e.args.begin == e.args.end)
	parts := []struct {
		at   span
		text string
	}{{e.command, first}, {e.args, list}}
	if e.args.begin < e.command.begin {
		slices.Reverse(parts)
	}
	for _, part := range slices.Backward(parts) {
		text = slices.Concat(text[:part.at.begin], []byte(part.text), text[part.at.end:])
	}
	return text
}

// ErrChanged means that a file was changed between the plan and its writing.
var ErrChanged = errors.New("the file was changed meanwhile: try again")

// Apply writes the plan's files. Each is written whole or not at all.
func (p *Plan) Apply() error {
	k, err := p.runtime.kept(p.place)
	if err != nil {
		return err
	}
	notes := k.Files
	k.Home, k.Folder, k.Self, k.Socket = p.place.Home, p.place.Getenv(p.runtime.variable), p.place.Self, p.place.daemon()
	k.Managed = p.managed || k.Managed && !p.place.Tools
	for _, f := range p.files {
		if !p.place.Tools {
			p.entered[f.path] = notes[f.path].Entered // of before, and left as it is
			f.keep = f.keep || len(p.entered[f.path]) > 0
		}
		if f.keep {
			notes[f.path] = note{After: Sum(f.after), Before: f.original, Missing: f.missing, Folders: f.folders, Entered: p.entered[f.path]}
		}
	}
	// The note comes first, and goes last: without it the file could not be given back to the byte.
	if err := p.runtime.keep(p.place, k); err != nil {
		return err
	}
	for i := range p.files {
		if err := p.files[i].write(); err != nil {
			return err
		}
	}
	for _, f := range p.files {
		if !f.keep {
			delete(notes, f.path)
		}
	}
	return p.runtime.keep(p.place, k)
}

// write writes one file, unless it is another one by now.
func (f *change) write() error {
	if !f.gone && bytes.Equal(f.before, f.after) {
		return nil
	}
	now, err := durable.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) && f.before == nil {
		// Who may read the file may come to it.
		err = os.MkdirAll(filepath.Dir(f.path), f.mode|f.mode>>2&0o111|0o100)
	}
	if err != nil {
		return err
	}
	if !bytes.Equal(now, f.before) {
		return fmt.Errorf("cannot change %s: %w", f.path, ErrChanged)
	}
	if f.gone {
		if err := os.Remove(f.path); err != nil {
			return err
		}
		for dir := filepath.Dir(f.path); f.folders > 0 && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
			f.folders-- // one that holds something else stays
		}
		return nil
	}
	if f.before != nil {
		err = durable.Rewrite(f.path, ".ocipd", f.after)
	} else {
		err = durable.Replace(f.path, ".ocipd", f.mode, f.after)
	}
	if err != nil {
		return fmt.Errorf("cannot change %s: %w", f.path, err)
	}
	return nil
}

// note is what is kept of a file: the digest of what was written into it, and what it
// was before anything of ours was in it.
type note struct {
	After  string `json:"after"`
	Before []byte `json:"before"`
	// Missing is set where there was no file, and Folders is how many of those that it is in
	// were made for it.
	Missing bool `json:"missing,omitzero"`
	Folders int  `json:"folders,omitzero"`
	// Entered is what is ours in the file besides the commands of servers.
	Entered []entered `json:"entered,omitempty"`
}

// kept is what is kept of a runtime's files.
type kept struct {
	// Home is the user's folder, and Folder the one that a variable names for the runtime's files,
	// "" where none does.
	Home   string `json:"home,omitzero"`
	Folder string `json:"folder,omitzero"`
	// Self is the program that was entered.
	Self string `json:"self,omitzero"`
	// Socket is that of the daemon.
	Socket string `json:"socket,omitzero"`
	// Managed is set where the machine's settings have the runtime ask.
	Managed bool `json:"managed,omitzero"`
	// Asks is the version of the runtime that was seen to ask, by the row of what it asks about.
	Asks map[string]string `json:"asked,omitempty"`
	// Files are the notes, by path.
	Files map[string]note `json:"files"`
}

// Sum is the digest of a file, by which it is seen whether somebody has changed it.
func Sum(text []byte) string {
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])
}

func (r *Runtime) noteFile(p *Place) string { return filepath.Join(p.Notes, r.Name+".json") }

// kept reads the notes about a runtime's files. A runtime without gates has none: the notes
// about OpenClaw are an [openClawNote].
func (r *Runtime) kept(p *Place) (*kept, error) {
	k := &kept{Files: make(map[string]note)}
	if r.gates == nil {
		return k, nil
	}
	text, err := durable.ReadFile(r.noteFile(p))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(text, k)
	}
	if err == nil && k.Home == "" {
		err = json.Unmarshal(text, &k.Files) // an earlier version has kept the notes alone
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what was changed for %s: %w", r.Title, err)
	}
	return k, nil
}

func (r *Runtime) keep(p *Place, k *kept) error {
	path := r.noteFile(p)
	if len(k.Files) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(k, json.Deterministic(true))
	if err == nil {
		err = os.MkdirAll(p.Notes, 0o700)
	}
	if err == nil {
		// What a runtime's file holds may be secret.
		err = durable.Replace(path, ".part", 0o600, text)
	}
	if err != nil {
		return fmt.Errorf("cannot note what is changed for %s: %w", r.Title, err)
	}
	return nil
}
