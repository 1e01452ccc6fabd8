package wrap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestMovesNothingOutside checks that move changes, moves and creates nothing outside the project, even if another
// process replaces a directory with a symlink after the walk.
func TestMovesNothingOutside(t *testing.T) {
	project, outside, into := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, outside, ".claude/precious", "er/.claude/precious")
	os.Chmod(outside, 0o500)
	defer os.Chmod(outside, 0o700)
	os.MkdirAll(filepath.Join(project, "a"), 0o755)
	os.Symlink(outside, filepath.Join(project, "deep"))
	os.Symlink(outside, filepath.Join(project, "a", "deep"))
	for _, path := range []string{"deep/.claude", "deep/er/.claude", "a/deep/.claude"} {
		if err := moveFile(project, path, into); err == nil {
			t.Errorf("%s was moved", path)
		}
	}
	put(t, project, "b/.git/config")
	os.Symlink(outside, filepath.Join(into, "b"))
	if err := moveFile(project, "b/.git/config", into); err == nil {
		t.Error("it was put through a link")
	}
	var names []string
	for _, dir := range []string{outside, filepath.Join(outside, "er")} {
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			names = append(names, e.Name())
		}
	}
	info, _ := os.Stat(outside)
	if !slices.Equal(names, []string{".claude", "er", ".claude"}) || info.Mode().Perm() != 0o500 {
		t.Error(names, info.Mode())
	}
}

// TestSettleAgain checks that an interrupted Settle can be repeated. Entries of the first time in quarantine, such as a
// symlink or the same name, must not prevent this.
func TestSettleAgain(t *testing.T) {
	project, s, outside := t.TempDir(), State(filepath.Join(t.TempDir(), "state")), t.TempDir()
	put(t, outside, "config")
	r, _ := begin(t, s, project, false)
	os.Mkdir(filepath.Join(project, "x"), 0o755)
	os.Symlink(outside, filepath.Join(project, "x/.git"))
	put(t, project, ".envrc")
	first := *r
	if _, err := first.Settle(); err != nil {
		t.Fatal(err)
	}
	put(t, project, "x/.git/config", ".envrc")
	r.lock, _ = os.CreateTemp(t.TempDir(), "")
	os.WriteFile(s.recordPath(r.ID), nil, 0o600)
	got, err := r.Settle()
	if err != nil || !slices.Equal(got.Moved, []string{".envrc", "x/.git/config"}) {
		t.Errorf("%+v %v", got, err)
	}
	if b, _ := os.ReadFile(filepath.Join(outside, "config")); string(b) != "config" {
		t.Errorf("outside is %q", b)
	}
}

