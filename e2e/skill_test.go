//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

// skillSays is part of the skill's description, which a client shows its model.
const skillSays = "Works on a task that several agents share in ocipd"

// skill writes the protocol's skill and copies it into a folder of skills.
func (r *trial) skill(folders ...string) {
	r.t.Helper()
	if _, err := os.Stat(r.at("protocol")); err != nil {
		r.operate("task", "files", r.at("protocol"))
	}
	for _, folder := range folders {
		if err := os.CopyFS(r.at(folder+"/ocipd-tasks"), os.DirFS(r.at("protocol/ocipd-tasks"))); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Claude Code and Codex find the skill in the folders of skills that the guide names, and show its
// description to their models.
func TestSkillIsFound(t *testing.T) {
	r := begin(t)
	r.skill(".claude/skills", ".agents/skills")
	for name, model := range map[string]func(*standIn, http.ResponseWriter, map[string]any){"claude": claudeModel, "codex": codexModel} {
		var mu sync.Mutex
		var seen []string
		api := newStandIn(t, func(s *standIn, w http.ResponseWriter, asked map[string]any) {
			text, _ := json.Marshal(asked)
			mu.Lock()
			seen = append(seen, string(text))
			mu.Unlock()
			model(s, w, asked)
		})
		var out string
		if name == "claude" {
			out = r.must(r.env("ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY=none", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"), "claude", "-p", "go on")
		} else {
			r.write(".codex/config.toml", fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\nenv_key = \"STANDIN\"\n", api.URL))
			out = r.must(r.env("STANDIN=none"), "codex", "exec", "--skip-git-repo-check", "go on")
		}
		mu.Lock()
		if !strings.Contains(strings.Join(seen, "\n"), skillSays) {
			t.Errorf("%s has shown its model no skill in %d requests: %s", name, len(seen), out)
		}
		mu.Unlock()
	}
}
