package workspace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/pack"
)

// gitScene makes repositories as people have them below a directory, with git itself, and returns the directory.
func gitScene(t *testing.T) string {
	t.Helper()
	ktest.Require(t, "git")
	dir := Canonical(t.TempDir())
	script := `set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main lib && cd lib && echo l > l && git add . && git commit -qm lib && cd ..
git init -q -b main p/a && cd p/a && mkdir -p pkg/deep && echo x > pkg/x && echo y > pkg/deep/y
git add . && git commit -qm a && git worktree add -q ../tree && git worktree add -q below
git -c protocol.file.allow=always submodule add -q "$PWD/../../lib" vendor/lib && git commit -qm sub && cd ../..
git clone -q --bare p/a p/bare.git && git -C p/bare.git worktree add -q ../oftree main && git -C p/bare.git worktree add -q in -b in
git init -q -b main --separate-git-dir=p/away.git p/away
mkdir p/kept && git clone -q --bare p/a p/kept/.bare && echo 'gitdir: ./.bare' > p/kept/.git && git -C p/kept worktree add -q main
mkdir -p p/none/dir && git init -q -b main above && mkdir -p above/work/dir
`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// describeRepository finds the repository of a directory and describes its places relative to base.
func describeRepository(w *Workspaces, call bailey.Call, base string, write bool) string {
	in := pack.PathInput{Name: "repo", Dir: true, Write: write, Repository: true}
	p, err := w.Open(call, in, ".")
	if err != nil {
		return "open: " + err.Error()
	}
	places, err := w.Repository(call, in, p)
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error()+"; "+bailey.HintOf(err), base+"/", "")
	}
	var words []string
	for _, p := range places {
		rel, _ := filepath.Rel(base, p.Path)
		words = append(words, fmt.Sprintf("%s=%s", p.Input, rel))
		if p.Write != write {
			words = append(words, "OTHER MODE")
		}
		if r := p.Repository; r != nil {
			git, _ := filepath.Rel(base, r.GitDir)
			common, _ := filepath.Rel(base, r.Common)
			words = append(words, git, common)
			if r.Bare {
				words = append(words, "bare")
			}
			if r.Dir != call.Dir {
				words = append(words, "IN "+r.Dir)
			}
		}
		p.File.Close()
	}
	return strings.Join(words, " ")
}

// TestRepositories checks which places a call gets in the repositories that git itself makes.
func TestRepositories(t *testing.T) {
	dir := gitScene(t)
	w := NewWorkspaces(nil, nil)
	w.Use([]string{dir + "/p", dir + "/above/work"}, nil)
	for at, want := range map[string]string{
		"p/a":            "repo=p/a p/a/.git p/a/.git",
		"p/a/pkg/deep":   "repo=p/a p/a/.git p/a/.git",
		"p/tree":         "repo=p/tree p/a/.git/worktrees/tree p/a/.git repo/.git=p/a/.git",
		"p/tree/pkg":     "repo=p/tree p/a/.git/worktrees/tree p/a/.git repo/.git=p/a/.git",
		"p/a/below/pkg":  "repo=p/a/below p/a/.git/worktrees/below p/a/.git repo/.git=p/a/.git",
		"p/a/vendor/lib": "repo=p/a/vendor/lib p/a/.git/modules/vendor/lib p/a/.git/modules/vendor/lib repo/.git=p/a/.git/modules/vendor/lib",
		"p/bare.git":     "repo=p/bare.git p/bare.git p/bare.git bare", "p/bare.git/refs": "repo=p/bare.git p/bare.git p/bare.git bare",
		"p/oftree":       "repo=p/oftree p/bare.git/worktrees/oftree p/bare.git repo/.git=p/bare.git",
		"p/bare.git/in":  "repo=p/bare.git/in p/bare.git/worktrees/in p/bare.git repo/.git=p/bare.git",
		"p/kept":         "repo=p/kept p/kept/.bare p/kept/.bare bare",
		"p/kept/main":    "repo=p/kept/main p/kept/.bare/worktrees/main p/kept/.bare repo/.git=p/kept/.bare",
		"p/none/dir":     "repo=p/none/dir",
		"above/work/dir": "refused: the top of the repository, above, is outside the workspaces of this home; if",
		"p/away":         "refused: p/away/.git names another repository: core.worktree of p/away.git does not point back",
		"p/a/.git":       "refused: p/a/.git is the directory in which git keeps a repository, and not a bare repository",
		"p/a/.git/refs":  "refused: p/a/.git is the directory in which git keeps a repository, and not a bare repository",
	} {
		for _, write := range []bool{false, true} {
			call := bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID()}, Dir: filepath.Join(dir, at)}
			if got := describeRepository(w, call, dir, write); got != want && !(strings.HasPrefix(want, "refused") && strings.HasPrefix(got, want)) {
				t.Errorf("%s\n got %s\nwant %s", at, got, want)
			}
		}
	}
}