// TestQuarantineOfAwkwardNames checks that files with any name are moved, for example with control characters.
func TestQuarantineOfAwkwardNames(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	r, _ := begin(t, s, project, false)
	put(t, project, "bailey-manifest.json/.envrc", "z/.envrc", "-rf/.envrc", "new\nline/.envrc", "quo'te/.envrc", "esc\x1b[2J/.envrc")
	here, _ := os.Getwd()
	defer os.Chdir(here)
	os.Chdir(project)
	for range 40 { // longer than PATH_MAX
		name := "\x01" + strings.Repeat("d", 200)
		os.Mkdir(name, 0o755)
		if err := syscall.Chdir(name); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(".envrc", nil, 0o644)
	os.Chdir(here)
	got, err := r.Settle()
	if err != nil || len(got.Moved) != 7 || len(got.Unseen) > 0 {
		t.Errorf("%d %q %v", len(got.Moved), got.Unseen, err)
	}
	if now, err := Guarded(project); err != nil || len(now.Paths) > 0 {
		t.Errorf("%d are left, %v", len(now.Paths), err)
	}
}

// TestGuardedOfManyAndDeep checks that the walk at the end has no limit and reports directories that are too deep. The
// walk before a run must refuse a project with too many entries.
func TestGuardedOfManyAndDeep(t *testing.T) {
	ktest.Long(t)
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	r, home := begin(t, s, project, false)
	for i := range 3000 {
		put(t, project, fmt.Sprintf("d%d/.envrc", i))
	}
	here, _ := os.Getwd()
	defer os.Chdir(here)
	for _, dir := range []string{project, home} {
		os.Chdir(dir)
		for range 3000 {
			os.Mkdir("d", 0o755)
			if err := syscall.Chdir("d"); err != nil {
				t.Fatal(err)
			}
		}
		os.WriteFile(".envrc", nil, 0o644)
	}
	os.Chdir(here)
	syscall.Mkfifo(filepath.Join(project, "fifo"), 0o644)
	defer func(n int) { maxEntries = n }(maxEntries)
	maxEntries = 100
	got, err := r.Settle()
	if err != nil || len(got.Moved) != 3000 || len(got.Unseen) != 1 {
		t.Errorf("%d %d %v", len(got.Moved), len(got.Unseen), err)
	}
	if lines := got.Words(project); len(lines) > 2*maxWords+4 {
		t.Errorf("%d lines", len(lines))
	}
	if _, err := os.Lstat(home); err == nil {
		t.Error("the home is still there")
	}
	if _, err := Guarded(project); err == nil {
		t.Error("a project of any size is begun with")
	}
}

// TestLinksIntoKeptHomes checks that symlinks into the agent's home are removed. A program that follows one would take
// the agent's files, such as a repository's configuration, for the project's own.
func TestLinksIntoKeptHomes(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	r, home := begin(t, s, project, true)
	put(t, home, "x/.git/config")
	os.Symlink(filepath.Join(home, "x"), filepath.Join(project, "docs"))
	os.Symlink("docs", filepath.Join(project, "two"))
	os.Symlink(filepath.Join("..", filepath.Base(project), "sub"), filepath.Join(project, "fine"))
	os.Symlink("/proc/self/root"+home, filepath.Join(project, "round"))
	os.Symlink("/usr/bin/env", filepath.Join(project, "env"))
	got, err := r.Settle()
	if err != nil || !slices.Equal(got.Moved, []string{"docs", "round", "two"}) {
		t.Errorf("%+v %v", got, err)
	}
}

// TestProjectMoved checks that a project that has moved is reported as unseen. It must not look as if no file had
// appeared.
func TestProjectMoved(t *testing.T) {
	dir, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	project := filepath.Join(dir, "one")
	put(t, project, "x")
	r, _ := begin(t, s, project, false)
	put(t, project, ".envrc")
	os.Rename(project, filepath.Join(dir, "two"))
	if got, err := r.Settle(); err != nil || len(got.Unseen) != 1 {
		t.Errorf("%+v %v", got, err)
	}
}

// TestTreesOfAProgramInTheProject checks that links of an agent installed in the project are not followed outside.
// Otherwise the agent could make the next cage show any file.
func TestTreesOfAProgramInTheProject(t *testing.T) {
	dir := t.TempDir()
	project := filepath.Join(dir, "project")
	put(t, dir, "private/notes", "private/node_modules/x/cli.js", "node")
	put(t, project, "node_modules/agent/cli.js", "node_modules/.bin/keep")
	os.WriteFile(filepath.Join(project, "node_modules/agent/cli.js"), []byte("#!/usr/bin/env node\n"), 0o755)
	bin := filepath.Join(project, "node_modules/.bin")
	os.Symlink("../agent/cli.js", filepath.Join(bin, "agent"))
	os.Symlink(filepath.Join(dir, "private/notes"), filepath.Join(bin, "node"))
	os.Symlink(filepath.Join(dir, "private/node_modules/x/cli.js"), filepath.Join(bin, "other"))
	look := func(string) (string, error) { return filepath.Join(dir, "node"), nil }
	for name, want := range map[string][]string{"agent": {"project/node_modules/.bin/agent", "project/node_modules", "node"}, "other": nil} {
		trees, _ := Trees("/opt/bailey", filepath.Join(bin, name), project, "", look)
		var got []string
		for _, tree := range trees {
			if name, ok := strings.CutPrefix(tree.Path, dir+"/"); ok {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestKeptHomeStaysOfUse checks that an agent cannot make its home unusable for the next run.
func TestKeptHomeStaysOfUse(t *testing.T) {
	project, s, outside := t.TempDir(), State(filepath.Join(t.TempDir(), "state")), t.TempDir()
	r, home := begin(t, s, project, true)
	os.Chmod(home, 0o755)
	os.Symlink(outside, filepath.Join(home, ".tmp"))
	if _, err := r.Settle(); err != nil {
		t.Fatal(err)
	}
	r, home = begin(t, s, project, true)
	defer r.Settle()
	if err := Furnish(home, nil); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(filepath.Join(home, ".tmp")); err != nil || !info.IsDir() {
		t.Error(info, err)
	}
	os.Symlink(outside, filepath.Join(home, ".codex"))
	if err := Furnish(home, map[string]string{".codex/x": ""}); bailey.HintOf(err) == "" {
		t.Error("no hint:", err)
	}
}

// TestRecordsAreWhole checks that a search for killed runs sees complete records only. It must also find runs in
// directories above or below, since they concern the same files.
func TestRecordsAreWhole(t *testing.T) {
	ktest.Long(t)
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, project, "sub/x")
	if err := makePrivateDir(s.joinPath("runs")); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			list, err := s.Left("/elsewhere")
			if err != nil || len(list) > 0 {
				done <- fmt.Errorf("%v %w", list, err)
				return
			}
		}
	}()
	for range 200 {
		r, _, err := s.Begin("claude", project, Found{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	r, _ := begin(t, s, project, false)
	put(t, project, "sub/.envrc")
	r.lock.Close()
	list, err := s.Left(filepath.Join(project, "sub"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if got, err := list[0].Settle(); err != nil || !slices.Equal(got.Moved, []string{"sub/.envrc"}) {
		t.Errorf("%+v %v", got, err)
	}
}

// TestNamesInRecords checks that a name that is not UTF-8 is unchanged when a killed run is found.
func TestNamesInRecords(t *testing.T) {
	project, s := t.TempDir(), State(filepath.Join(t.TempDir(), "state"))
	put(t, project, "caf\xe9/.envrc")
	r, _ := begin(t, s, project, false)
	put(t, project, "caf\ufffd/.envrc")
	r.lock.Close()
	list, err := s.Left(project)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	got, err := list[0].Settle()
	if err != nil || !slices.Equal(got.Moved, []string{"caf\ufffd/.envrc"}) || len(got.Changed) > 0 {
		t.Errorf("%+v %v", got, err)
	}
}
