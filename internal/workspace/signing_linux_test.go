package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

// TestOwnSigning checks that only the person's own settings say as whom and with which key a call signs, and that a
// repository with others is refused.
func TestOwnSigning(t *testing.T) {
	const ada = "[user]\nname = Ada\nemail = a@b\nsigningKey = ~/k\n"
	for name, c := range map[string]struct {
		global, more, local string
		want                string // of the fault; "" if there is none
	}{
		"own":            {ada, "", "", ""},
		"the same":       {ada, "", "[user]\nemail = a@b\n", ""},
		"name":           {ada, "", "[user]\nname = Eve\n", "another user.name or user.email"},
		"address":        {ada, "", "[USER]\nEmail = e@b\n", "another user.name or user.email"},
		"committer":      {ada, "", "[committer]\nemail = e@b\n", "another committer.email"},
		"author":         {ada, "", "[author]\nname = Eve\n", "another author.name"},
		"key":            {ada, "", "[user]\nsigningkey = /k\n", "another user.signingKey"},
		"format":         {ada, "", "[gpg]\nformat = ssh\n", "another gpg.format"},
		"program":        {ada, "", "[gpg]\nprogram = /x\n", "another gpg.program"},
		"ssh program":    {ada, "", "[gpg \"ssh\"]\nprogram = /x\n", "another gpg.ssh.program"},
		"command":        {ada, "", "[gpg \"ssh\"]\ndefaultKeyCommand = /x\n", "another gpg.ssh.defaultkeycommand"},
		"worktree":       {ada, "", "@worktree", "another user.name or user.email"},
		"no name":        {"[user]\nemail = a@b\n", "", "[user]\nname = Eve\n", "have no user.name"},
		"perhaps a key":  {ada + "[includeIf \"onbranch:x\"]\npath = more\n", "[user]\nsigningkey = x\n", "", "not known as whom"},
		"perhaps others": {ada + "[includeIf \"onbranch:x\"]\npath = more\n", "[core]\npager = x\n", "", ""},
	} {
		home := Canonical(t.TempDir())
		t.Setenv("HOME", home)
		t.Setenv("XDG_CONFIG_HOME", "")
		git := filepath.Join(home, "work/r/.git")
		os.MkdirAll(git, 0o755)
		local, worktree := strings.CutSuffix(c.local, "@worktree")
		files := map[string]string{home + "/.gitconfig": c.global, home + "/more": c.more, git + "/config": local}
		if worktree {
			files[git+"/config.worktree"] = "[user]\nname = Eve\n"
		}
		for path, text := range files {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		top, err := OpenPlace(home+"/work/r", false)
		if err != nil {
			t.Fatal(err)
		}
		top.Repository = &bailey.Repository{Dir: top.Path, Top: top.Path, GitDir: git, Common: git}
		g := NewWorkspaces(nil, nil).GitPerson([]bailey.Place{top}).Signing
		top.File.Close()
		switch {
		case c.want == "" && g.Fault != nil, c.want != "" && (g.Fault == nil || !strings.Contains(g.Fault.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, g.Fault, c.want)
		case c.want == "" && (g.Name != "Ada" || g.Email != "a@b" || g.Key != home+"/k" || g.Program != "" || g.KeyCommand):
			t.Errorf("%s: %+v", name, g)
		}
	}
}
