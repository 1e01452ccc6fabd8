package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"bailey"
)

// TestOpenPlace checks that an opened place stays the same file, even if another file gets its name, and that its path
// is the real path.
func TestOpenPlace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Symlink(real, link), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for path, want := range map[string]string{real: real, link: real, "real": real, "./link/../link": real, "file": filepath.Join(dir, "file"), ".": dir} {
		p, err := OpenPlace(path, path == link)
		if err != nil {
			t.Fatal(path, err)
		}
		defer p.File.Close()
		if p.Path != want || p.Write != (path == link) || p.Input != "" {
			t.Errorf("%s is %+v, want %s", path, p, want)
		}
		before, err := p.File.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if want != real {
			continue
		}
		if err := errors.Join(os.Rename(real, real+".old"), os.Mkdir(real, 0o755)); err != nil {
			t.Fatal(err)
		}
		after, err := p.File.Stat()
		if now, nerr := os.Stat(real); err != nil || nerr != nil || !os.SameFile(before, after) || os.SameFile(after, now) {
			t.Errorf("%s followed its name: %v %v", path, err, nerr)
		}
		if err := errors.Join(os.Remove(real), os.Rename(real+".old", real)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"nowhere", "real/nowhere", "file/x", "/proc/self/root", "/proc/self/fd/0", "a\x00b"} {
		if p, err := OpenPlace(path, false); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%q: %+v, %v", path, p, err)
		}
	}
}
