package workspace

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
	"bailey/pack"
)

// TestHas checks that Has looks below the opened descriptor, even if its path names something else by then, and that it
// follows no path that leaves the descriptor's directory.
func TestHas(t *testing.T) {
	top := Canonical(t.TempDir())
	dir := filepath.Join(top, "repo")
	for _, d := range []string{"repo/.git/refs", "repo/sub", "evil/only"} {
		os.MkdirAll(filepath.Join(top, d), 0o755)
	}
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	os.Symlink(".git", filepath.Join(dir, "inside"))
	os.Symlink("../evil", filepath.Join(dir, "out"))
	os.Symlink("/etc", filepath.Join(dir, "etc"))
	os.Symlink("nowhere", filepath.Join(dir, "dangling"))
	os.Symlink("/proc/self/root", filepath.Join(dir, "magic"))
	p := opened(t, dir)
	os.Rename(dir, dir+".old")
	os.Rename(filepath.Join(top, "evil"), dir)
	var w Workspaces
	for below, want := range map[string]bool{".git": true, ".git/refs": true, "inside/refs": true, "file": true, "only": false, "absent": false, "file/x": false, "dangling": false} {
		if has, err := w.Has(p, below); err != nil || has != want {
			t.Errorf("%s: %v, %v", below, has, err)
		}
	}
	for _, below := range []string{"out", "out/only", "etc", "etc/passwd", "magic/etc", "../evil", "sub/../../evil", "/etc"} {
		if has, err := w.Has(p, below); has || err == nil {
			t.Errorf("%s: %v, %v", below, has, err)
		}
	}
}

// TestRead checks that Read reads the file of the opened descriptor, even if its path names another file by then.
func TestRead(t *testing.T) {
	path := fileOf(t, "harmless")
	p := opened(t, path)
	os.Rename(path, path+".old")
	os.WriteFile(path, []byte("evil"), 0o644)
	var w Workspaces
	r, err := w.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "harmless" || r.Close() != nil {
		t.Errorf("%q, %v", b, err)
	}
	os.Truncate(path+".old", pack.MaxStdin+1) // the file has grown since it was opened
	if _, err := w.Read(p); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), "more than 10485760") {
		t.Error(err)
	}
}

