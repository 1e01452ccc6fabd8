package ktest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// HasFetched returns why a file that .ci/guest fetches is missing, or nil.
func HasFetched(name string) error {
	file, err := fetchedPath(name)
	if err == nil {
		_, err = os.Stat(file)
	}
	return err
}

func fetchedPath(name string) (string, error) {
	dir := os.Getenv("BAILEY_GUEST_KERNELS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "bailey-guest")
	}
	return filepath.Join(dir, name), nil
}

// Fetched returns the path of a file that .ci/guest fetches, for example a kernel. It skips the test if the file is missing.
func Fetched(t testing.TB, name string) string {
	t.Helper()
	file, err := fetchedPath(name)
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		Missing(t, "guest-kernel", fmt.Errorf("%w; .ci/guest fetches it", err))
	}
	return file
}
