package mcp

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"bailey"
)

func TestNames(t *testing.T) {
	long := "pack." + strings.Repeat("x", 60)
	for _, tt := range []struct {
		name string
		ids  []bailey.CapabilityID
		want []string // in the order of ids; "": not listed
	}{
		{"plain", ids("git.status", "git.branch-list", "gcloud-aiplatform.models_list"), []string{"git_status", "git_branch-list", "gcloud-aiplatform_models_list"}},
		{"a collision", ids("a.b_c", "a_b.c", "x.y"), []string{"a_b_c-" + digits("a.b_c"), "a_b_c-" + digits("a_b.c"), "x_y"}},
		{"the same twice", ids("a.b", "a.b"), []string{"a_b", "a_b"}},
		{"other letters", ids("pâck.über", "a.日本"), []string{"p_ck__ber", "a___"}},
		{"too long", ids(long), []string{"pack_" + strings.Repeat("x", 32) + "-" + digits(long)}},
		{"empty", ids(""), []string{"-" + digits("")}},
		{"the form for collisions, taken", ids("a.b_c", "a_b.c", "a.b_c-"+digits("a.b_c")),
			[]string{"a_b_c-" + digits("a.b_c"), "a_b_c-" + digits("a_b.c"), "a_b_c-" + digits("a.b_c") + "-" + digits("a.b_c-"+digits("a.b_c"))}},
		{"a collision of hashes", ids("p.涹丿", "p.鎺乻", "x.y"), []string{"", "", "x_y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := assignNames(tt.ids)
			listed := map[bailey.CapabilityID]bool{}
			for i, id := range tt.ids {
				if listed[id] = tt.want[i] != ""; listed[id] && got[tt.want[i]] != id {
					t.Errorf("%s: %v", id, got)
				}
			}
			for n, id := range got {
				if !listed[id] {
					t.Errorf("%s is listed as %s", id, n)
				}
			}
			rev := slices.Clone(tt.ids)
			slices.Reverse(rev)
			if !maps.Equal(got, assignNames(rev)) {
				t.Error("the order of ids matters")
			}
		})
	}
}

func ids(s ...string) (out []bailey.CapabilityID) {
	for _, id := range s {
		out = append(out, bailey.CapabilityID(id))
	}
	return out
}

func digits(id string) string {
	h := hashedName(bailey.CapabilityID(id))
	return h[len(h)-10:]
}

// FuzzNames checks that colliding plain names are distinguished, and that no name is longer than agents accept.
func FuzzNames(f *testing.F) {
	f.Add("a.b_c a_b.c a.b.c")
	f.Add("x " + strings.Repeat("y", 100))
	ok := regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)
	f.Fuzz(func(t *testing.T, text string) {
		set := map[bailey.CapabilityID]bool{}
		for _, id := range ids(strings.Split(text, " ")...) {
			set[id] = true
		}
		got := assignNames(slices.Collect(maps.Keys(set)))
		if len(got) != len(set) {
			t.Errorf("%d names for %d ids: %v", len(got), len(set), got)
		}
		for n := range got {
			if !ok.MatchString(n) {
				t.Errorf("name %q", n)
			}
		}
	})
}

func TestGuess(t *testing.T) {
	listed := assignNames(ids("git.status", "a.b_c", "a_b.c"))
	for name, want := range map[string]bailey.CapabilityID{
		"git_push":        "git.push", // hidden: the gate gives the reason
		"git_branch-list": "git.branch-list",
		"git.status":      "git.status",
		"a_b_c":           "a_b_c", // ambiguous: stands for neither of the two
		"a.b_c":           "a.b_c",
		"nothing":         "nothing",
		"":                "",
		"x_\x1b[2J":       "x.\uFFFD[2J",
		"x_\u202e":        "x.\uFFFD",
	} {
		if got := guessCapability(name, listed); got != want {
			t.Errorf("%q means %q, not %q", name, got, want)
		}
	}
}

func TestNameMeansWhatWasListed(t *testing.T) {
	g := &gate{tools: []Tool{{ID: "a.b_c"}}}
	w := dial(t, g)
	w.hello("2025-11-25")
	w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	g.tools = []Tool{{ID: "a_b.c"}} // now the name would stand for another capability
	w.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a_b_c"}}`)
	w.ask(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"other_x"}}`)
	w.ask(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a_b_c"}}`)
	w.ask(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
	w.ask(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"a_b_c"}}`)
	var got []string
	for _, c := range g.got() {
		got = append(got, string(c.Capability))
	}
	if want := "a.b_c other.x a.b_c a_b.c"; strings.Join(got, " ") != want {
		t.Errorf("called %v", got)
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "claude-code/2.1", "a\x00b", "\xff\xfe", strings.Repeat("日", 99), "\u202eabc", "e\u0301"} {
		f.Add(s, 16)
	}
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = 3 + max(n, -n)%200
		got := printableText(s, n)
		if len(got) > n || !utf8.ValidString(got) {
			t.Errorf("%q in %d bytes: %q", s, n, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) && r != utf8.RuneError {
				t.Errorf("%q holds %U", got, r)
			}
		}
		if clean := fmt.Sprint(s); len(s) <= n && strings.IndexFunc(clean, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) < 0 && got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}
