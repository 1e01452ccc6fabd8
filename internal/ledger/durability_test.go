//go:build linux

package ledger

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDurability(t *testing.T) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err == nil && int64(st.Type) == unix.TMPFS_MAGIC {
		if why, err := Durability("/dev/shm"); err != nil || !strings.Contains(why, "memory") {
			t.Errorf("a tmpfs: %q, %v", why, err)
		}
	}
	if _, err := Durability(t.TempDir() + "/none"); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("nothing there: %v", err)
	}
	if why, err := Durability("/proc"); err != nil || why != "" {
		t.Errorf("a file system nobody listed: %q, %v", why, err)
	}
}

func unwrapped(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}