// TestStdinIsMasked checks that a file that is masked in every cage cannot be standard input either, for example
// through a symlink in a workspace.
func TestStdinIsMasked(t *testing.T) {
	dir := Canonical(t.TempDir())
	os.MkdirAll(filepath.Join(dir, "home"), 0o755)
	os.WriteFile(filepath.Join(dir, "home", "key"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(dir, "other"), []byte("x"), 0o644)
	os.Symlink("home/key", filepath.Join(dir, "link"))
	w := NewWorkspaces([]string{filepath.Join(dir, "home"), filepath.Join(dir, "agent")}, nil)
	w.Use([]string{dir}, nil)
	os.Symlink("other", filepath.Join(dir, "agent")) // created after the masks were set
	call := bailey.Call{Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	for _, name := range []string{"home/key", "link", "other", "agent"} {
		if _, err := w.Open(call, pack.PathInput{Name: "stdin", File: true}, name); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "is masked") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenForStdin checks that standard input must be a file, of at most pack.MaxStdin bytes.
func TestOpenForStdin(t *testing.T) {
	dir := Canonical(t.TempDir())
	call := bailey.Call{Dir: dir, Session: bailey.Session{ID: bailey.NewSessionID()}}
	os.Mkdir(filepath.Join(dir, "sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "small"), []byte("x"), 0o644)
	os.WriteFile(filepath.Join(dir, "large"), nil, 0o644)
	os.Truncate(filepath.Join(dir, "large"), pack.MaxStdin+1)
	w := NewWorkspaces(nil, nil)
	for name, want := range map[string]string{"small": "", "sub": "is a directory", "large": "more than 10485760"} {
		p, err := w.Open(call, pack.PathInput{Name: "stdin", File: true}, name)
		if want == "" && err != nil || want != "" && (bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			p.File.Close()
		}
	}
}

// opened returns a path input as it is after the check.
func opened(t testing.TB, path string) bailey.Place {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return bailey.Place{Input: "file", Path: path, File: f}
}

func fileOf(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func content(t testing.TB, f *bailey.Frozen) string {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(f.File, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFreeze checks that the hashed content stays the same if the file, its path or a hard link changes, and that no
// process can write it, not even the gateway.
func TestFreeze(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"written":  func(p string) error { return os.WriteFile(p, []byte("evil"), 0o644) },
		"emptied":  func(p string) error { return os.Truncate(p, 0) },
		"swapped":  func(p string) error { return os.Rename(p+".evil", p) },
		"a link":   func(p string) error { os.Remove(p); return os.Symlink(p+".evil", p) },
		"a pipe":   func(p string) error { os.Remove(p); return unix.Mkfifo(p, 0o644) },
		"hardlink": func(p string) error { return os.WriteFile(p+".link", []byte("evil"), 0o644) },
	} {
		path := fileOf(t, "harmless")
		os.WriteFile(path+".evil", []byte("evil"), 0o644)
		if err := os.Link(path, path+".link"); err != nil {
			t.Fatal(err)
		}
		p := opened(t, path)
		var w Workspaces
		f, release, err := w.Freeze(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if got := content(t, f); got != "harmless" || f.Size != 8 || f.SHA256.Reveal() != fmt.Sprintf("%x", sha256.Sum256([]byte("harmless"))) {
			t.Errorf("%s: %q, %d bytes, %s", name, got, f.Size, f.SHA256.Reveal())
		}
		again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.File.Fd()), os.O_RDWR, 0)
		if err == nil {
			if _, err = again.WriteAt([]byte("x"), 0); err == nil {
				t.Errorf("%s: it can be written", name)
			}
			again.Close()
		}
		if _, err := f.File.WriteAt([]byte("x"), 0); err == nil || f.File.Truncate(3) == nil || f.File.Truncate(30) == nil {
			t.Errorf("%s: it can be changed", name)
		}
		release()
		if _, err := f.File.Stat(); err == nil || w.frozen.held != 0 {
			t.Errorf("%s: it is still held, %d bytes", name, w.frozen.held)
		}
	}
}

// TestFreezeCopiesTheDescriptor checks that the descriptor that was checked is copied, even if the path leads elsewhere
// by then.
func TestFreezeCopiesTheDescriptor(t *testing.T) {
	path := fileOf(t, "harmless")
	p := opened(t, path)
	os.Rename(path, path+".old")
	os.WriteFile(path, []byte("evil"), 0o644)
	var w Workspaces
	f, release, err := w.Freeze(p)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if got := content(t, f); got != "harmless" {
		t.Errorf("%q", got)
	}
}

func TestFreezeRefuses(t *testing.T) {
	ktest.Long(t)
	sparse := fileOf(t, "")
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Fatal(err)
	}
	large := fileOf(t, "")
	os.Truncate(large, maxFrozen+1)
	for name, path := range map[string]string{"sparse": sparse, "large": large} {
		var w Workspaces
		begun := time.Now()
		_, _, err := w.Freeze(opened(t, path))
		if bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), "input /file") || w.frozen.held != 0 || time.Since(begun) > time.Minute {
			t.Errorf("%s: %v", name, err)
		}
	}
	largest := fileOf(t, "")
	os.Truncate(largest, maxFrozen)
	var w Workspaces
	for range maxFrozenAll / maxFrozen {
		_, release, err := w.Freeze(opened(t, largest))
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	if _, _, err := w.Freeze(opened(t, largest)); bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("more than all may hold: %v", err)
	}
	for name, path := range map[string]string{"directory": t.TempDir(), "pipe": pipe(t), "device": "/dev/null"} {
		if f, _, err := w.Freeze(opened(t, path)); f != nil || err != nil {
			t.Errorf("a %s: %v, %v", name, f, err)
		}
	}
}

// TestFreezeCountsEmptyFiles checks that an empty file counts too, because it also uses resources.
func TestFreezeCountsEmptyFiles(t *testing.T) {
	var w Workspaces
	empty := opened(t, fileOf(t, ""))
	_, release, err := w.Freeze(empty)
	if err != nil || w.frozen.held != minFrozen {
		t.Fatalf("%d bytes are held, %v", w.frozen.held, err)
	}
	w.frozen.held = maxFrozenAll
	if _, _, err := w.Freeze(empty); bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("where all room is taken: %v", err)
	}
	w.frozen.held = minFrozen
	if release(); w.frozen.held != 0 {
		t.Errorf("%d bytes are still held", w.frozen.held)
	}
}

func pipe(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFreezeWhileItIsWritten checks that the copy of a file that is being written is refused, or has the size and hash
// that Freeze returns.
func TestFreezeWhileItIsWritten(t *testing.T) {
	ktest.Long(t)
	path := fileOf(t, strings.Repeat("a", 1<<20))
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for i := byte('b'); ; i++ {
			select {
			case <-stop:
				return
			default:
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					t.Error(err)
					return
				}
				f.Write(bytes.Repeat([]byte{i}, 1<<20))
				if i%3 == 0 {
					f.Truncate(1<<20 + int64(i))
				}
				f.Close()
			}
		}
	})
	var w Workspaces
	p := opened(t, path)
	refused := 0
	for range 200 {
		f, release, err := w.Freeze(p)
		if err != nil {
			if refused++; bailey.KindOf(err) != bailey.Conflict {
				t.Error(err)
			}
			continue
		}
		got := content(t, f)
		if int64(len(got)) != f.Size || f.SHA256.Reveal() != fmt.Sprintf("%x", sha256.Sum256([]byte(got))) {
			t.Errorf("%d bytes of %d, not as hashed", len(got), f.Size)
		}
		release()
	}
	close(stop)
	done.Wait()
	if w.frozen.held != 0 {
		t.Errorf("%d bytes are still held", w.frozen.held)
	}
	t.Logf("%d of 200 refused", refused)
}

