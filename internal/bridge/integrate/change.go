package integrate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// Change is a change to the command of one server.
type Change struct {
	Server
	// Was and Now are the command lines, with the command first.
	Was, Now []string
}

// Plan is a set of planned changes.
type Plan struct {
	runtime *Runtime
	place   *Place
	// Changes are the changes to servers, in the order of the files. It is empty if nothing
	// has to change.
	Changes []Change
	// Edits are the other entries of ocipd that are put into files or removed from them.
	Edits []Edit
	files []change
	// entered holds ocipd's entries in each file, apart from the commands of servers.
	// managed is set if the machine's settings contain the hooks, and agent is the agent of the
	// servers. All are noted.
	entered map[string][]entered
	managed bool
	agent   string
}

// enters adds the items of an edit to the note.
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
		case *settingsfile.Whole:
			one.Whole = i.Text
		}
		if one.Value == "" && one.Block == "" && one.Whole == "" && len(one.Prompts) == 0 {
			continue // nothing of ours is to stand there
		}
		p.entered[path] = append(p.entered[path], one)
	}
}

// change is one file before and after the change.
type change struct {
	// path is where link leads, which the runtime reads.
	path, link    string
	before, after []byte
	mode          fs.FileMode
	// original is the file before ocipd first changed it. missing is set if there was no file, and
	// folders counts the missing folders above it. keep is set if the original is to be noted.
	original      []byte
	missing, keep bool
	folders       int
	// gone is set if the file is to be deleted, out if it is to lose all of ocipd's
	// entries, and known if the file is as ocipd left it and original comes from the note.
	gone, out, known bool
	// whole is set if the file is to lose all that it holds.
	whole bool
}

// recall loads the noted original of a file, if nobody has changed the file since.
func (f *change) recall(notes map[string]note) {
	if note, ok := notes[f.path]; ok && note.After == Sum(f.before) {
		f.original, f.missing, f.folders, f.known = note.Before, note.Missing, note.Folders, true
	}
}

