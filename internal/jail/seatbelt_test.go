package jail

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// TestGoldenSeatbelt compares profiles with golden files, which a person should review. A failure prints the new text.
func TestGoldenSeatbelt(t *testing.T) {
	for name, p := range map[string]seatbeltProfile{
		"seatbelt-call": callProfile("/usr/bin/git", []string{"/usr/bin/less"}, []string{"/Users/me/src/a \"b\" \\c", "/private/etc/gitconfig"}, []string{"/Users/me/src/a \"b\" \\c/.ssh"}),
		"seatbelt-bare": callProfile("/bin/date", nil, nil, nil),
		"seatbelt-hook": hookProfile("/Users/me/hooks/notify/main", "/Users/me/hooks/notify"),
	} {
		got, err := p.renderProfile()
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/" + name + ".golden")
		if err != nil || got != string(want) {
			t.Errorf("%s.golden: %v; the profile is\n%s", name, err, got)
		}
	}
}

// TestSeatbeltHolds parses the rules of a call's profile and checks what they allow.
func TestSeatbeltHolds(t *testing.T) {
	text, err := callProfile("/usr/bin/git", nil, []string{"/Users/me/src"}, []string{"/Users/me/src/.ssh"}).renderProfile()
	if err != nil {
		t.Fatal(err)
	}
	rules := parseSBPL(t, text)
	for _, c := range []struct {
		op, path string
		want     bool
	}{
		{"file-read-data", "/Users/me/src/main.go", true},
		{"file-read-data", "/Users/me/src/.ssh/id", false},
		{"file-read-data", "/Users/me/.ssh/id", false},
		{"file-read-data", "/Users/me/srcs", false},
		{"file-read-metadata", "/Users/me", true},
		{"file-read-data", "/Users/me", false},
		{"file-write-create", "/Users/me/src/x", false},
		{"file-write-create", "/private/tmp/x", false},
		{"file-write-create", "HOME/x", true},
		{"file-write-data", "/dev/null", true},
		{"process-exec", "/usr/bin/git", true},
		{"process-exec", "/bin/sh", false},
		{"process-exec", "/Users/me/src/x", false},
		{"process-exec", "HOME/x", false},
		{"file-map-executable", "/usr/lib/libz.dylib", true},
		{"file-map-executable", "/Users/me/src/x.dylib", false},
		{"file-map-executable", "HOME/x.dylib", false},
		{"network-outbound", "", false},
		{"mach-lookup", "com.apple.securityd", false},
		{"process-info-pidinfo", "", false},
	} {
		if got := rules.allow(c.op, c.path); got != c.want {
			t.Errorf("%s %s: allowed is %v, want %v", c.op, c.path, got, c.want)
		}
	}
}

func TestSeatbeltRefusesNames(t *testing.T) {
	for _, path := range []string{"", "/", "relative", "/a/../b", "/a/", "/a//b", "/a\x00b", "/a\nb", "/a\rb", "/a\tb", "/a\x7fb", "/a\u0085b", "/a\xffb", "/a\x1b[2J"} {
		for name, p := range map[string]seatbeltProfile{
			"place": callProfile("/bin/x", nil, []string{path}, nil), "program": callProfile(path, nil, nil, nil),
			"helper": callProfile("/bin/x", []string{path}, nil, nil), "mask": callProfile("/bin/x", nil, nil, []string{path}),
		} {
			var refusal *bailey.Error
			if text, err := p.renderProfile(); !errors.As(err, &refusal) || refusal.Hint == "" {
				t.Errorf("%s %q: %v\n%s", name, path, err, text)
			}
		}
	}
}

