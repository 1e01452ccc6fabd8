//go:build linux || darwin

package gateway

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// yard returns a directory tree for tests of paths: project/, project/sub/, outside/, secret/ (masked).
func yard(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs linux: openat2")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"project/sub", "outside", "secret"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"project/in": "sub", "project/abs": dir + "/project/sub", "project/out": "../outside", "project/loop": "loop",
		"project/key": dir + "/secret", "toproject": "project",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(dir, "project/file"), []byte("x"), 0o644)
	if err := syscall.Mkfifo(filepath.Join(dir, "project/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
