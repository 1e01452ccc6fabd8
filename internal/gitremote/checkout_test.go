package gitremote

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// readFrom returns a reader of files by path.
func readFrom(all map[string]string) Read {
	return func(path string) ([]byte, error) {
		if text, ok := all[path]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
}

func openText(config, head string) (*Checkout, error) {
	return OpenCheckout("/w", readFrom(map[string]string{"/w/.git/config": config, "/w/.git/HEAD": head}))
}

func TestParseGitHub(t *testing.T) {
	for address, want := range map[string]string{
		"https://github.com/o/r":                  "o/r",
		"https://github.com/o/r.git":              "o/r",
		"https://user:token@github.com/o/r.git/":  "o/r",
		"http://www.github.com/o/r":               "o/r",
		"git@github.com:o/r.git":                  "o/r",
		"github.com:/o/r":                         "o/r",
		"ssh://git@ssh.github.com:443/o/r.git":    "o/r",
		"git+ssh://git@GitHub.com/o/r":            "o/r",
		"https://github.com.evil.example/o/r":     "",
		"https://github.com@evil.example/o/r":     "",
		"https://evil.example/github.com/o/r":     "",
		"https://evil.example#github.com/o/r":     "",
		"https://evil.example\\@github.com/o/r":   "",
		"https://github.com/o/r?x=y":              "",
		"https://github.com/o/r#x":                "",
		"https://github.com/o/r/x":                "",
		"https://github.com/o":                    "",
		"https://github.com/o/..":                 "",
		"https://github.com/../r":                 "",
		"https://github.com/-o/r":                 "",
		"https://github.com/o/r%2Fx":              "",
		"https://github.com/o/%72":                "",
		"ext::sh -c x github.com:o/r":             "",
		"ext::https://github.com/o/r":             "",
		"file:///github.com/o/r":                  "",
		"/github.com:o/r":                         "",
		"../github.com:o/r":                       "",
		"work:o/r.git":                            "",
		"git@github.com:o/r\n--repo=x/y":          "",
		"https://github.com/o/r\x00":              "",
		"":                                        "",
		"-oProxyCommand=x@github.com:o/r":         "o/r",
		"https://github.com:9999/o/r":             "o/r",
		"https://gist.github.com/o/r":             "",
		"https://github.com/ o/r":                 "",
		"https://github.com/о/r":                  "", // a Cyrillic letter
		"https://xn--github-com.evil.example/o/r": "",
	} {
		g, ok := ParseGitHub(address)
		if got := strings.Trim(g.String(), "/"); got != want || ok != (want != "") {
			t.Errorf("%q is %q, want %q", address, got, want)
		}
	}
}

func TestRepository(t *testing.T) {
	const origin, upstream = "[remote \"origin\"]\nurl=https://github.com/me/r\n", "[remote \"upstream\"]\nurl=git@github.com:them/r\n"
	for config, want := range map[string]string{
		"":                "",
		origin:            "me/r",
		origin + upstream: "them/r",
		origin + upstream + "[remote \"origin\"]\ngh-resolved = base":               "me/r",
		origin + "gh-resolved = other/x":                                            "other/x",
		origin + "gh-resolved = evil.example/other/x":                               "",
		origin + "gh-resolved = ../x":                                               "",
		"[remote \"b\"]url=x:y/z\n[REMOTE \"a\"] URL = \"github.com:a/\\\\\"":       "",
		"[remote \"b\"]url=github.com:b/b\n[REMOTE \"a\"] URL = \"github.com:a/a\"": "a/a",
		"[remote \"x\"]\nurl=https://git.example.com/a/b\npushurl=github.com:o/r":   "o/r",
		"[remote \"x\"]\nurl=github.com:o/r\nurl=github.com:o/second":               "o/r",
		"[remote \"x\"]\nurl=github.com:o/\\\n  r # comment":                        "",
		"[remote \"x\"]\nurl=github.com:o/\\\nr ; comment":                          "o/r",
		"[remote.x]\nurl=github.com:o/r":                                            "error", // an old form
		"\ufeff[remote \"x\"]\r\n\turl = github.com:o/r\r\n":                        "o/r",
		// what git could read differently
		origin + "[include]\npath=/etc/x":                                  "error",
		origin + "[includeIf \"gitdir:/\"]\npath=x":                        "error",
		origin + "[url \"https://evil.example/\"]\ninsteadOf=https://":     "error",
		origin + "[URL \"https://evil.example/\"]\npushInsteadOf=https://": "error",
		origin + "[remote \"x]\nurl=y":                                     "error",
		origin + "[remote \"x\" y]\nurl=y":                                 "error",
		origin + "url \"x\"":                                               "error",
		origin + "url = \"x":                                               "error",
		origin + "url = \\x":                                               "error",
		"url = x":                                                          "error",
		"[]\nurl = x":                                                      "error",
	} {
		c, err := openText(config, "ref: refs/heads/main\n")
		var g GitHub
		if err == nil {
			g, err = c.Repository(true)
		} else if want != "error" {
			t.Errorf("%q: %v", config, err)
		}
		if got := strings.Trim(g.String(), "/"); got != strings.TrimSuffix(want, "error") || (err == nil) != (got != "") {
			t.Errorf("%q is %q, want %q (%v)", config, got, want, err)
		}
	}
}

func TestPullRequest(t *testing.T) {
	const remotes = "[remote \"origin\"]\nurl=github.com:me/r\n[remote \"fork\"]\nurl=github.com:dana/r\n"
	for _, c := range []struct{ head, config, want string }{
		{"ref: refs/heads/topic\n", "", "topic"},
		{"ref: refs/heads/topic\n", "[branch \"topic\"]\nremote=origin\nmerge=refs/heads/other", "other"},
		{"ref: refs/heads/topic\n", "[branch \"topic\"]\nremote=fork\nmerge=refs/heads/other", "dana:other"},
		{"ref: refs/heads/topic\n", "[branch \"topic\"]\nremote=https://github.com/eve/r\nmerge=refs/heads/x", "eve:x"},
		{"ref: refs/heads/topic\n", "[branch \"topic\"]\nremote=https://evil.example/eve/r\nmerge=refs/heads/x", "topic"},
		{"ref: refs/heads/topic\n", "[branch \"topic\"]\nmerge=refs/pull/31/head", "31"},
		{"ref: refs/heads/123\n", "", ""},
		{"ref: refs/heads/topic\n", "[branch \"topic\"]\nremote=origin\nmerge=refs/heads/7", ""},
		{"ref: refs/heads/topic\n", "[branch \"topic\"]\nremote=origin\nmerge=refs/heads/--repo=x/y", ""},
		{"ref: refs/heads/-x\n", "", ""},
		{"ref: refs/heads/a b\n", "", ""},
		{"ref: refs/heads/a\nb\n", "", ""},
		{"ref: refs/tags/x\n", "", ""},
		{"0123456789012345678901234567890123456789\n", "", ""},
		{"", "", ""},
	} {
		o, err := openText(remotes+c.config, c.head)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := o.PullRequest(GitHub{"me", "r"}); got != c.want || (err == nil) != (got != "") {
			t.Errorf("%q %q is %q, %v, want %q", c.head, c.config, got, err, c.want)
		}
	}
}

// TestWorktrees checks that the files of a linked worktree are found where git keeps them.
func TestWorktrees(t *testing.T) {
	all := map[string]string{
		"/w/.git": "gitdir: ../main/.git/worktrees/w\n", "/main/.git/worktrees/w/commondir": "../..\n",
		"/main/.git/worktrees/w/HEAD": "ref: refs/heads/topic\n", "/main/.git/HEAD": "ref: refs/heads/main\n",
		"/main/.git/config":                      "[extensions]\nworktreeConfig\n[remote \"origin\"]\nurl=github.com:o/r\n",
		"/main/.git/worktrees/w/config.worktree": "[remote \"origin\"]\ngh-resolved=o/other\n",
	}
	c, err := OpenCheckout("/w", readFrom(all))
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Repository(true)
	branch, berr := c.Branch()
	if g.String() != "o/other" || branch != "topic" || errors.Join(err, berr) != nil {
		t.Errorf("%s at %s, %v, %v", branch, g, err, berr)
	}
	for _, text := range []string{"", "gitdir:", "gitdir: \n", "x", "gitdir: " + strings.Repeat("x", 5000)} {
		all["/w/.git"] = text
		if c, err := OpenCheckout("/w", readFrom(all)); err == nil {
			t.Errorf("%.20q is %+v", text, c)
		}
	}
}

// FuzzParseLikeGit checks that a text that is accepted has the settings that git reads.
func FuzzParseLikeGit(f *testing.F) {
	for _, text := range []string{"", "[a]\nb=c", "[a \"b\\\"c\"] d = \"e ; f\" g \\\n h # i", "[a.B]\nc\n[a]\nd = \\n\\t", "\ufeff[x]\r\ny=z\r\n", "[a \"b\"]\n1=2", "[a]b=c\\\\",
		"[0]A=\"#\" 0 \"\"", "[a]b=c \\\n\n", "[a]b=\"\" c"} {
		f.Add(text)
	}
	ktest.Require(f, "git")
	path := filepath.Join(f.TempDir(), "config")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse([]byte(text))
		if err != nil || strings.ContainsRune(text, 0) {
			return
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "git", "config", "--file", path, "--null", "--list")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent"}
		out, err := cmd.Output()
		if err != nil {
			return // git refuses more
		}
		var want, got []string
		for item := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			name, value, valued := strings.Cut(item, "\n")
			if name == "" {
				continue
			}
			if !valued {
				value = "true"
			}
			want = append(want, name+"="+value)
		}
		for _, s := range list.Entries() {
			if s.Bare {
				s.Value = "true"
			}
			got = append(got, s.Name()+"="+s.Value)
		}
		blanks := strings.NewReplacer("\t", " ", "\r", " ") // older versions of git replace blanks
		for i := range got {
			got[i] = blanks.Replace(got[i])
		}
		for i := range want {
			want[i] = blanks.Replace(want[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is\n%q, and for git\n%q", text, got, want)
		}
	})
}
