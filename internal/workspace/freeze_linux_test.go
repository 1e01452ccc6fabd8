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
)

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
