package toolsearch

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"bailey/pack"
)

func builtin(t testing.TB) *pack.Catalog {
	t.Helper()
	c, err := pack.LoadBuiltin(os.DirFS("../../packs"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// named returns a pack whose capabilities have the names and nothing else.
func named(pack string, names ...string) *fstest.MapFile {
	var b strings.Builder
	b.WriteString("name: " + pack + "\nversion: '1'\ncapabilities:\n")
	for _, n := range names {
		b.WriteString("  - {name: " + n + ", risk: low, sideEffectClass: none, reversibility: readOnly, backend: {type: subprocess, command: x}}\n")
	}
	return &fstest.MapFile{Data: []byte(b.String())}
}

func idsOf(found []Match) string {
	var ids []string
	for _, m := range found {
		ids = append(ids, string(m.Capability.ID))
	}
	return strings.Join(ids, " ")
}

func TestSearchRanks(t *testing.T) {
	c := builtin(t)
	for question, first := range map[string]string{
		"git log":                      "git.log",
		"commits newest":               "git.log",
		"Show me the commit's CHANGES": "git.show",
		"branches":                     "git.branch-list",
		"branchlist":                   "git.branch-list",
		"what time is it":              "system.date",
		"dat":                          "system.date",
		"git satus":                    "git.status",
		"max commits limit":            "git.log",
		"staged":                       "git.restore-staged",
		"message":                      "system.echo",
		"git_status":                   "git.status",
	} {
		if found := idsOf(Search(c, question, 0)); strings.SplitN(found, " ", 2)[0] != first {
			t.Errorf("%q finds %q, want %s first", question, found, first)
		}
	}
}

func TestSearchFindsNothing(t *testing.T) {
	c := builtin(t)
	for _, question := range []string{"", " ", "the of and", "zookeeper", "x", "\x00\xff", "☃", strings.Repeat("z", 1<<20)} {
		if found := Search(c, question, 0); len(found) != 0 {
			t.Errorf("%.20q finds %s", question, idsOf(found))
		}
	}
}

func TestSearchTiesAndLimits(t *testing.T) {
	c, err := pack.Load(fstest.MapFS{"a/pack.yaml": named("zeta", "run", "ran"), "b/pack.yaml": named("alpha", "run"), "c/pack.yaml": named("omicron", "run")})
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]string{0: "alpha.run omicron.run zeta.run", -1: "alpha.run omicron.run zeta.run", 2: "alpha.run omicron.run", 9: "alpha.run omicron.run zeta.run"} {
		if found := idsOf(Search(c, "run", limit)); found != want {
			t.Errorf("limit %d: %s, want %s", limit, found, want)
		}
	}
	if found := idsOf(Search(c, "zeta run", 0)); found != "zeta.run zeta.ran alpha.run omicron.run" && found != "zeta.run alpha.run omicron.run zeta.ran" {
		t.Errorf("both words first, then one: %s", found)
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{"maxCount": "max|count", "git.branch-list": "git|branch|list", "HTTPProxy": "httpproxy", "Größe_2": "größe|2", "": ""} {
		if got := strings.Join(splitWords(text), "|"); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

func FuzzSearch(f *testing.F) {
	x := newIndex(builtin(f))
	for _, seed := range []string{"git log", "satus", "\xff\xfe", "ÄÖ maxCount", strings.Repeat("ab ", 5000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, question string) {
		found := x.findMatches(question, 3)
		if len(found) > 3 {
			t.Errorf("%d matches over the limit", len(found))
		}
		for i, m := range found {
			if m.Score <= 0 || i > 0 && m.Score > found[i-1].Score {
				t.Errorf("%q: scores out of order: %v", question, found)
			}
		}
		if asked := askedWords(question); len(asked) > maxAsked {
			t.Errorf("%d words", len(asked))
		} else if utf8.ValidString(question) && slices.ContainsFunc(asked, func(w searchWord) bool { return !utf8.ValidString(w.text + w.stem) }) {
			t.Errorf("%q became invalid: %q", question, asked)
		}
	})
}