// TestRepositoryOfUnnamedWorkspace checks that only a session of one call, which reads, gets more than its own directory.
func TestRepositoryOfUnnamedWorkspace(t *testing.T) {
	dir := gitScene(t)
	for _, c := range []struct {
		at           string
		single, wall bool
		want         string
	}{
		{"p/a/pkg", true, false, "repo=p/a p/a/.git p/a/.git"},
		{"p/tree", true, false, "repo=p/tree p/a/.git/worktrees/tree p/a/.git repo/.git=p/a/.git"},
		{"p/a/pkg", false, false, "refused: the top of the repository, p/a, is outside"},
		{"p/tree", false, false, "refused: the repository of p/tree, p/a/.git/worktrees/tree, is outside"},
		{"p/a/pkg", true, true, "refused: the top of the repository, p/a, is outside"},
	} {
		w := NewWorkspaces(nil, nil)
		call := bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID(), Single: c.single}, Dir: filepath.Join(dir, c.at)}
		if c.wall {
			w.Fix(call.Session.ID, call.Dir)
		}
		if got := describeRepository(w, call, dir, false); !strings.HasPrefix(strings.ReplaceAll(got, dir+" ", ""), c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
	w := NewWorkspaces(nil, []string{dir + "/p/a"}) // a home directory is no workspace, even if it is a repository
	call := bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID(), Single: true}, Dir: dir + "/p/a/pkg"}
	if got := describeRepository(w, call, dir, false); !strings.Contains(got, "a home directory") {
		t.Error(got)
	}
}

// TestHostileGitFiles checks that a .git that leads elsewhere is refused, with a reason, unless git itself made both
// ends.
func TestHostileGitFiles(t *testing.T) {
	dir := gitScene(t)
	w := NewWorkspaces([]string{dir + "/p/keys"}, nil)
	w.Use([]string{dir + "/p"}, nil)
	for name, c := range map[string]struct {
		file string // content of .git, or @ and the target of a link
		then string // script in the directory
		want string
	}{
		"etc":         {"gitdir: /etc\n", "", "outside the workspaces"},
		"outside":     {"gitdir: " + dir + "/lib/.git\n", "", "outside the workspaces"},
		"other":       {"gitdir: ../a/.git\n", "", "does not point back"},
		"worktree":    {"gitdir: ../a/.git/worktrees/tree\n", "", "does not point back"},
		"module":      {"gitdir: ../a/.git/modules/vendor/lib\n", "", "does not point back"},
		"bare":        {"gitdir: ../bare.git\n", "", "does not point back"},
		"dots":        {"gitdir: ../../../../../../../../../../etc\n", "", "outside the workspaces"},
		"empty":       {"", "", "does not name the directory"},
		"blank":       {"gitdir: \n", "", "does not name the directory"},
		"binary":      {"gitdir: \x00\x01\xff", "", "does not name the directory"},
		"control":     {"gitdir: a\x1b[31m\n", "", "does not name the directory"},
		"twolines":    {"gitdir: ../a/.git\ngitdir: /etc\n", "", "does not name the directory"},
		"huge":        {"gitdir: " + strings.Repeat("a", 1<<20), "", "neither a directory nor a short file"},
		"long":        {"gitdir: " + strings.Repeat("a/", 2050), "", "does not name the directory"},
		"absent":      {"gitdir: ../nowhere\n", "", "nowhere"},
		"masked":      {"gitdir: ../keys\n", "mkdir -p ../keys", "repository"},
		"link":        {"@../a/.git", "", "symbolic link"},
		"linkfile":    {"@../tree/.git", "", "symbolic link"},
		"fifo":        {"", "rm .git; mkfifo .git", "neither a directory nor a short file"},
		"chain":       {"gitdir: ../tree/.git\n", "", "not a directory"},
		"throughlink": {"gitdir: ./l\n", "ln -s ../a/.git l", "symbolic link"},
		"inlink":      {"gitdir: ./l/worktrees/tree\n", "ln -s ../a/.git l", "symbolic link"},
		"plain":       {"gitdir: ./d\n", "mkdir d", "no repository"},
		"ownworktree": {"gitdir: ./g/worktrees/x\n", // made by hand: the common directory is another repository's
			"mkdir -p g/worktrees/x; echo ../../../../a/.git > g/worktrees/x/commondir; echo $PWD/.git > g/worktrees/x/gitdir; echo ref: refs/heads/main > g/worktrees/x/HEAD",
			"not one of a linked worktree"},
		"owncommon": {"gitdir: ./g/worktrees/x\n", // the same, through a link
			"mkdir -p g; ln -s $PWD/../a/.git/worktrees g/worktrees", "symbolic link"},
		"commonchain": {"gitdir: ./g/worktrees/x\n", // a common directory that has one of its own
			"git init -q --bare g; mkdir -p g/worktrees/x; echo ../.. > g/worktrees/x/commondir; echo $PWD/.git > g/worktrees/x/gitdir; echo ../../a/.git > g/commondir",
			"no repository"},
	} {
		at := filepath.Join(dir, "p", "h-"+name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(c.file, "@"); link {
			err = os.Symlink(to, at+"/.git")
		} else {
			err = os.WriteFile(at+"/.git", []byte(c.file), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", c.then)
		cmd.Dir = at
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		call := bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID()}, Dir: at}
		if got := describeRepository(w, call, dir, false); !strings.HasPrefix(got, "refused: ") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
