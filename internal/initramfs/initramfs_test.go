package initramfs

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// TestWrite checks that the archive has each file once, with its content, and that the order of modules is that of
// their names.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	c := Content{Agent: filepath.Join(dir, "bailey-guest"), Modules: []string{filepath.Join(dir, "z.ko"), filepath.Join(dir, "a.ko.xz")},
		Files: []File{{Name: "etc", Mode: 0o755}, {Name: "etc/motd", From: filepath.Join(dir, "z.ko"), Mode: 0o600}, {Name: "bin", Link: "usr/bin"}}}
	for i, name := range append([]string{c.Agent}, c.Modules...) {
		ktest.Write(t, name, strings.Repeat("x", i+4))
	}
	var b, again bytes.Buffer
	if err := errors.Join(Write(&b, c), Write(&again, c)); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) || b.Len()%4 != 0 {
		t.Fatal(err, b.Len())
	}
	for _, want := range []string{"init\x00", "modules/000-z.ko\x00", "modules/001-a.ko.xz\x00", "dev/console\x00", "etc\x00", "etc/motd\x00", "bin\x00\x00\x00usr/bin\x00",
		"TRAILER!!!\x00"} {
		if n := strings.Count(b.String(), want); n != 1 {
			t.Errorf("%q is %d times in the archive", want, n)
		}
	}
	if err := Write(&b, Content{Agent: dir}); err == nil {
		t.Error("a directory was packed")
	}
	if err := Write(&b, Content{Agent: filepath.Join(dir, "none")}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
