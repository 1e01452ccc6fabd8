//go:build linux || darwin

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/receipts"
)

// TestReaderOfACopy checks that a copy may have any mode and several names, and that a link or a pipe in place of a
// segment is refused at once. The rules for a home's own ledger must stay strict.
func TestReaderOfACopy(t *testing.T) {
	for name, c := range map[string]struct {
		harm      func(t *testing.T, dir string)
		copy, own bool // whether it opens
	}{
		"modes": {func(t *testing.T, dir string) {
			do(t, os.Chmod(first(dir), 0o444))
			do(t, os.Chmod(dir, 0o555))
		}, true, false},
		"two names": {func(t *testing.T, dir string) { do(t, os.Link(first(dir), filepath.Join(dir, "too"))) }, true, false},
		"a link within": {func(t *testing.T, dir string) {
			do(t, os.Rename(first(dir), filepath.Join(dir, "here")))
			do(t, os.Symlink("here", first(dir)))
		}, false, false},
		"a link out": {func(t *testing.T, dir string) {
			do(t, os.Rename(first(dir), dir+".away"))
			do(t, os.Symlink(dir+".away", first(dir)))
		}, false, false},
		"a pipe": {func(t *testing.T, dir string) {
			do(t, os.Remove(first(dir)))
			do(t, syscall.Mkfifo(first(dir), 0o600))
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, Config{Dir: dir})
			call(t, l)
			do(t, l.Close())
			c.harm(t, dir)
			defer os.Chmod(dir, 0o700)
			for _, o := range []struct {
				open func(string) (*Reader, error)
				want bool
			}{{OpenCopy, c.copy}, {OpenReader, c.own}} {
				r, err := o.open(dir)
				if (err == nil) != o.want || err != nil && (bailey.HintOf(err) == "" || errors.Is(err, bailey.Internal)) {
					t.Errorf("%v (%s), want it to open: %v", err, bailey.HintOf(err), o.want)
				}
				if err == nil {
					if list, _, err := readAll(t, r, receipts.Filter{}); err != nil || len(list) != 1 {
						t.Errorf("%d receipts, %v", len(list), err)
					}
					r.Close()
				}
			}
		})
	}
}

// TestEmptiedSegmentIsNoEnd checks that an emptied segment does not count as the end of the ledger.
func TestEmptiedSegmentIsNoEnd(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	call(t, l)
	do(t, l.Close())
	do(t, os.WriteFile(filepath.Join(dir, segmentFile(2)), nil, 0o600))
	r, err := OpenCopy(dir)
	do(t, err)
	defer r.Close()
	if list, _, err := readAll(t, r, receipts.Filter{}); err == nil || !strings.Contains(err.Error(), "has no entry") {
		t.Errorf("%d receipts, %v", len(list), err)
	}
}
