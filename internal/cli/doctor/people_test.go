package doctor

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
)

// What a model may do to messages is said.
func TestJudgeIsNamed(t *testing.T) {
	cfg := config.Default()
	if found := judged(cfg); found != nil {
		t.Errorf("no model is asked, found %+v", found)
	}
	for may, want := range map[string]string{config.JudgeAnnotates: "the model wise says its word", config.JudgeReleases: "the model wise may release messages"} {
		cfg.OCIP.Judge = config.Judge{URL: "http://127.0.0.1:1/v1", Model: "wise", May: may}
		if found := judged(cfg); len(found) != 1 || !strings.HasPrefix(found[0].Text, want) || found[0].Health != Pass {
			t.Errorf("found %+v", found)
		}
	}
}

// What weighed keywords give up is said with each setting that weighs them.
func TestWeighedKeywordsAreNamed(t *testing.T) {
	cfg := &config.Config{Agents: []config.Agent{{ID: "coder", Keywords: "weigh"}, {ID: "clerk", Keywords: "enforce"}}}
	found := weighed(cfg)
	if len(found) != 1 || !strings.HasSuffix(found[0].Text, "no person is asked (the keywords of agent coder)") || found[0].Health != Pass {
		t.Errorf("found %+v", found)
	}
	cfg.OCIP.Commitment.Keywords, cfg.OCIP.Unknown.Keywords = "weigh", "weigh"
	if found = weighed(cfg); len(found) != 1 || !strings.Contains(found[0].Text, "(ocip.commitment.keywords, ocip.unknown.keywords, the keywords of agent coder)") {
		t.Errorf("found %+v", found)
	}
	if found = weighed(&config.Config{}); found != nil {
		t.Errorf("nothing is weighed, found %+v", found)
	}
}
