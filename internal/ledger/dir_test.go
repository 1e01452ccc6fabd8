//go:build linux

package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"

	"golang.org/x/sys/unix"
)

// refused opens dir and checks that this fails with these words and a hint, and that nothing has changed.
func refused(t *testing.T, dir string, words ...string) {
	t.Helper()
	before := content(filepath.Join(dir, "00000001.jsonl"))
	l, err := New(Config{Dir: dir})
	if err == nil {
		l.Close()
		t.Fatal("it opens")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v: does not say %q", err, w)
		}
	}
	if bailey.HintOf(err) == "" || bailey.KindOf(err) == bailey.Internal {
		t.Errorf("%v: kind %s, hint %q", err, bailey.KindOf(err), bailey.HintOf(err))
	}
	if content(first(dir)) != before {
		t.Error("the refused file was changed")
	}
}

// content returns the content of a regular file. Reading a FIFO would block forever.
func content(name string) string {
	if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	data, _ := os.ReadFile(name)
	return string(data)
}

// Case 22: a file is a symlink, a FIFO, hard-linked or mode 0644 (other owner: TestForeignOwner); opening refuses and names it.
func TestHostileFiles(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		words string
	}{
		"symlink": {func(t *testing.T, dir string) {
			do(t, os.Rename(first(dir), dir+"/moved"))
			do(t, os.Symlink("moved", first(dir)))
		}, "too many levels of symbolic links"},
		"fifo": {func(t *testing.T, dir string) {
			do(t, os.Remove(first(dir)))
			do(t, unix.Mkfifo(first(dir), 0o600))
		}, "another type"},
		"directory": {func(t *testing.T, dir string) {
			do(t, os.Remove(first(dir)))
			do(t, os.Mkdir(first(dir), 0o700))
		}, "is a directory"},
		"hard link":    {func(t *testing.T, dir string) { do(t, os.Link(first(dir), dir+"/other")) }, "2 names"},
		"mode 0644":    {func(t *testing.T, dir string) { do(t, os.Chmod(first(dir), 0o644)) }, "its mode is 0644"},
		"mode 0700":    {func(t *testing.T, dir string) { do(t, os.Chmod(first(dir), 0o700)) }, "its mode is 0700"},
		"lock 0666":    {func(t *testing.T, dir string) { do(t, os.Chmod(dir+"/lock", 0o666)) }, "lock is refused"},
		"lock link":    {func(t *testing.T, dir string) { do(t, os.Remove(dir+"/lock")); do(t, os.Symlink("x", dir+"/lock")) }, "lock is refused"},
		"dir 0755":     {func(t *testing.T, dir string) { do(t, os.Chmod(dir, 0o755)) }, "its mode is 0755"},
		"dir symlink":  {func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+"2")); do(t, os.Symlink(dir+"2", dir)) }, "cannot open"},
		"dir symlink/": {func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+"2")); do(t, os.Symlink(dir+"2/", dir)) }, "cannot open"},
		"dir is file":  {func(t *testing.T, dir string) { do(t, os.RemoveAll(dir)); do(t, os.WriteFile(dir, nil, 0o600)) }, "not a directory"},
		"emptied":      {func(t *testing.T, dir string) { do(t, os.Truncate(first(dir), 0)) }, "entry 1"},
		"torn genesis": {func(t *testing.T, dir string) { do(t, os.Truncate(first(dir), 20)) }, "entry 1"},
		"missing":      {func(t *testing.T, dir string) { do(t, os.Rename(first(dir), dir+"/00000002.jsonl")) }, "not 00000001.jsonl"},
		"gap": {func(t *testing.T, dir string) {
			do(t, os.WriteFile(dir+"/00000003.jsonl", nil, 0o600))
		}, "not 00000002.jsonl"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, Config{Dir: dir})
			call(t, l)
			do(t, l.Close())
			c.spoil(t, dir)
			refused(t, dir, c.words)
			refused(t, dir+"/", c.words)
		})
	}
}

func TestForeignOwner(t *testing.T) {
	if os.Geteuid() == 0 { // only root can change the owner; otherwise the test of package owned must do
		dir := place(t)
		do(t, open(t, Config{Dir: dir}).Close())
		do(t, os.Chown(first(dir), 12345, 12345))
		refused(t, dir, "uid 12345")
	}
}

func TestSecondWriter(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	_, err := New(Config{Dir: dir})
	if !errors.Is(err, bailey.Conflict) || !strings.Contains(err.Error(), "writes the ledger") {
		t.Errorf("second writer: %v", err)
	}
	do(t, os.Remove(dir+"/lock"))
	if _, err = New(Config{Dir: dir}); !errors.Is(err, bailey.Conflict) {
		t.Errorf("second writer after the lock was deleted: %v", err)
	}
	call(t, l)
	verified(t, dir)
}

// TestMeddling checks that if the open segment is changed from outside, the log notices it before it writes, and stops.
func TestMeddling(t *testing.T) {
	for name, meddle := range map[string]func(dir string) error{
		"deleted":   func(dir string) error { return os.Remove(first(dir)) },
		"replaced":  func(dir string) error { return os.WriteFile(dir+"/x", nil, 0o600) },
		"truncated": func(dir string) error { return os.Truncate(first(dir), 100) },
		"linked":    func(dir string) error { return os.Link(first(dir), dir+"/x") },
		"opened up": func(dir string) error { return os.Chmod(first(dir), 0o666) },
		"appended": func(dir string) error {
			f, err := os.OpenFile(first(dir), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("x")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			l := open(t, Config{Dir: dir})
			call(t, l)
			do(t, meddle(dir))
			if name == "replaced" {
				do(t, os.Rename(dir+"/x", first(dir)))
			}
			before, _ := os.ReadFile(first(dir))
			for range 2 {
				if _, err := l.Open(context.Background(), intent()); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
					t.Errorf("%v", err)
				}
			}
			do(t, l.Close())
			if after, _ := os.ReadFile(first(dir)); string(after) != string(before) {
				t.Error("written all the same")
			}
		})
	}
}

func TestMakesItsPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "ledger")
	open(t, Config{Dir: dir + "/"})
	verified(t, dir)
	if _, err := New(Config{}); !errors.Is(err, bailey.Invalid) && !errors.Is(err, bailey.Unavailable) {
		t.Errorf("no directory: %v", err)
	}
}

func TestVerifyWithoutLedger(t *testing.T) {
	dir := t.TempDir()
	do(t, os.Chmod(dir, 0o700))
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		if r, err := Verify(d); err != nil || r.OK || r.FirstBad == nil {
			t.Errorf("%s: %+v %v", d, r, err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("verifying made %v, %v", names, err)
	}
}

func TestHostname(t *testing.T) {
	for in, want := range map[string]string{"castle": "castle", "a b\n\"é": "a_b____", strings.Repeat("x", 300): strings.Repeat("x", 253)} {
		if got := genesisHost(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
