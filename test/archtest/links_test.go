package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pageHeading = regexp.MustCompile("(?m)^#+ (.+)$")
	pageCode    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	pageAnchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names in links of a page's headings, as GitHub makes them, and of its
// explicit anchors.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range pageHeading.FindAllStringSubmatch(pageCode.ReplaceAllString(text, ""), -1) {
		title := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		found[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	for _, m := range pageAnchor.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	return found
}

// TestLinks follows each link of a page to another file of the repository or to a heading.
func TestLinks(t *testing.T) {
	root, _ := moduleRoot(t)
	pages := map[string]string{}
	for _, f := range tree(t) {
		if strings.HasSuffix(f.rel, ".md") {
			pages[f.rel] = f.text
		}
	}
	count := 0
	for rel, text := range pages {
		for _, m := range pageLink.FindAllStringSubmatch(pageCode.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			count++
			file, anchor, named := strings.Cut(m[1], "#")
			target := rel
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(rel), file))
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links to %s, which is not there", rel, m[1])
			} else if page, is := pages[target]; named && is && !anchors(page)[anchor] {
				t.Errorf("%s links to %s, and that page has no such anchor", rel, m[1])
			}
		}
	}
	if count < 200 {
		t.Errorf("%d links were found", count)
	}
}
