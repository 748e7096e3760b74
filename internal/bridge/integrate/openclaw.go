package integrate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/integrations"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// GatewayApp is the app that speaks for the agents of OpenClaw's Gateway.
const GatewayApp = "@openclaw/gateway"

// pluginID is the plugin's id in OpenClaw, and openClawProgram OpenClaw's own program.
const (
	pluginID        = "ocip"
	openClawProgram = "openclaw"
)

// openClaw is gated by ocipd's plugin in its Gateway, not by MCP servers.
var openClaw = &Runtime{
	Name: "openclaw", Title: directory.TitleOf(openClawProgram), Program: openClawProgram,
	Open: []string{
		"agents with another harness than OpenClaw's own: the tools of that harness",
		"shells and other tools that can reach the network (tools: enforce of ocipd's configuration decides about calls of them, not about what they do then)",
	},
	files:  func(*Place) []string { return nil },
	strays: openClawStrays,
	Canary: (*OpenClaw)(nil).canary,
}

// OpenClaw is this user's OpenClaw.
type OpenClaw struct {
	place *Place
	// Version is OpenClaw's version, and Agents are the agents that it runs.
	Version string
	Agents  []string
	// Settings is its configuration file, and Plugin the folder of ocipd's plugin.
	Settings, Plugin string
	// plugins and gateway are parts of its settings.
	plugins pluginSettings
	gateway struct {
		Mode string `json:"mode"`
	}
	// Running is set if its Gateway runs. Installing a plugin puts it in force there.
	Running bool
}

// leastOpenClaw is the first version of OpenClaw whose gates fail closed.
var leastOpenClaw = [3]int{2026, 9, 0}

var versionPattern = regexp.MustCompile(`\b(\d{4})\.(\d+)\.(\d+)`)

// checkOpenClaw refuses versions that may not have gates that fail closed.
func checkOpenClaw(version string) error {
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return fmt.Errorf("cannot tell which OpenClaw this is: it says %q", version)
	}
	var is [3]int
	for i := range is {
		is[i], _ = strconv.Atoi(m[i+1]) // digits
	}
	if slices.Compare(is[:], leastOpenClaw[:]) < 0 {
		return fmt.Errorf("OpenClaw %s is too old: before %d.%d.%d its gates pass what they cannot decide; update it: openclaw update", m[0], leastOpenClaw[0], leastOpenClaw[1], leastOpenClaw[2])
	}
	return nil
}

// commandTime bounds one command of OpenClaw.
const commandTime = 2 * time.Minute

// Two commands of OpenClaw, or one beside a starting Gateway, can block each other. ocipd
// then waits and tries again.
const (
	busyWord  = "another OpenClaw process owns"
	busyTries = 10
	busyWait  = time.Second
)

// openclaw runs a command of OpenClaw, and returns its output.
func openclaw(ctx context.Context, p *Place, args ...string) (out []byte, err error) {
	program := OnPath(p.Getenv, openClawProgram)
	if program == "" {
		return nil, errors.New("openclaw is not in PATH")
	}
	for range busyTries {
		if out, err = openclawOnce(ctx, program, args); err == nil || !strings.Contains(err.Error(), busyWord) {
			break
		}
		wait := time.NewTimer(busyWait)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return out, err
		}
	}
	return out, err
}

func openclawOnce(ctx context.Context, program string, args []string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, commandTime)
	defer stop()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("openclaw %s: %w: %s", strings.Join(args[:min(2, len(args))], " "), err, lastWords(out.Bytes(), said.String()))
	}
	return out.Bytes(), nil
}

