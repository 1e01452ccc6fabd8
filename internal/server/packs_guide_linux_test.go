package server

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
	"bailey/pack"
)

var (
	guideYAML = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	guideCall = regexp.MustCompile("(?m)^\\| `(ask\\.[^`]+)` \\| `?(.+?)`? \\|$")
)

// TestPacksGuide checks that the manifest in docs/packs.md loads, and that its calls have the results that the page
// shows.
func TestPacksGuide(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	text, err := os.ReadFile("../../docs/packs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "## The manifest\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	shown := guideYAML.FindStringSubmatch(section)
	if !ok || shown == nil {
		t.Fatal("the page shows no manifest")
	}
	catalog, err := pack.Load(fstest.MapFS{"ask/pack.yaml": {Data: []byte(shown[1])}})
	if err != nil {
		t.Fatal(err)
	}
	calls := guideCall.FindAllStringSubmatch(section, -1)
	if len(calls) < 7 {
		t.Fatalf("only %d calls found: this test is not reading the page", len(calls))
	}
	ktest.Require(t, "jq")
	s, dir := looksOnly(t, catalog), project(t)
	for _, c := range calls {
		words := strings.Fields(c[1])
		input, err := apitype.ParseInputs(words[1:])
		if err != nil {
			t.Fatal(err)
		}
		res := try(t, s, bailey.CapabilityID(words[0]), dir, input)
		if said := string(res.Stdout); res.Err == nil && strings.TrimSpace(said) != c[2] {
			t.Errorf("%s: %s", c[1], said)
		}
		if res.Err != nil && !strings.Contains(res.Err.Error(), c[2]) {
			t.Errorf("%s: %v", c[1], res.Err)
		}
	}
}
