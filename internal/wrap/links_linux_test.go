package wrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
)

// TestAttackLinkInGit checks that at the end of a run no link leads out of the project, by any path: through one in
// git's directories, the next commit outside would overwrite a file of the user. No link may replace a file that git
// opens by name.
func TestAttackLinkInGit(t *testing.T) {
	project, outside, s := t.TempDir(), t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, outside, "precious", "dir/x")
	put(t, project, ".git/HEAD", ".git/objects/ab/x", ".git/refs/heads/main", ".git/logs/HEAD", "real/x", "sub/.git/HEAD", "sub/.git/objects/x", "sub/.git/refs/x")
	link := func(to, at string) {
		t.Helper()
		os.RemoveAll(filepath.Join(project, at))
		os.MkdirAll(filepath.Dir(filepath.Join(project, at)), 0o755)
		if err := os.Symlink(to, filepath.Join(project, at)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(outside, "dir"), "mine")         // existed before, must stay
	link(filepath.Join(outside, "dir"), ".git/theirs")  // must stay too
	link(filepath.Join(outside, "dir"), ".git/another") // existed before, will lead elsewhere
	link("real", "inner")
	r, _ := begin(t, s, project, false)
	precious := filepath.Join(outside, "precious")
	up := strings.Repeat("../", 32)
	bad := map[string]string{
		".git/COMMIT_EDITMSG": precious, ".git/FETCH_HEAD": up + strings.TrimPrefix(precious, "/"), ".git/packed-refs": "../hop", ".git/logs/HEAD": precious,
		".git/index": filepath.Join(outside, "not-there-yet"), ".git/refs/heads/x": "../../../real/../inner/../../" + filepath.Base(outside) + "/precious",
		".git/another": precious, ".git/system": "/usr/bin/env", "sub/.git/index": precious, ".git/objects/info": outside,
		// git writes through these too
		".git/head": "HEAD", ".git/SQUASH_MSG": "config", ".git/logs/refs/heads/objects/ab/x": "../../x",
		"hop": precious, "made": filepath.Join(outside, "dir/new/er"), "through": "mine/x",
	}
	for at, to := range bad {
		link(to, at)
	}
	good := map[string]string{"python": "/usr/bin/python3", "inside": "real/x", "deep": "inner/../real", "whole": project, "gone": "nothing/here"}
	for at, to := range good {
		link(to, at)
	}
	settled, err := r.Settle()
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(maps.Keys(bad))
	if !slices.Equal(settled.Moved, want) || !maps.Equal(settled.Links, bad) {
		t.Errorf("moved %q, want\n%q\nlinks %q", settled.Moved, want, settled.Links)
	}
	for at := range good {
		if _, err := os.Lstat(filepath.Join(project, at)); err != nil {
			t.Errorf("%s leads nowhere out, and is gone", at)
		}
	}
	for _, at := range []string{"mine", ".git/theirs"} {
		if _, err := os.Lstat(filepath.Join(project, at)); err != nil {
			t.Errorf("%s was there before, and is gone", at)
		}
	}
	if words := strings.Join(settled.Words(project), "\n"); !strings.Contains(words, ".git/index was created, a symbolic link to "+outside) {
		t.Error(words)
	}
	if b, _ := os.ReadFile(precious); string(b) != "precious" {
		t.Errorf("%q", b)
	}
}