// lastWords returns the reason that a failed command gives.
func lastWords(out []byte, said string) string {
	var failed struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if readJSON(out, &failed) == nil && failed.Error.Message != "" {
		return failed.Error.Message
	}
	for line := range strings.Lines(said) {
		if _, reason, ok := strings.Cut(line, "Reason: "); ok {
			return strings.TrimSpace(reason)
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(said[max(0, len(said)-300):], ""))
}

// FindOpenClaw describes this user's OpenClaw.
func FindOpenClaw(ctx context.Context, p *Place) (*OpenClaw, error) {
	program := OnPath(p.Getenv, openClawProgram)
	if program == "" {
		return nil, errors.New("there is no OpenClaw: no openclaw in PATH")
	}
	var agents []struct {
		ID string `json:"id"`
	}
	o, err := settingsOf(ctx, p, Version(ctx, program))
	if err == nil {
		err = askJSON(ctx, p, &agents, "agents", "list", "--json")
	}
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		o.Agents = append(o.Agents, a.ID)
	}
	if len(o.Agents) > 0 {
		p.openClawAgent = o.Agents[0]
	}
	return o, nil
}

// settingsOf returns an OpenClaw with its settings, but without its agents.
func settingsOf(ctx context.Context, p *Place, version string) (o *OpenClaw, err error) {
	o = &OpenClaw{place: p, Version: version, Plugin: filepath.Join(p.openClawState(), "extensions", pluginID)}
	if o.Settings, err = p.settingsFile(ctx); err != nil || o.readSettings() {
		return o, err
	}
	return o, cmp.Or(setting(ctx, p, &o.plugins, "plugins"), setting(ctx, p, &o.gateway, "gateway"))
}

// readSettings reads the settings if they are one file of plain JSON, as OpenClaw writes
// it. This saves OpenClaw's commands, which take seconds each.
func (o *OpenClaw) readSettings() bool {
	text, err := durable.ReadFile(o.Settings)
	if err != nil || !plainJSON(text) {
		return false
	}
	var all struct {
		Plugins jsontext.Value `json:"plugins"`
		Gateway jsontext.Value `json:"gateway"`
	}
	if json.Unmarshal(text, &all) != nil {
		return false
	}
	read := func(part jsontext.Value, into any) bool { return part == nil || json.Unmarshal(part, into) == nil }
	return read(all.Plugins, &o.plugins) && read(all.Gateway, &o.gateway)
}

// plainJSON reports whether settings refer to nothing outside their file.
func plainJSON(text []byte) bool {
	return !bytes.Contains(text, []byte("$include")) && !bytes.Contains(text, []byte("${"))
}

// settingsFile is OpenClaw's settings file, which may not exist yet.
func (p *Place) settingsFile(ctx context.Context) (string, error) {
	usual := filepath.Join(p.openClawState(), "openclaw.json")
	elsewhere := func(name string) bool { return p.Getenv(name) != "" }
	if _, err := os.Stat(usual); err == nil && !slices.ContainsFunc([]string{"OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "OPENCLAW_HOME"}, elsewhere) {
		return usual, nil
	}
	out, err := openclaw(ctx, p, "config", "file")
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	file := lines[len(lines)-1]
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		file = filepath.Join(p.Home, rest)
	}
	if !filepath.IsAbs(file) {
		return "", fmt.Errorf("cannot tell where OpenClaw's settings are: openclaw config file says %q", file)
	}
	return file, nil
}

