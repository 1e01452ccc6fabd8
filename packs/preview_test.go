package packs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/packs/hostile"
)

// looksOf returns the previews of a call, rendered as the gate renders them.
func looksOf(t *testing.T, id bailey.CapabilityID, input map[string]any, paths map[string]string) []bailey.Job {
	t.Helper()
	m, err := catalog(t).Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	clean, err := m.Check(input, true)
	if err != nil {
		t.Fatal(err)
	}
	var places []bailey.Place
	for _, in := range m.PathInputs() {
		places = append(places, bailey.Place{Input: in.Name, Path: paths[in.Name], Write: in.Write})
	}
	jobs, err := m.Preview(clean, paths, places, "")
	if err == nil && m.Binds() {
		word, failed := m.Shown(func(look int) (string, bool) {
			j := jobs[look]
			return run(t, j.Dir, false, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, j.Env...), j.Command, j.Args...), true
		})
		if failed != nil {
			t.Fatal(failed)
		}
		jobs, err = m.Preview(clean, paths, places, word)
	}
	if err != nil || len(jobs) == 0 {
		t.Fatal(jobs, err)
	}
	return jobs
}

// foreseen returns the output of previews that run without a cage.
func foreseen(t *testing.T, tty bool, jobs []bailey.Job) (out string) {
	t.Helper()
	for _, j := range jobs {
		env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "TERM=xterm"}, j.Env...)
		out += run(t, j.Dir, tty, env, j.Command, j.Args...)
	}
	return out
}

// repositories returns a repository with one branch, and a bare repository with the same branch.
func repositories(t *testing.T) (src, to string, git func(dir string, args ...string) string) {
	t.Helper()
	ktest.Require(t, "git")
	dir := t.TempDir()
	src, to = filepath.Join(dir, "src"), filepath.Join(dir, "to.git")
	git = func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = in
		cmd.Env = append(hostile.Environ(dir), "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	git(dir, "init", "-q", "-b", "main", "src")
	commit(t, git, src, "one")
	git(dir, "clone", "-q", "--bare", "src", "to.git")
	return src, to, git
}

func commit(t *testing.T, git func(string, ...string) string, dir, message string) (id string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(message+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(dir, "add", "file")
	git(dir, "commit", "-q", "-m", message)
	return git(dir, "rev-parse", "HEAD")
}

func pushed(t *testing.T, src, to string) string {
	t.Helper()
	return foreseen(t, false, looksOf(t, "git.push", map[string]any{"repo": src, "to": to, "ref": "main"}, map[string]string{"repo": src, "to": to}))
}

// TestPushElsewhereShowsWhatItPushes checks that the preview of a push over the network shows the latest commit and its
// hash, and that the push is bound to that hash.
func TestPushElsewhereShowsWhatItPushes(t *testing.T) {
	src, _, git := repositories(t)
	show := func() string {
		return foreseen(t, false, looksOf(t, "gh.push", map[string]any{"dir": src, "repo": "a/b", "ref": "main"}, map[string]string{"dir": src}))
	}
	two := commit(t, git, src, "two is\x1b[31m red")
	first := show()
	for _, want := range []string{"pushes " + two + " refs/heads/main", "has " + two, "author Ada <ada@example.org>", "two is", "file | 2 +-"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in\n%s", want, first)
		}
	}
	if commit(t, git, src, "three"); show() == first {
		t.Errorf("a commit was added, and it shows what it did:\n%s", first)
	}
	m, err := catalog(t).Lookup("gh.push")
	if err != nil {
		t.Fatal(err)
	}
	if !m.Binds() {
		t.Error("another commit than was shown could be pushed")
	}
}

// TestPushShowsWhatItPushes checks that the preview names the tips on both sides, the commits to be added and those to
// be lost, and that it changes if any of them changes.
func TestPushShowsWhatItPushes(t *testing.T) {
	ktest.Long(t)
	src, to, git := repositories(t)
	was := git(to, "rev-parse", "main")
	two := commit(t, git, src, "two is\x1b[31m red")
	first := pushed(t, src, to)
	for _, want := range []string{"replaces " + was + " refs/heads/main", "pushes " + two + " refs/heads/main", "adds " + two, "author Ada <ada@example.org>", "two is", "file | 2 +-"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in\n%s", want, first)
		}
	}
	if strings.Contains(first, "loses") || strings.Contains(first, "adds "+was) {
		t.Errorf("it shows more than what is pushed:\n%s", first)
	}
	three := commit(t, git, src, "three")
	if now := pushed(t, src, to); now == first || !strings.Contains(now, "adds "+three) || !strings.Contains(now, "adds "+two) {
		t.Errorf("a commit was added, and it shows\n%s", now)
	}
	git(src, "reset", "-q", "--hard", two)
	if now := pushed(t, src, to); now != first {
		t.Errorf("all is as it was, and it shows\n%s\nnot\n%s", now, first)
	}

	// Another user pushes.
	other := filepath.Join(filepath.Dir(src), "other")
	git(filepath.Dir(src), "clone", "-q", to, "other")
	theirs := commit(t, git, other, "theirs")
	git(other, "push", "-q", "origin", "main")
	now := pushed(t, src, to)
	for _, want := range []string{"replaces " + theirs, "adds " + two, "loses " + theirs} {
		if !strings.Contains(now, want) {
			t.Errorf("%q is not in\n%s", want, now)
		}
	}
	// Another branch of the target has these commits. They are still new to this branch.
	git(src, "push", "-q", to, "main:refs/heads/main-too")
	if now := pushed(t, src, to); !strings.Contains(now, "adds "+two) {
		t.Errorf("what another branch has is not shown:\n%s", now)
	}
	git(to, "update-ref", "-d", "refs/heads/main")
	if now := pushed(t, src, to); strings.Contains(now, "replaces") || !strings.Contains(now, "adds "+was) {
		t.Errorf("a new branch:\n%s", now)
	}
}

