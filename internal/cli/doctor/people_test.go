package doctor

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
)

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