// openClawState is OpenClaw's state folder.
func (p *Place) openClawState() string {
	if dir := p.Getenv("OPENCLAW_STATE_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(p.Home, ".openclaw")
}

// setting reads a part of OpenClaw's settings, with its defaults. An unset part leaves into
// unchanged.
func setting(ctx context.Context, p *Place, into any, path string) error {
	out, err := openclaw(ctx, p, "config", "get", path, "--json")
	if err != nil && strings.Contains(err.Error(), "unset") {
		return nil
	}
	if err != nil {
		return err
	}
	return readJSON(out, into)
}

func askJSON(ctx context.Context, p *Place, into any, args ...string) error {
	out, err := openclaw(ctx, p, args...)
	if err != nil {
		return err
	}
	return readJSON(out, into)
}

// readJSON parses a command's output, which may begin with warnings.
func readJSON(out []byte, into any) error {
	at := bytes.IndexAny(out, "[{")
	for at > 0 && out[at-1] != '\n' {
		next := bytes.IndexAny(out[at+1:], "[{")
		if next < 0 {
			break
		}
		at += 1 + next
	}
	if at < 0 {
		return fmt.Errorf("cannot read what openclaw says: %q", out)
	}
	d := jsontext.NewDecoder(bytes.NewReader(out[at:]))
	if err := json.UnmarshalDecode(d, into); err != nil {
		return fmt.Errorf("cannot read what openclaw says: %w", err)
	}
	return nil
}

// Install puts the plugin into OpenClaw, with the rights that it needs, and has a running
// Gateway load it. The caller has called Note before.
func (o *OpenClaw) Install(ctx context.Context, socket string) error {
	return o.changing(func(note *openClawNote) error {
		note.Plugin, note.Allow = true, note.Allow || o.allowed() != nil
		if err := o.place.keepOpenClaw(note); err != nil {
			return err
		}
		files, settings := o.Lacks(socket)
		if files {
			if err := o.installPlugin(ctx); err != nil {
				return err
			}
		}
		if len(settings) > 0 {
			if err := o.patch(ctx, map[string]any{"plugins": o.Wanted(socket)}); err != nil {
				return err
			}
		}
		if (files || len(settings) > 0) && o.Running {
			// Otherwise a running Gateway continues runs that have no hooks.
			if _, err := openclaw(ctx, o.place, "plugins", "reload", pluginID); err != nil {
				return fmt.Errorf("the Gateway that runs has not taken the plugin, start it again: openclaw gateway restart: %w", err)
			}
		}
		return nil
	})
}

func (o *OpenClaw) installPlugin(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "ocipd-openclaw")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it holds no secret
	if err := os.CopyFS(dir, integrations.OpenClaw()); err != nil {
		return err
	}
	if _, err := openclaw(ctx, o.place, "plugins", "install", dir, "--force", "--accept-capabilities"); err != nil {
		return err
	}
	if !samePlugin(o.Plugin) {
		return fmt.Errorf("OpenClaw says that it has installed the plugin, and %s does not hold it", o.Plugin)
	}
	return nil
}

// patch has OpenClaw write settings into its file.
func (o *OpenClaw) patch(ctx context.Context, settings map[string]any) error {
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "ocipd-openclaw-*.json5")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it holds no secret
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		_, err = openclaw(ctx, o.place, "config", "patch", "--file", f.Name())
	}
	return err
}

// whole reads a file that may not exist.
func whole(path string) (text []byte, there bool, err error) {
	text, err = durable.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return text, err == nil, err
}

// Remove removes the plugin and its settings from OpenClaw, and returns the note about the
// daemon's configuration, or nil. If nobody has changed the settings since, it restores
// them byte for byte.
func (o *OpenClaw) Remove(ctx context.Context) (*ConfigNote, error) {
	note, err := o.place.openClawNote()
	if err != nil {
		return nil, err
	}
	now, _, err := whole(o.Settings)
	if err != nil {
		return nil, err
	}
	unchanged := note != nil && note.After == settingsSum(now)
	if _, err := os.Stat(o.Plugin); err == nil {
		if _, err := openclaw(ctx, o.place, "plugins", "uninstall", pluginID, "--force"); err != nil {
			return nil, err
		}
	}
	switch {
	case unchanged && note.Was:
		err = putBack(o.Settings, note.Settings)
	case unchanged:
		err = os.Remove(o.Settings)
	default:
		err = o.unset(ctx, note)
	}
	if err != nil {
		return nil, err
	}
	// It stays if it still holds messages that were being sent.
	_ = os.Remove(filepath.Join(o.place.openClawState(), "ocipd"))
	if note == nil {
		return nil, nil
	}
	return note.Config, note.removeTokens()
}