// TestAttackLinkWhileItRuns checks that such a link is removed during the run, since the user may work in the project
// too.
func TestAttackLinkWhileItRuns(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	precious := filepath.Join(t.TempDir(), "precious")
	os.WriteFile(precious, []byte("precious"), 0o644)
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(git, append([]string{"-C", project, "-c", "user.name=A", "-c", "user.email=a@b"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run("init", "-q")
	run("commit", "-q", "--allow-empty", "-m", "one")
	r, _ := begin(t, s, project, false)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { r.Watch(ctx, func(err error) { t.Error(err) }) })
	os.Chmod(filepath.Join(project, ".git"), 0o300) // unreadable, but must still be searched
	defer os.Chmod(filepath.Join(project, ".git"), 0o755)
	for range 2 { // the agent can create it again
		at := filepath.Join(project, ".git/COMMIT_EDITMSG")
		os.Remove(at)
		if err := os.Symlink(precious, at); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Lstat(at); err != nil {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatal("the link stays")
			}
		}
		run("commit", "-q", "--allow-empty", "-m", "two")
	}
	stop()
	watching.Wait()
	if b, _ := os.ReadFile(precious); string(b) != "precious" {
		t.Errorf("git wrote %q", b)
	}
	settled, err := r.Settle()
	if err != nil || !slices.Contains(settled.Moved, ".git/COMMIT_EDITMSG") || settled.Links[".git/COMMIT_EDITMSG"] != precious {
		t.Errorf("%+v, %v", settled, err)
	}
}

// TestAttackLinkAgainAndAgain checks that an agent is ended if it creates links again and again: git may follow one
// before it is removed.
func TestAttackLinkAgainAndAgain(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, project, "x")
	r, _ := begin(t, s, project, false) // the repository is created after the start of the run
	put(t, project, ".git/HEAD", ".git/objects/ab/x", ".git/refs/x", ".git/logs/refs/heads/objects/ab/x")
	for n := range maxRemoved + 1 {
		if err := os.Symlink("/etc/passwd", filepath.Join(project, ".git", fmt.Sprint("link", n))); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("/etc/passwd", filepath.Join(project, ".git/logs/refs/heads/objects/ab/link"))
	if why := watchedToTheEnd(t.Context(), r); !strings.Contains(why, "the last one at .git/l") {
		t.Error(why)
	}
}

// watchedToTheEnd watches until Watch ends the agent, and returns the reason.
func watchedToTheEnd(ctx context.Context, r *Run) string {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the agent goes on"))
	defer cancel()
	r.Watch(ctx, end)
	return context.Cause(ctx).Error()
}

// TestAttackLinkWhereNobodyLooks checks that an agent is ended if it hides a link deeper than the search goes.
func TestAttackLinkWhereNobodyLooks(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, project, ".git/HEAD", ".git/refs/x")
	r, _ := begin(t, s, project, false)
	deep := ".git/logs/refs/heads" + strings.Repeat("/d", maxDepth)
	put(t, project, deep+"/x")
	if err := os.Symlink("/etc/passwd", filepath.Join(project, deep, "main")); err != nil {
		t.Fatal(err)
	}
	if why := watchedToTheEnd(t.Context(), r); !strings.Contains(why, "cannot be searched completely") || !strings.Contains(why, "directories deep") {
		t.Error(why)
	}
}

// TestAttackFileInPlaceOfLink checks that if a file replaces a removed link, it is quarantined and reported as a file.
func TestAttackFileInPlaceOfLink(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, project, ".git/HEAD", ".git/refs/x")
	r, _ := begin(t, s, project, false)
	at := filepath.Join(project, ".git/config.worktree")
	if err := os.Symlink("config", at); err != nil {
		t.Fatal(err)
	}
	if removed, left := r.lookThrough(t.Context()); len(removed) != 1 || left != "" {
		t.Fatalf("%v, %q", removed, left)
	}
	put(t, project, ".git/config.worktree")
	settled, err := r.Settle()
	words := settled.Words(project)
	if err != nil || len(words) != 1 || !strings.Contains(words[0], "it is in quarantine") {
		t.Errorf("%q, %v", words, err)
	}
}

