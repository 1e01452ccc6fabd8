package image

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
)

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// addTestImage adds an image whose files are texts.
func addTestImage(t testing.TB, s *Store, name string) Image {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []string{"agent", "kernel"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("the "+f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	i, err := s.AddMinimal(context.Background(), MinimalConfig{Name: name, Arch: "amd64", Agent: filepath.Join(dir, "agent"),
		Kernel: filepath.Join(dir, "kernel"), From: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestStore checks the life of an image: made, found by another process's store, listed, removed.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	made := addTestImage(t, openStore(t, dir), "one")
	s := openStore(t, dir)
	i, err := s.Get("one")
	if err != nil || i.Digest != made.Digest || len(i.Digest) != 64 || i.Kernel != filepath.Join(dir, "one", "kernel") || i.Built.IsZero() {
		t.Fatalf("%+v, %v", i, err)
	}
	if text, err := os.ReadFile(i.Kernel); err != nil || string(text) != "the kernel" {
		t.Errorf("%q, %v", text, err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "one"): 0o700, i.Kernel: 0o444} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	other := addTestImage(t, s, "two.1_a-b")
	if other.Digest != i.Digest {
		t.Error("the same content has two digests")
	}
	if list, err := s.List(); err != nil || len(list) != 2 || list[0].Name != "one" || list[1].Digest != i.Digest {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.Create("one"); !errors.Is(err, bailey.Conflict) {
		t.Error(err)
	}
	if err := s.Remove("one", nil); err != nil {
		t.Error(err)
	}
	if _, err := s.Get("one"); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	if err := s.Remove("one", nil); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	expectNames(t, dir, storeLock, "two.1_a-b")
}

// expectNames compares the names in a directory.
func expectNames(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s contains %q, %v, want %q", dir, got, err, want)
	}
}

// TestChangedImage changes an image in every way, even with the same size and time of modification: Get notices it.
func TestChangedImage(t *testing.T) {
	for name, change := range map[string]func(i Image) error{
		"content": func(i Image) error { return rewrite(i.Kernel, "THE KERNEL") },
		"size":    func(i Image) error { return rewrite(i.Initrd, "short") },
		"link": func(i Image) error {
			return errors.Join(os.Rename(i.Kernel, i.Kernel+"2"), os.Symlink(i.Kernel+"2", i.Kernel))
		},
		"pipe":    func(i Image) error { return errors.Join(os.Remove(i.Kernel), exec.Command("mkfifo", i.Kernel).Run()) },
		"missing": func(i Image) error { return os.Remove(i.Initrd) },
		"record":  func(i Image) error { return editRecord(i, `"bailey.port=bailey"`, `"bailey.port=other"`) },
		"outside": func(i Image) error { return editRecord(i, `"kernel": "kernel"`, `"kernel": "../one/kernel"`) },
		"unknown": func(i Image) error { return editRecord(i, `"arch"`, `"x": 1, "arch"`) },
		"twice":   func(i Image) error { return editRecord(i, `"arch"`, `"arch": "arm64", "arch"`) },
		"cut":     func(i Image) error { return os.Truncate(filepath.Join(filepath.Dir(i.Kernel), recordFile), 40) },
		"none":    func(i Image) error { return os.Remove(filepath.Join(filepath.Dir(i.Kernel), recordFile)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), "images"))
			i := addTestImage(t, s, "one")
			if err := change(i); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get("one"); !errors.Is(err, bailey.Conflict) || !strings.Contains(bailey.HintOf(err), "bailey image remove one") {
				t.Error(err)
			}
			if list, err := s.List(); err != nil || len(list) != 1 || name != "content" && list[0].Problem == "" {
				t.Errorf("%+v, %v", list, err)
			}
			if err := s.Remove("one", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// rewrite replaces the content of a file and restores its time of modification.
func rewrite(name, text string) error {
	info, err := os.Stat(name)
	if err == nil {
		err = errors.Join(os.Chmod(name, 0o600), os.WriteFile(name, []byte(text), 0o600), os.Chtimes(name, info.ModTime(), info.ModTime()))
	}
	return err
}

func editRecord(i Image, from, to string) error {
	name := filepath.Join(filepath.Dir(i.Kernel), recordFile)
	text, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(text), from) {
		return errors.Join(err, errors.New("the record does not contain "+from))
	}
	return os.WriteFile(name, []byte(strings.Replace(string(text), from, to, 1)), 0o600)
}

// TestTouchedImage checks that an image that was copied is read once more, and is good.
func TestTouchedImage(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "images"))
	i := addTestImage(t, s, "one")
	if err := os.Chtimes(i.Kernel, time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Get("one"); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.digests) != 1 {
		t.Errorf("%d files were read, want one", len(s.digests))
	}
}

// TestImageInUse checks that an image that is used cannot be removed, and half-made images only when nothing makes them.
func TestImageInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir)
	addTestImage(t, s, "one")
	u, err := s.Use("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := openStore(t, dir).Remove("one", nil); !errors.Is(err, bailey.Conflict) || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	d, err := s.Create("two")
	if err != nil {
		t.Fatal(err)
	}
	openStore(t, dir)
	if _, err := os.Stat(d.dir); err != nil {
		t.Error("a draft of another process was removed:", err)
	}
	d.lock.Close() // as if its process were killed
	again := openStore(t, dir)
	expectNames(t, dir, storeLock, "one")
	if err := errors.Join(u.Close(), again.Remove("one", nil)); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(dir, oldPrefix+"x"), 0o700); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir)
	expectNames(t, dir, storeLock)
}

// TestSameName makes two images with one name at once: one of them stays.
func TestSameName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir)
	d, err := s.Create("one")
	if err != nil {
		t.Fatal(err)
	}
	i := addTestImage(t, s, "one")
	if err := errors.Join(writeText(d, "kernel", "k"), writeText(d, "initrd", "i")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Commit(Image{Kind: Minimal, Arch: "amd64", Kernel: "kernel", Initrd: "initrd"}, nil); !errors.Is(err, bailey.Conflict) {
		t.Error(err)
	}
	if got, err := s.Get("one"); err != nil || got.Digest != i.Digest {
		t.Errorf("%+v, %v", got, err)
	}
	expectNames(t, dir, storeLock, "one")
}

// TestWideStore checks that a directory that others can read is refused.
func TestWideStore(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
}

// FuzzName checks that no name leads out of the store, and that a good one is one word.
func FuzzName(f *testing.F) {
	for _, name := range []string{"debian-12", "../x", ".", "..", "a/../b", "a\x00", ".new-x", "A", "a b", "", "-a", strings.Repeat("a", 65)} {
		f.Add(name)
	}
	s := openStore(f, filepath.Join(f.TempDir(), "images"))
	f.Fuzz(func(t *testing.T, name string) {
		_, err := s.Get(name)
		if CheckName(name) != nil {
			if !errors.Is(err, bailey.Invalid) {
				t.Errorf("%q: %v", name, err)
			}
			return
		}
		if filepath.Join(s.dir, name) != s.dir+"/"+name || strings.ContainsAny(name, "/\\\x00 \n") || name[0] == '.' || len(name) > maxName {
			t.Errorf("%q is accepted", name)
		}
		if !errors.Is(err, bailey.NotFound) {
			t.Errorf("%q: %v", name, err)
		}
	})
}