// Planned describes what [OpenClaw.Remove] removes, one line each; nil if there is nothing to remove.
func (o *OpenClaw) Planned() (lines []string, err error) {
	note, err := o.place.openClawNote()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.Plugin); err == nil {
		lines = append(lines, o.Plugin+": is removed")
	}
	if note == nil {
		if _, ok := o.plugins.Entries[pluginID]; ok {
			lines = append(lines, o.Settings+": plugins.entries."+pluginID+" is taken out")
		}
		return lines, nil
	}
	now, _, err := whole(o.Settings)
	if err != nil {
		return nil, err
	}
	becomes := func(file string, same, was bool, ours string) string {
		switch {
		case same && was:
			return file + ": becomes what it was, byte for byte"
		case same:
			return file + ": is removed"
		}
		return file + ": was changed since, so that " + ours + " alone are taken out"
	}
	lines = append(lines, becomes(o.Settings, note.After == settingsSum(now), note.Was, "our entries"))
	for i := range note.Tasks {
		lines = append(lines, note.Tasks[i].Token+": is removed, and the grant of "+note.Tasks[i].Actor+" is revoked")
	}
	if c := note.Config; c != nil {
		text, _, err := whole(c.File)
		if err != nil {
			return nil, err
		}
		lines = append(lines, becomes(c.File, c.After == Sum(text), c.Was, "OpenClaw's agents"))
	}
	return lines, nil
}

// Forget deletes the note about the integration.
func (o *OpenClaw) Forget() error {
	if err := os.Remove(openClaw.noteFile(o.place)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func putBack(path string, text []byte) error {
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		target = path
	}
	return durable.Replace(target, ".ocipd", mode, text)
}

// unset removes only ocipd's entries from OpenClaw's settings.
func (o *OpenClaw) unset(ctx context.Context, note *openClawNote) error {
	patch, err := o.withoutTasks(ctx, note)
	if err != nil {
		return err
	}
	if patch == nil {
		patch = make(map[string]any)
	}
	plugins := make(map[string]any)
	if _, ok := o.plugins.Entries[pluginID]; ok {
		plugins["entries"] = map[string]any{pluginID: nil}
	}
	if note != nil && note.Allow {
		plugins["allow"] = slices.DeleteFunc(slices.Clone(o.plugins.Allow), func(id string) bool { return id == pluginID })
	}
	if len(plugins) > 0 {
		patch["plugins"] = plugins
	}
	if len(patch) == 0 {
		return nil
	}
	return o.patch(ctx, patch)
}

// canary has an agent of the Gateway call OpenClaw's own tool, through the agent's model.
func (*OpenClaw) canary(ctx context.Context, _ *Runtime, p *Place, c *Canary) (ways int, err error) {
	if !GatewayRuns() {
		return 0, fmt.Errorf("no Gateway runs: %w", ErrNotSent)
	}
	id := p.openClawAgent
	if id == "" {
		o, err := FindOpenClaw(ctx, p)
		if err != nil {
			return 0, err
		}
		if err := o.Fit(ctx); err != nil {
			return 0, err
		}
		id = o.Agents[0]
	}
	call, err := json.Marshal(map[string]any{"sessionKey": c.Session, "message": c.Text, "timeoutSeconds": 0}, json.Deterministic(true))
	if err != nil {
		return 0, err
	}
	var turn struct {
		Result struct {
			Meta struct {
				ToolSummary struct {
					Tools []string `json:"tools"`
				} `json:"toolSummary"`
			} `json:"meta"`
		} `json:"result"`
	}
	err = askJSON(ctx, p, &turn, "agent", "--agent", id, "--session-key", "agent:"+id+":"+canaryChannel, "--timeout", "90", "--json", "--message",
		"The operator of this machine tries the gate before your messages. Call the tool sessions_send once, with these arguments: "+string(call)+
			"\nIt is refused, as it should be. Do not call it again, and send nothing another way: answer with what the tool said.")
	if err != nil {
		return 1, err
	}
	if !slices.Contains(turn.Result.Meta.ToolSummary.Tools, "sessions_send") {
		return 1, ErrNotSent
	}
	return 1, nil
}
