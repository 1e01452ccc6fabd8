//go:build linux

package jail

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// newNestsDir gives a jail its own directory for nests, which no other test uses.
func newNestsDir(t testing.TB, j *Jail) {
	t.Helper()
	j.nests = filepath.Join(j.open(t, false), "bailey-cages-test")
}

// TestNestIsRemoved leaves files in a nest that are hard to remove.
func TestNestIsRemoved(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	newNestsDir(t, j)
	r := ask(t, j, bailey.Job{}, "mess").must(t)
	if r.first() != "ok" {
		t.Fatalf("%+v", r)
	}
	if n := names(t, j.nests); len(n) != 0 {
		t.Errorf("%v are left", n)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Error("a link was followed")
	}
}

func names(t testing.TB, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestUnmake checks that a tree is removed with its inaccessible directories, without following links.
func TestUnmake(t *testing.T) {
	ktest.Long(t)
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	tree := filepath.Join(dir, "tree")
	for _, d := range []string{kept, tree + "/a/b/c", tree + "/empty"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{kept + "/f", tree + "/a/b/c/f", tree + "/a/f", tree + "/a/" + strings.Repeat("n", 255)} {
		if err := os.WriteFile(f, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink(kept, tree+"/a/out")
	os.Symlink("..", tree+"/a/b/up")
	for i := range 1000 {
		os.Mkdir(fmt.Sprintf("%s/empty/%d", tree, i), 0)
	}
	os.Chmod(tree+"/a/b/c", 0)
	os.Chmod(tree+"/a/b", 0)
	os.Chmod(tree+"/a", 0o100)
	os.Chmod(tree, 0o500)
	base, err := openFolder(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	if err := removeTree(base, "tree"); err != nil {
		t.Error(err)
	}
	if exists(tree) || !exists(kept+"/f") {
		t.Errorf("the tree is left: %t, what a link leads to is left: %t", exists(tree), exists(kept+"/f"))
	}
	if err := removeTree(base, "tree"); err != nil {
		t.Errorf("what is gone already: %v", err)
	}
	os.Symlink(kept, tree)
	if err := removeTree(base, "tree"); err == nil || !exists(kept+"/f") {
		t.Errorf("a symlink in its place: %v", err)
	}
}

// TestNestsOfTheDead checks that the next New removes a killed gateway's nests, and keeps those in use.
func TestNestsOfTheDead(t *testing.T) {
	j := lesserJail(t, Config{})
	newNestsDir(t, j)
	live, err := newNest(j.nests, j.hostUID, j.hostGID)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newNest(j.nests, j.hostUID, j.hostGID)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead.path, "f"), nil, 0); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does when the process dies
	sweepNests(j.nests)
	if exists(dead.path) || !exists(live.path) {
		t.Errorf("of the dead is left: %t, of the living: %t", exists(dead.path), exists(live.path))
	}
	if err := live.removeDir(); err != nil || exists(live.path) {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(j.nests, &st); err != nil || st.Mode&0o7777 != 0o711 {
		t.Errorf("%s has the mode %o (%v)", j.nests, st.Mode&0o7777, err)
	}
}

// TestNestsRefused checks that a directory is not used if it is another user's or not a directory.
func TestNestsRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	os.Symlink(dir, link)
	paths := []string{link}
	if os.Geteuid() == 0 {
		squat := filepath.Join(dir, "squat")
		os.Mkdir(squat, 0o777)
		os.Chown(squat, stranger, strangers)
		paths = append(paths, squat)
	} else {
		paths = append(paths, "/")
	}
	for _, p := range paths {
		n, err := newNest(p, os.Geteuid(), os.Getegid())
		if err == nil {
			n.removeDir()
			t.Errorf("%s was used", p)
		} else if !strings.Contains(err.Error(), "tmp-private") || p != link && !strings.Contains(bailey.HintOf(err), "directory that you own") {
			t.Errorf("%v (%s)", err, bailey.HintOf(err))
		}
	}
}

// TestNestsOfAnotherUser checks that the error names the cause and the remedy even if the directory cannot be opened.
func TestNestsOfAnotherUser(t *testing.T) {
	ktest.Require(t, "root")
	squat := filepath.Join(public(t), "squat")
	os.Mkdir(squat, 0o711)
	os.Chown(squat, stranger, strangers)
	done := make(chan error)
	go func() { // this thread ends with the goroutine; for files it is a user without rights (setfsuid(2))
		runtime.LockOSThread()
		unix.RawSyscall(unix.SYS_SETFSUID, stranger+1, 0, 0)
		_, err := newNest(squat, 0, 0)
		done <- err
	}()
	wants(t, <-done, "tmp-private", "directory that you own")
}

func TestStatusField(t *testing.T) {
	text := []byte("Name:\tUid: 7\nUid:\t1000\t1001\nThreads:\t3\nNSpid:\t1\t2\n")
	for name, want := range map[string]int{"Uid:": 1000, "Threads:": 3, "NSpid:": 1, "Pid:": -1, "Name:": -1} {
		if got := statusField(text, name); got != want {
			t.Errorf("%s %d, want %d", name, got, want)
		}
	}
	if statusField(bytes.TrimSpace(nil), "Uid:") != -1 {
		t.Error("there is a field in nothing")
	}
	if n := tasksOf(os.Getuid()); n < 1 {
		t.Errorf("this user has %d tasks", n)
	}
}
