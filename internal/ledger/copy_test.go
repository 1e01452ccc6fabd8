//go:build linux

package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
)

// TestCopyIsRead checks that the owner and mode of a copy are noted and do not change the verdict. If a file is not
// part of a ledger, it must be refused without waiting, and the hint must not alter it.
func TestCopyIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		note  string // of a copy that is read
		words string // of a copy that is refused
	}{
		"as it was":   {func(*testing.T, string) {}, "", ""},
		"dir 0755":    {func(t *testing.T, dir string) { do(t, os.Chmod(dir, 0o755)) }, "its mode is 0755", ""},
		"mode 0644":   {func(t *testing.T, dir string) { do(t, os.Chmod(first(dir), 0o644)) }, "00000001.jsonl: its mode is 0644", ""},
		"hard link":   {func(t *testing.T, dir string) { do(t, os.Link(first(dir), dir+"/other")) }, "2 names", ""},
		"dir symlink": {func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+"2")); do(t, os.Symlink(dir+"2", dir)) }, "it is a symbolic link", ""},
		"owner": {func(t *testing.T, dir string) {
			ktest.Require(t, "root") // only root can change the owner of a file
			do(t, os.Chown(first(dir), 12345, 12345))
		}, "uid 12345", ""},
		"symlink": {func(t *testing.T, dir string) {
			do(t, os.Rename(first(dir), dir+"/moved"))
			do(t, os.Symlink("moved", first(dir)))
		}, "", "cannot be read"},
		"fifo": {func(t *testing.T, dir string) {
			do(t, os.Remove(first(dir)))
			do(t, unix.Mkfifo(first(dir), 0o600))
		}, "", "cannot be read"},
		"directory":   {func(t *testing.T, dir string) { do(t, os.Remove(first(dir))); do(t, os.Mkdir(first(dir), 0o700)) }, "", "cannot be read"},
		"no segment":  {func(t *testing.T, dir string) { do(t, os.Remove(first(dir))) }, "", "it does not contain 00000001.jsonl"},
		"none at all": {func(t *testing.T, dir string) { do(t, os.RemoveAll(dir)) }, "", "there is no directory"},
		"a file":      {func(t *testing.T, dir string) { do(t, os.RemoveAll(dir)); do(t, put(dir, "")) }, "", "is not a directory"},
		"gap":         {func(t *testing.T, dir string) { do(t, put(dir+"/00000003.jsonl", "")) }, "", "not 00000002.jsonl"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, Config{Dir: dir})
			call(t, l)
			do(t, l.Close())
			seen := kept(t, dir)
			c.spoil(t, dir)
			r, notes, err := VerifyCopy(t.Context(), dir, seen)
			if c.words != "" {
				if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(bailey.HintOf(err), "chmod") || strings.Contains(bailey.HintOf(err), "move") {
					t.Errorf("%v (%s), want %q", err, bailey.HintOf(err), c.words)
				}
				if name != "gap" && !errors.Is(err, bailey.Invalid) {
					t.Error("it reads as a verdict")
				}
				return
			}
			if err != nil || !r.OK || (c.note == "") != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), c.note) {
				t.Errorf("%v %v %q", r.FirstBad, err, notes)
			}
		})
	}
	dir := place(t)
	rotated(t, dir, 5)
	c := kept(t, dir)
	for _, name := range segmentsOf(t, dir) {
		do(t, os.Chmod(name, 0o644))
	}
	do(t, put(first(dir), "")) // an emptied ledger is still a ledger
	r, notes, err := VerifyCopy(t.Context(), dir, c)
	if err != nil || r.OK || len(notes) != 1 || !strings.Contains(notes[0], " more: its mode is 0644") {
		t.Errorf("%v %v %q", r.FirstBad, err, notes)
	}
	for _, name := range slices.Backward(segmentsOf(t, dir)[1:]) {
		do(t, os.Remove(name))
	}
	if r, _, err = VerifyCopy(t.Context(), dir, c); err != nil || r.FirstBad.Reason != audit.Truncated {
		t.Errorf("%v %v", r.FirstBad, err)
	}
	if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestVerifyHeedsItsCaller checks that verification stops if its caller's context ends.
func TestVerifyHeedsItsCaller(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	call(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := VerifyCopy(ctx, dir, audit.Check{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
