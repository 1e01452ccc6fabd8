package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

// TestGitPerson checks which settings of a person and of a repository a call gets, and that a signature which may be
// wanted is never taken for one that is not.
func TestGitPerson(t *testing.T) {
	for name, c := range map[string]struct {
		global, more, local string
		want                string
	}{
		"none":     {"", "", "", "<>"},
		"global":   {"[user]\nname = Ada\nemail = a@b\n", "", "", "Ada <a@b>"},
		"local":    {"[user]\nname = Ada\nemail = a@b\n", "", "[user]\nemail = c@d\n", "Ada <c@d>"},
		"included": {"[include]\npath = ~/more\n", "[user]\nname = Ada\nemail = a@b\n", "", "Ada <a@b>"},
		"relative": {"[include]\npath = more\n", "[commit]\ngpgSign\n", "", "<> commit"},
		"here":     {"[includeIf \"gitdir:~/work/\"]\npath = more\n", "[user]\nname = Ada\nemail = a@b\n", "", "Ada <a@b>"},
		"away":     {"[includeIf \"gitdir:~/play/\"]\npath = more\n", "[commit]\ngpgsign = on\n[user]\nname = Eve\n", "", "<>"},
		"perhaps":  {"[includeIf \"onbranch:x\"]\npath = more\n", "[commit]\ngpgsign = 1\n[user]\nname = Eve\n", "", "<> commit"},
		"pattern":  {"[includeIf \"gitdir:**/x/\"]\npath = more\n", "[tag]\ngpgsign = yes\n", "", "<> tag"},
		"off":      {"[commit]\ngpgsign = true\n", "", "[commit]\ngpgsign = false\n", "<>"},
		"on":       {"", "", "[commit]\ngpgsign = TRUE\n[tag]\nforceSignAnnotated\n", "<> commit noted"},
		"broken":   {"[user\n", "", "", "<> unknown"},
		"cycle":    {"[include]\npath = ~/.gitconfig\n", "", "", "<> unknown"},
		"includes": {"", "", "[include]\npath = /etc/x\n", "<> unknown"},
		"worktree": {"[user]\nname = Ada\nemail = a@b\n", "", "[core]\nx\n@worktree", "Eve <a@b>"},
	} {
		home := Canonical(t.TempDir())
		t.Setenv("HOME", home)
		t.Setenv("XDG_CONFIG_HOME", "")
		git := filepath.Join(home, "work/r/.git")
		os.MkdirAll(git, 0o755)
		local, worktree := strings.CutSuffix(c.local, "@worktree")
		for path, text := range map[string]string{home + "/.gitconfig": c.global, home + "/more": c.more, git + "/config": local} {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if worktree {
			os.WriteFile(git+"/config.worktree", []byte("[user]\nname = Eve\n"), 0o644)
		}
		top, err := OpenPlace(home+"/work/r", false)
		if err != nil {
			t.Fatal(err)
		}
		top.Repository = &bailey.Repository{Dir: top.Path, Top: top.Path, GitDir: git, Common: git}
		p := NewWorkspaces(nil, nil).GitPerson([]bailey.Place{top})
		top.File.Close()
		got := strings.TrimSpace(p.Name + " <" + p.Email + ">")
		for word, is := range map[string]bool{" commit": p.SignCommits, " unknown": p.Unknown != nil} {
			if is {
				got += word
			}
		}
		if p.SignTags {
			got += " tag"
		}
		if p.SignNoted {
			got += " noted"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q (%v)", name, got, c.want, p.Unknown)
		}
	}
}

// TestGitIgnoreFile checks which file git gets as the person's ignore file.
func TestGitIgnoreFile(t *testing.T) {
	home := Canonical(t.TempDir())
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	os.MkdirAll(home+"/.config/git", 0o755)
	for _, name := range []string{"/.config/git/ignore", "/own", "/secret"} {
		os.WriteFile(home+name, nil, 0o644)
	}
	os.Mkdir(home+"/dir", 0o755)
	w := NewWorkspaces([]string{home + "/secret"}, nil)
	for config, want := range map[string]string{
		"": "/.config/git/ignore", "[core]\nexcludesFile = ~/own": "/own", "[core]\nexcludesFile =": "",
		"[core]\nexcludesFile = ~/absent": "", "[core]\nexcludesFile = ~/dir": "", "[core]\nexcludesFile = ~/secret": "",
	} {
		os.WriteFile(home+"/.gitconfig", []byte(config), 0o644)
		got := ""
		if p := w.GitPerson(nil); p.Ignore != nil {
			got = strings.TrimPrefix(p.Ignore.Path, home)
			p.Ignore.File.Close()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", config, got, want)
		}
	}
}