// TestPushShowsThroughGrafts checks that grafts and replaced objects do not change the commits in the preview.
func TestPushShowsThroughGrafts(t *testing.T) {
	src, to, git := repositories(t)
	was := git(to, "rev-parse", "main")
	hidden := commit(t, git, src, "hidden")
	tip := commit(t, git, src, "harmless")
	plain := pushed(t, src, to)
	os.MkdirAll(filepath.Join(src, ".git", "info"), 0o755)
	if err := os.WriteFile(filepath.Join(src, ".git", "info", "grafts"), []byte(tip+" "+was+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if seen := git(src, "log", "--format=%H", was+"..main"); strings.Contains(seen, hidden) {
		t.Skip("this git does not read grafts")
	}
	git(src, "replace", "-f", hidden, was)
	if now := pushed(t, src, to); now != plain || !strings.Contains(now, "adds "+hidden) {
		t.Errorf("%s\nnot\n%s", now, plain)
	}
}

// TestCommitShowsWhatItCommits checks that the preview shows the index and the files, each compared with the version
// that it replaces.
func TestCommitShowsWhatItCommits(t *testing.T) {
	src, _, git := repositories(t)
	seen := func(input map[string]any) string {
		in := map[string]any{"repo": src, "message": "x"}
		for k, v := range input {
			in[k] = v
		}
		return foreseen(t, false, looksOf(t, "git.commit", in, map[string]string{"repo": src}))
	}
	os.WriteFile(filepath.Join(src, "file"), []byte("staged\n"), 0o644)
	git(src, "add", "file")
	os.WriteFile(filepath.Join(src, "file"), []byte("in the file\n"), 0o644)
	first := seen(nil)
	for _, want := range []string{"# branch.oid " + git(src, "rev-parse", "HEAD"), "# branch.head main", "--- HEAD/file", "+++ index/file", "+staged", "+++ files/file", "+in the file"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in\n%s", want, first)
		}
	}
	os.WriteFile(filepath.Join(src, "file"), []byte("otherwise\n"), 0o644)
	if all := seen(map[string]any{"all": true}); all == first || !strings.Contains(all, "+otherwise") {
		t.Errorf("a file changed, and it shows\n%s", all)
	}
	git(src, "add", "file")
	if now := seen(nil); now == first || !strings.Contains(now, "+otherwise") {
		t.Errorf("the index changed, and it shows\n%s", now)
	}
	if paths := seen(map[string]any{"paths": []any{"other"}}); strings.Contains(paths, "otherwise") {
		t.Errorf("it shows what is not committed:\n%s", paths)
	}
}

// TestHostilePreviews checks that a repository cannot make a preview run, read or write anything else than intended.
func TestHostilePreviews(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	for i, r := range slices.Concat(hostile.Commits(t, t.TempDir()), hostile.Pushes(t, t.TempDir()), hostile.Repositories(t, t.TempDir())) {
		t.Run(fmt.Sprint(i, " ", strings.ReplaceAll(r.Key, "/", "|")), func(t *testing.T) {
			t.Parallel()
			if r.Wall != hostile.Options {
				t.Skip("the cage stops it")
			}
			id, input, paths := bailey.CapabilityID("git.commit"), map[string]any{"repo": r.Dir, "message": "x", "all": true}, map[string]string{"repo": r.Dir}
			if r.Target != "" {
				id, input, paths = "git.push", map[string]any{"repo": r.Dir, "to": r.Target, "ref": "main"}, map[string]string{"repo": r.Dir, "to": r.Target}
			}
			jobs := looksOf(t, id, input, paths)
			if r.Target != "" && !slices.Contains(jobs[0].Hide, r.Dir+"/.git/config") {
				t.Error("the configuration of the pushing repository is not hidden")
			}
			r.Arm()
			if out := foreseen(t, r.TTY, jobs); worked(r, out) {
				t.Errorf("it got through:\n%s", out)
			}
			if r.Target == "" {
				r.Arm()
				looks := looksOf(t, "git.push-remote", map[string]any{"repo": r.Dir, "remote": "origin"}, paths)
				if out := foreseen(t, r.TTY, looks); worked(r, out) {
					t.Errorf("by git.push-remote it got through:\n%s", out)
				}
			}
		})
	}
}

// TestPushHidesNoCommit checks that a repository cannot hide an added commit from the preview, for example by borrowed
// objects, in a merge or among many commits.
func TestPushHidesNoCommit(t *testing.T) {
	ktest.Long(t)
	src, to, git := repositories(t)
	hidden := commit(t, git, src, "hidden")
	commit(t, git, src, "harmless")
	plain := pushed(t, src, to)
	git(src, "clone", "-q", "--bare", ".", ".git/other")
	git(filepath.Join(src, ".git", "other"), "update-ref", "refs/heads/main", hidden)
	alternates := filepath.Join(src, ".git", "objects", "info", "alternates")
	if err := os.WriteFile(alternates, []byte("../other/objects\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if now := pushed(t, src, to); strings.Contains(now, hidden) {
		t.Error("this git lists what an alternate has: nothing has to be hidden")
	}
	jobs := looksOf(t, "git.push", map[string]any{"repo": src, "to": to, "ref": "main"}, map[string]string{"repo": src, "to": to})
	for _, j := range jobs {
		if !slices.Contains(j.Hide, alternates) {
			t.Errorf("%v sees %s", j.Args, alternates)
		}
	}
	os.Truncate(alternates, 0) // a cage shows an empty file instead
	if now := foreseen(t, false, jobs); now != plain || !strings.Contains(now, "adds "+hidden) {
		t.Errorf("%s\nnot\n%s", now, plain)
	}

	git(src, "checkout", "-q", "-b", "side", "HEAD~1")
	git(src, "commit", "-q", "--allow-empty", "-m", "side")
	git(src, "checkout", "-q", "main")
	git(src, "merge", "-q", "--no-commit", "-s", "ours", "side")
	os.WriteFile(filepath.Join(src, "evil"), nil, 0o644)
	git(src, "add", "evil")
	git(src, "commit", "-q", "-m", "a merge of nothing")
	if now := pushed(t, src, to); !strings.Contains(now, " evil | 0") {
		t.Errorf("what a merge changes is not shown:\n%s", now)
	}

	for i := range 60 {
		git(src, "commit", "-q", "--allow-empty", "-m", fmt.Sprint("crowd ", i))
	}
	if now := pushed(t, src, to); strings.Contains(now, "adds "+hidden) || !strings.Contains(now, "\n64\n") {
		t.Errorf("nobody learns how many there are:\n%s", now)
	}
}

// TestCommitShowsWhatGitTakesForUnchanged checks that if a path is named, the preview also lists files that the index
// marks as unchanged, because they are committed. It must also show a commit that becomes a parent or whose author is
// used.
func TestCommitShowsWhatGitTakesForUnchanged(t *testing.T) {
	src, _, git := repositories(t)
	seen := func(input map[string]any) string {
		return foreseen(t, false, looksOf(t, "git.commit", input, map[string]string{"repo": src}))
	}
	named := map[string]any{"repo": src, "message": "x", "paths": []any{"."}}
	if s := seen(named); !strings.Contains(s, "H file\n") {
		t.Errorf("what is named is not listed:\n%s", s)
	}
	git(src, "update-index", "--assume-unchanged", "file")
	os.WriteFile(filepath.Join(src, "file"), []byte("evil\n"), 0o644)
	if s := seen(named); strings.Contains(s, "evil") || !strings.Contains(s, "h file\n") {
		t.Errorf("git takes it for unchanged, and nobody learns that:\n%s", s)
	}
	if s := seen(map[string]any{"repo": src, "message": "x"}); strings.Contains(s, "h file") {
		t.Errorf("no file is named, and they are listed:\n%s", s)
	}
	git(src, "update-index", "--no-assume-unchanged", "file")
	other := git(src, "commit-tree", "-m", "another", "HEAD^{tree}", "-p", "HEAD")
	for _, head := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD"} {
		name := filepath.Join(src, ".git", head)
		os.WriteFile(name, []byte(other+"\n"), 0o644)
		if s := seen(named); !strings.Contains(s, "under way "+other) {
			t.Errorf("%s is not shown:\n%s", head, s)
		}
		os.Remove(name)
	}
}