// Behind plans to put every server with a command behind the proxy, as an agent. It also
// changes servers that are behind the proxy as another agent.
func (r *Runtime) Behind(p *Place, agent string) (*Plan, error) {
	p.agent = agent
	plan, notes, err := r.plan(p, func(e *entry) (string, []string, bool) {
		if e.Own || e.Name == gateServer || !p.started(&e.Server) {
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
		return command, args, command != e.Command || !slices.Equal(args, e.Args)
	})
	if err == nil {
		plan.agent = agent
		err = cmp.Or(plan.unambiguous(), plan.mend(notes))
	}
	if err != nil || r.gates == nil || !p.Tools {
		return plan, err
	}
	err = plan.leave(notes)
	edits, failed := r.gates(r, p)
	err = cmp.Or(err, failed)
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

// leave takes ocipd's entries out of the files that the runtime no longer reads, because a link
// leads elsewhere by now.
func (p *Plan) leave(notes map[string]note) error {
	for _, path := range slices.Sorted(maps.Keys(notes)) {
		n := notes[path]
		if now, err := filepath.EvalSymlinks(n.Link); n.Link == "" || err == nil && now == path {
			continue
		}
		e := Edit{File: path, What: "the entries of ocipd: " + n.Link + " leads elsewhere"}
		for i := range n.Entered {
			e.items = append(e.items, n.Entered[i].item())
		}
		if err := p.edit(&e, notes, true); err != nil {
			return err
		}
	}
	return nil
}

// mend removes what [Server.added] finds in the entries of the servers that the plan puts behind
// the proxy.
func (p *Plan) mend(notes map[string]note) error {
	before, err := p.runtime.Servers(p.place)
	if err != nil {
		return err
	}
	for i := range p.files {
		path := p.files[i].path
		entries, err := p.runtime.read(path, p.files[i].after)
		if err != nil {
			return err
		}
		for n := range entries {
			s := &entries[n].Server
			if agent, _, _ := p.place.behind(s); agent == "" {
				continue
			}
			// What is in the user's own entry comes back with it.
			ours := slices.ContainsFunc(before, func(b Server) bool { return b.Name == s.Name && b.Scope == s.Scope && b.Agent != "" })
			for _, at := range s.added() {
				if err := p.edit(&Edit{File: path, What: "what was added to the server " + s.Name, mends: true, added: ours, items: []settingsfile.Item{settingsfile.Gone{Item: p.runtime.member(s, at...)}}}, notes, false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// unambiguous refuses servers whose tool names could be confused. A runtime knows a tool by the
// name of its server, with _ for each other character, two underscores, and the tool's own name.
func (p *Plan) unambiguous() error {
	if p.runtime.row != nil {
		return nil // its row says where a name tells the server
	}
	for i := range p.Changes {
		if p.runtime.toolName == nil {
			break
		}
		name := p.runtime.toolName(p.Changes[i].Name)
		if strings.Contains(name, parting) || strings.HasSuffix(name, "_") {
			return fmt.Errorf("cannot put the server %q behind the proxy: %s calls it %s in the names of its tools, where %s parts servers from tools, so its tools could be another server's; give it another name", p.Changes[i].Name, p.runtime.Title, name, parting)
		}
	}
	return nil
}

// Remove plans to take every server out of the proxy again.
func (r *Runtime) Remove(p *Place) (*Plan, error) {
	plan, notes, err := r.plan(p, func(e *entry) (string, []string, bool) {
		if e.Agent == "" {
			return "", nil, false
		}
		command, args := p.inner(e)
		return command, args, true
	})
	if err == nil {
		err = plan.leave(notes)
	}
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

// giveBack restores a file byte for byte, if nobody has changed it since.
func (f *change) giveBack(notes map[string]note) {
	if n := notes[f.path]; f.whole {
		f.after, f.gone, f.folders = n.Before, len(n.Before) == 0 && f.before != nil, n.Folders
	}
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
	err = r.each(p, r.files(p), func(link, path string, text []byte, entries []entry) error {
		after, bare := text, text
		kept, err := r.read(path, notes[path].Before)
		if err != nil {
			kept = nil // there was no file, or none that is understood
		}
		// From the end, so that earlier positions stay valid.
		slices.SortFunc(entries, func(a, b entry) int { return a.command.begin - b.command.begin })
		for _, e := range slices.Backward(entries) {
			command, args, ok := write(&e)
			var was *remote
			bare, was = e.withoutProxy(p, bare, kept)
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
		f := change{path: path, link: link, before: text, after: after, original: bare, mode: info.Mode().Perm(), keep: !bytes.Equal(bare, after)}
		f.recall(notes)
		plan.files = append(plan.files, f)
		return nil
	})
	slices.Reverse(plan.Changes)
	return plan, notes, err
}

// withoutProxy takes a server out of the proxy in a file's text. was is the server's address if it is one over HTTP.
func (e *entry) withoutProxy(p *Place, text []byte, kept []entry) (bare []byte, was *remote) {
	if e.Agent == "" {
		return text, nil
	}
	inner, args := p.inner(e)
	was = remoteOf(p, inner, args)
	if was != nil && e.back != nil {
		return swap(text, e.back(e, was, kept)), was
	}
	return e.replace(text, inner, args), was
}

// Empty reports whether no file has to change. [Plan.Apply] then only notes the state.
func (p *Plan) Empty() bool {
	return !slices.ContainsFunc(p.files, func(f change) bool { return f.gone || !bytes.Equal(f.before, f.after) })
}

// check parses a changed text as its runtime will, and compares it with the plan.
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

// replace writes another command line for the entry into a text, in which everything after
// the entry may have changed already.
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

// ErrChanged means that a file changed between planning and writing.
var ErrChanged = errors.New("the file was changed meanwhile: try again")

// Apply writes the plan's files. It writes each file completely or not at all.
func (p *Plan) Apply() error {
	k, err := p.runtime.kept(p.place)
	if err != nil {
		return err
	}
	notes := k.Files
	k.Home, k.Folder, k.Self, k.Socket = p.place.Home, p.place.Getenv(p.runtime.variable), p.place.Self, p.place.daemon()
	k.Finds, k.Agent, k.Token = p.place.finds(), p.agent, p.place.Token
	k.Managed = p.managed || k.Managed && !p.place.Tools
	for _, f := range p.files {
		if !p.place.Tools {
			p.entered[f.path] = notes[f.path].Entered // of before, and left as it is
			f.keep = f.keep || len(p.entered[f.path]) > 0
		}
		if f.keep {
			n := note{After: Sum(f.after), Before: f.original, Missing: f.missing, Folders: f.folders, Entered: p.entered[f.path]}
			if f.link != f.path {
				n.Link = f.link
			}
			notes[f.path] = n
		}
	}
	// The note is written first and removed last. Without it the original could not be
	// restored byte for byte.
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

// write writes one file, unless somebody has changed it since the plan.
func (f *change) write() error {
	if !f.gone && bytes.Equal(f.before, f.after) {
		return nil
	}
	now, err := durable.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) && f.before == nil {
		// Users that may read the file may enter its folder.
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

// note describes a file: the digest of the text that ocipd wrote, and the original text
// before ocipd first changed it.
type note struct {
	After  string `json:"after"`
	Before []byte `json:"before"`
	// Missing is set if there was no file. Folders counts the folders that were created for it.
	Missing bool `json:"missing,omitzero"`
	Folders int  `json:"folders,omitzero"`
	// Entered are ocipd's entries in the file, apart from the commands of servers.
	Entered []entered `json:"entered,omitempty"`
	// Link is the path at which the runtime reads the file, if it is another one.
	Link string `json:"link,omitzero"`
}

// kept are the notes about a runtime's files.
type kept struct {
	// Home is the user's folder. Folder is the folder that a variable names for the
	// runtime's files, or "".
	Home   string `json:"home,omitzero"`
	Folder string `json:"folder,omitzero"`
	// Self is the path of ocipd that was entered.
	Self string `json:"self,omitzero"`
	// Socket is the daemon's socket, and Finds are the options that find it in what was entered.
	Socket string   `json:"socket,omitzero"`
	Finds  []string `json:"finds,omitempty"`
	// Agent and Token are the agent and the file of its token in what was entered.
	Agent string `json:"agent,omitzero"`
	Token string `json:"token,omitzero"`
	// Managed is set if the machine's settings contain the hooks.
	Managed bool `json:"managed,omitzero"`
	// Asks maps a row of [Runtime.Open] to the version of the runtime that a trial saw ask about it.
	Asks map[string]string `json:"asked,omitempty"`
	// Files are the notes, by path.
	Files map[string]note `json:"files"`
}

// Sum is the digest of a file, which shows whether somebody has changed it.
func Sum(text []byte) string {
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])
}

func (r *Runtime) noteFile(p *Place) string { return filepath.Join(p.Notes, r.Name+".json") }

// kept reads the notes about a runtime's files. It returns empty notes for a runtime
// without gates, such as OpenClaw, which has an [openClawNote].
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
		// The runtime's file may contain secrets.
		err = durable.Replace(path, ".part", 0o600, text)
	}
	if err != nil {
		return fmt.Errorf("cannot note what is changed for %s: %w", r.Title, err)
	}
	return nil
}
