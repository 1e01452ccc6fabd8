//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"bailey/internal/ktest"

	"bailey"
)

// TestLoadedLibraries checks that loaded returns a directory's shared objects that fit the program, with their
// dependencies.
func TestLoadedLibraries(t *testing.T) {
	ktest.Long(t)
	all := tools{}
	ls, err := all.findTool("ls")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ls.files, func(f toolFile) bool { return f.use == library })
	if i < 0 {
		ktest.Missing(t, "dynamic-ls", errors.New("ls needs no library"))
	}
	dir := t.TempDir()
	copyFile(t, ls.files[i].path, filepath.Join(dir, "one.so"))
	os.Symlink("one.so", filepath.Join(dir, "one.so.1"))
	put(t, filepath.Join(dir, "text.so"), "no object", 0o755)
	put(t, filepath.Join(dir, "one.py"), "", 0o644)
	os.Mkdir(filepath.Join(dir, "sub.so"), 0o755)
	got, err := all.librariesIn(dir, ls)
	if err != nil {
		t.Fatal(err)
	}
	if own := slices.DeleteFunc(slices.Clone(got.files), func(f toolFile) bool { return filepath.Dir(f.path) != dir }); len(own) != 1 || own[0].use != library {
		t.Errorf("of %s: %+v", dir, own)
	}
	if len(got.files) < 2 {
		t.Errorf("what it needs is missing: %+v", got.files)
	}
	if again, _ := all.librariesIn(dir, ls); again != got {
		t.Error("an unchanged directory was read again")
	}
	copyFile(t, ls.files[i].path, filepath.Join(dir, "two.so"))
	if more, err := all.librariesIn(dir, ls); err != nil || len(more.files) != len(got.files)+1 {
		t.Errorf("what was added is not seen: %v, %v", more, err)
	}
	if none, err := all.librariesIn(filepath.Join(dir, "none"), ls); err != nil || len(none.files) != 0 {
		t.Errorf("a directory that is not there: %v, %v", none, err)
	}
	for n := range maxLoaded {
		os.Link(filepath.Join(dir, "one.so"), filepath.Join(dir, fmt.Sprintf("%d.so", n)))
	}
	if _, err := all.librariesIn(dir, ls); bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("a directory of any size: %v", err)
	}
}
