package gitremote

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// texts are configurations that are accepted, in every form that the syntax has.
var texts = []string{
	"",
	"# only a comment\n; and another\n",
	"\ufeff[core]\n\tbare = false\n",
	"[core]\r\n\tbare = false\r\n",
	"[core] bare = false # behind the section\n",
	"[CORE]\n\tBare\n\tfileMode = TRUE\n",
	"[remote \"origin\"]\n\turl = https://github.com/a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
	"[remote \"a \\\"b\\\\ \\c\"]\nurl=\"x y\"  ; comment\n",
	"[a]\n\tb = \"x # y\" z\n\tc = x\\\n  y\n\td = \\t\\\"q\\\" \\\\ \\n z\n",
	"[a]b=\n[c \"D\"]\n\te = = =\n",
	"[a]\n\tb = 1 ; x\n\tb = 2 # y\n\tb",
	"[branch \"feature/x.y\"]\n\tremote = origin\n\tmerge = refs/heads/feature/x.y\n",
}

// TestParsesAsGit checks that the parser reads each accepted configuration as git itself does.
func TestParsesAsGit(t *testing.T) {
	ktest.Require(t, "git")
	for _, text := range texts {
		c, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, want := listed(c), gitLists(t, text); got != want {
			t.Errorf("%q:\n%q\nwant\n%q", text, got, want)
		}
	}
}

// listed returns the variables in the form of git config --list -z.
func listed(c *Config) string {
	var b strings.Builder
	for _, e := range c.Entries() {
		b.WriteString(e.Name())
		if !e.Bare {
			b.WriteString("\n" + e.Value)
		}
		b.WriteByte(0)
	}
	return b.String()
}

func gitLists(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "--file", file, "--no-includes", "--list", "-z").Output()
	if err != nil {
		return "refused"
	}
	return string(out)
}

// TestParseRefuses checks that a syntax that git refuses, or that could be read in two ways, is refused.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a = b\n":                        "before the first section",
		"[a\n":                           "not closed",
		"[a \"b\n":                       "control character",
		"[a \"b\" x]\n":                  "not closed",
		"[a\"b\"]\n":                     "not closed",
		"[a.b]\n":                        "old form",
		"[]\n":                           "no name",
		"[a \"\"]\n":                     "empty subsection",
		"[a]\n\t1b = c\n":                "neither a section",
		"[a]\n\tb c\n":                   "no =",
		"[a]\n\tb ; c\n":                 "no =",
		"[a]\n\tb = \"c\n":               "closing quote",
		"[a]\n\tb = \"c":                 "closing quote",
		"[a]\n\tb = \\x\n":               "escape",
		"[a]\n\tb = \\":                  "ends with a backslash",
		"[a]\n\tb = \x00\n":              "control character",
		"[a]\n\tb = c\rd\n":              "control character",
		"[a]\n\tb = \xff\n":              "not UTF-8",
		strings.Repeat("#", MaxConfig+1): "bytes",
		"[a]\n" + strings.Repeat("b\n", maxEntries+1): "variables",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse checks that no configuration makes the parser fail, and that an address it returns is plain https without a
// user, in the spelling that a rewriting option needs.
func FuzzParse(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text), "origin")
	}
	f.Add([]byte("[remote \"origin\"]\n\turl = git@github.com:a/b.git\n\tpushurl = ssh://git@gitlab.com/c/d\n"), "origin")
	f.Add([]byte("[url \"ext::x\"]\n\tinsteadOf = https://\n[include]\n\tpath = x\n"), "origin")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		for _, p := range Purposes() {
			c.Default(name, p)
			c.All(p)
			r, err := c.Resolve(name, p)
			if err != nil {
				continue
			}
			rest, ok := strings.CutPrefix(r.URL, "https://")
			if !ok || strings.ContainsAny(rest, "@ \t\n\"'=?#%\\") || strings.Contains(rest, "..") || strings.Contains(rest, "//") {
				t.Errorf("%q", r.URL)
			}
			if strings.ContainsAny(r.Spelled, " \n\x00") || strings.HasPrefix(r.Spelled, "-") || !strings.Contains(string(data), "remote") {
				t.Errorf("%q", r.Spelled)
			}
		}
	})
}
