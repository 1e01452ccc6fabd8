package ktest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Fetched returns the path of a file that .ci/guest fetches, for example a kernel. It skips the test if the file is
// missing.
func Fetched(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("BAILEY_GUEST_KERNELS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			Missing(t, "guest-kernel", err)
		}
		dir = filepath.Join(cache, "bailey-guest")
	}
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); err != nil {
		Missing(t, "guest-kernel", fmt.Errorf("%w; .ci/guest fetches it", err))
	}
	return file
}