// FuzzSeatbelt checks that no path changes the rules of the profile, or adds a string other than itself and the
// directories above it.
func FuzzSeatbelt(f *testing.F) {
	for _, seed := range []string{"/a", `/a"b`, `/a\`, `/a\"`, `/a")) (allow default) ("`, "/a\n(allow default)", "/a;b", "/a#|b", "/ä b/(c)", `/a\x22)`, "/a\u2028b"} {
		f.Add(seed)
	}
	plain, err := callProfile("/bin/x", nil, []string{"/one/two"}, []string{"/one/two"}).renderProfile()
	if err != nil {
		f.Fatal(err)
	}
	want := parseSBPL(f, plain)
	f.Fuzz(func(t *testing.T, path string) {
		text, err := callProfile("/bin/x", nil, []string{path}, []string{path}).renderProfile()
		if err != nil {
			return
		}
		got := parseSBPL(t, text)
		if len(got) != len(want) {
			t.Fatalf("%q makes %d rules of %d:\n%s", path, len(got), len(want), text)
		}
		given := []string{path}
		for i := range path {
			if path[i] == '/' && i > 0 {
				given = append(given, path[:i])
			}
		}
		for i, r := range got {
			if r.verb != want[i].verb || !slices.Equal(r.ops, want[i].ops) {
				t.Fatalf("%q changes rule %d to %v", path, i, r)
			}
			for _, c := range r.conditions {
				if !slices.Contains(want[i].conditions, c) && !slices.Contains(given, c.text) {
					t.Fatalf("%q puts %v into rule %v", path, c, r)
				}
			}
		}
	})
}

// sbplRule is a rule as parsed from the profile language, independently of the code that writes it.
type sbplRule struct {
	verb       string
	ops        []string
	conditions []condition
}

type sbplRules []sbplRule

// allow decides as a profile does: the last matching rule counts. If no rule matches, the operation is denied.
func (rules sbplRules) allow(op, path string) bool {
	allowed := false
	for _, r := range rules {
		if slices.ContainsFunc(r.ops, func(o string) bool { return o == "default" || covers(o, op) }) && r.matches(path) {
			allowed = r.verb == "allow"
		}
	}
	return allowed
}

func covers(pattern, op string) bool {
	stem, open := strings.CutSuffix(pattern, "*")
	return pattern == op || open && strings.HasPrefix(op, stem)
}

func (r sbplRule) matches(path string) bool {
	return len(r.conditions) == 0 || slices.ContainsFunc(r.conditions, func(c condition) bool {
		return c.text == path || c.kind == "subpath" && strings.HasPrefix(path, c.text+"/")
	})
}

// parseSBPL parses a profile: lists of words, strings and lists.
func parseSBPL(t testing.TB, text string) sbplRules {
	t.Helper()
	var rules sbplRules
	for rest := text; strings.TrimSpace(rest) != ""; {
		var node any
		node, rest = readSBPL(t, strings.TrimSpace(rest))
		list, _ := node.([]any)
		if len(list) < 2 {
			t.Fatalf("%v is no rule in\n%s", node, text)
		}
		var r sbplRule
		r.verb, _ = list[0].(string)
		for _, n := range list[1:] {
			switch n := n.(type) {
			case string:
				r.ops = append(r.ops, n)
			case []any:
				c := condition{kind: n[0].(string)}
				switch v := n[1].(type) {
				case quoted:
					c.text = string(v)
				case string:
					c.text = v
				case []any: // (param "HOME")
					c.text = string(v[1].(quoted))
				}
				r.conditions = append(r.conditions, c)
			default:
				t.Fatalf("a string %v stands alone in\n%s", n, text)
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// quoted is a string, as opposed to a word.
type quoted string

func readSBPL(t testing.TB, s string) (node any, rest string) {
	t.Helper()
	switch {
	case s == "":
		t.Fatal("the profile ends within a list")
	case s[0] == '(':
		list := []any{}
		for s = strings.TrimLeft(s[1:], " \n"); s != "" && s[0] != ')'; s = strings.TrimLeft(s, " \n") {
			var n any
			n, s = readSBPL(t, s)
			list = append(list, n)
		}
		if s == "" {
			t.Fatal("a list does not end")
		}
		return list, s[1:]
	case s[0] == '"':
		var b []byte
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '"':
				return quoted(b), s[i+1:]
			case '\\':
				if i++; i == len(s) || s[i] != '\\' && s[i] != '"' {
					t.Fatalf("an escape that was never written: %q", s[i-1:])
				}
			case '\n':
				t.Fatalf("a string goes over a line: %q", s)
			}
			b = append(b, s[i])
		}
		t.Fatal("a string does not end")
	}
	end := strings.IndexAny(s, " \n()\"")
	if end <= 0 {
		t.Fatalf("no word at %q", s)
	}
	return s[:end], s[end:]
}