// TestLoad checks that Load reads regular files below the opened descriptor, and follows no link at all.
func TestLoad(t *testing.T) {
	top := Canonical(t.TempDir())
	dir := filepath.Join(top, "repo")
	os.MkdirAll(filepath.Join(dir, ".git"), 0o755)
	os.WriteFile(filepath.Join(dir, ".git/config"), []byte("mine"), 0o644)
	os.WriteFile(filepath.Join(dir, "file"), []byte("12345"), 0o644)
	os.WriteFile(filepath.Join(top, "evil"), []byte("evil"), 0o644)
	for name, to := range map[string]string{"inside": ".git", "link": "file", "out": "../evil", "dangling": "nowhere", "magic": "/proc/self/root"} {
		os.Symlink(to, filepath.Join(dir, name))
	}
	unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644)
	p := opened(t, dir)
	os.Rename(dir, dir+".old")
	os.MkdirAll(filepath.Join(dir, ".git"), 0o755)
	os.WriteFile(filepath.Join(dir, ".git/config"), []byte("another"), 0o644)
	var w Workspaces
	for below, want := range map[string]string{".git/config": "mine", "file": "12345", "absent": "", ".git": "", "file/x": ""} {
		if data, there, err := w.Load(p, below, 5); err != nil || string(data) != want || there != (want != "") {
			t.Errorf("%s: %q, %v, %v", below, data, there, err)
		}
	}
	for _, below := range []string{"inside/config", "link", "out", "dangling", "magic/etc/passwd", "../evil", "/etc/passwd", "fifo"} {
		if data, there, err := w.Load(p, below, 1<<20); err == nil {
			t.Errorf("%s: %q, %v", below, data, there)
		}
	}
	if _, _, err := w.Load(p, "file", 4); err == nil {
		t.Error("a file above the limit is read")
	}
}