// TestAttackLongLinks checks that long chains of links and paths with many ".." take little time and count as leading
// out.
func TestAttackLongLinks(t *testing.T) {
	project := t.TempDir()
	put(t, project, "d/x")
	words := strings.Repeat("d/../", 700)
	for n := range 400 {
		to := words + fmt.Sprint("l", n+1)
		if err := os.Symlink(to, filepath.Join(project, fmt.Sprint("l", n))); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("round", filepath.Join(project, "round"))
	begin := time.Now()
	f, err := Guarded(project)
	if took := time.Since(begin); err != nil || took > time.Minute || f.Links["l0"] == "" || f.Links["round"] == "" || f.Links["l399"] != "" {
		t.Errorf("%v, %v, %d links", err, took, len(f.Links))
	}
}

// TestInstructionsThatAreLinks checks that a project is accepted if its CLAUDE.md is a link to its AGENTS.md, and
// refused if the link leads elsewhere.
func TestInstructionsThatAreLinks(t *testing.T) {
	project := t.TempDir()
	put(t, project, "AGENTS.md", "node_modules/x/AGENTS.md", "node_modules/x/.vscode/y", "node_modules/x/.git/config", "node_modules/x/.git/HEAD")
	os.Symlink("AGENTS.md", filepath.Join(project, "CLAUDE.md"))
	os.Symlink("../../AGENTS.md", filepath.Join(project, "node_modules/x/CLAUDE.md"))
	f, err := Guarded(project)
	if err != nil || !slices.Equal(f.Paths, []string{"AGENTS.md", "CLAUDE.md", "node_modules/x/.git/config"}) {
		t.Errorf("%q, %v", f.Paths, err)
	}
	if err := f.Refused(project); err != nil {
		t.Error(err)
	}
	if got := f.Keep(project); len(got) != 2 {
		t.Errorf("%q", got)
	}
	os.Remove(filepath.Join(project, "CLAUDE.md"))
	os.Symlink("/etc/motd.md", filepath.Join(project, "CLAUDE.md"))
	if f, _ = Guarded(project); f.Refused(project) == nil {
		t.Error("a link that leads elsewhere is let through")
	}
}

// TestAttackOtherSpellings checks that other spellings, such as .GIT/CONFIG, are guarded too, since a file system may
// ignore case.
func TestAttackOtherSpellings(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, project, ".git/HEAD", ".git/refs/x", ".git/objects/x", "kept/.VSCode/x")
	r, _ := begin(t, s, project, false)
	if !slices.Contains(r.Before, "kept/.VSCode") {
		t.Errorf("%q", r.Before)
	}
	want := []string{".Claude", ".GIT/CONFIG", ".git/Hooks", "a/.Git/x/config", "sub/.hg/HGRC", "x/.cl\u200daude", "x/Agents.MD", "x/my.code-workspace"}
	put(t, project, ".Claude/settings.json", ".GIT/CONFIG", ".GIT/HEAD", ".git/Hooks/pre-commit", "a/.Git/x/config", "a/.Git/x/HEAD", "sub/.hg/HGRC", "sub/.hg/store", "x/.cl\u200daude/y", "x/Agents.MD", "x/my.code-workspace")
	settled, err := r.Settle()
	if err != nil || !slices.Equal(settled.Moved, want) {
		t.Errorf("%v\n%q, want\n%q", err, settled.Moved, want)
	}
}

// TestAttackEveryWriter checks that no tool can write where programs outside act on it, even without an agent. A tool
// called from the agent jail must not change files that the agent may not.
func TestAttackEveryWriter(t *testing.T) {
	project := t.TempDir()
	put(t, project, ".git/HEAD", ".git/config", ".git/hooks/x", ".git/objects/x", ".git/refs/x", ".vscode/tasks.json", "src/x", "sub/.Claude/x")
	plan := func(job bailey.Job, dir string, write, jailed bool) (*bailey.Wall, error) {
		t.Helper()
		dir = filepath.Join(project, dir)
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := &plans{}
		job.Places, job.Session = []bailey.Place{{Path: dir, File: f, Write: write}}, "s-1"
		_, err = NewWorks(p, filepath.Join(t.TempDir(), "caches"), func(id bailey.SessionID) bool { return jailed && id == "s-1" }).Plan(t.Context(), job)
		return p.wall, err
	}
	for _, dir := range []string{".git", ".git/hooks", ".vscode", "sub/.Claude"} {
		for _, jailed := range []bool{false, true} {
			if _, err := plan(bailey.Job{Capability: "git.clone"}, dir, true, jailed); bailey.KindOf(err) != bailey.Denied || bailey.HintOf(err) == "" {
				t.Errorf("%s, jailed %v: %v", dir, jailed, err)
			}
			if _, err := plan(bailey.Job{Capability: "git.log"}, dir, false, jailed); err != nil {
				t.Errorf("looking at %s: %v", dir, err)
			}
		}
	}
	if wall, err := plan(bailey.Job{Capability: "git.switch"}, ".", true, false); err != nil || wall != nil {
		t.Errorf("%+v, %v", wall, err)
	}
	wall, err := plan(bailey.Job{Capability: "git.switch"}, ".", true, true)
	var kept []string
	if wall != nil {
		for _, path := range wall.Keep {
			kept = append(kept, strings.TrimPrefix(path, project+"/"))
		}
	}
	if want := []string{".git/config", ".git/hooks", ".vscode", "sub/.Claude"}; err != nil || !slices.Equal(kept, want) {
		t.Errorf("%v: kept %q, want %q", err, kept, want)
	}
	if wall, err := plan(bailey.Job{Capability: "git.log"}, ".", false, true); err != nil || wall != nil {
		t.Errorf("%+v, %v", wall, err)
	}
}
