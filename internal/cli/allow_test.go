package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"bailey/internal/localapi/apitype"
	"bailey/internal/policy/review"
)

// TestUndoRule checks that a rule that is not applied leaves the policy's directory as it was, with the modes of its files,
// and does not overwrite what a person wrote meanwhile.
func TestUndoRule(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policy")
	files := []apitype.KeptFile{{Name: review.WishFile, Text: "rule"}, {Name: "starter.cedar", Text: "new"}}
	undo, err := replacePolicyFiles(dir, files)
	if err != nil {
		t.Fatal(err)
	}
	if files[0].Name != review.WishFile {
		t.Error("the order of the given files was changed")
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}

	starter, allowed := filepath.Join(dir, "starter.cedar"), filepath.Join(dir, review.WishFile)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{starter, allowed} {
		if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
			t.Fatal(err)
		}
		os.Chmod(path, 0o640)
	}
	if undo, err = replacePolicyFiles(dir, files); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(allowed, []byte("edited"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := undo(); err == nil || !strings.Contains(err.Error(), "was changed meanwhile") {
		t.Errorf("undo over an edited file: %v", err)
	}
	for path, want := range map[string]string{starter: "old", allowed: "edited"} {
		info, err := os.Lstat(path)
		text, err2 := os.ReadFile(path)
		if err != nil || err2 != nil || string(text) != want || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %q %v, %v %v", path, text, info.Mode(), err, err2)
		}
	}
}
