package owned

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestForeignOwner(t *testing.T) {
	own := unix.Stat_t{Mode: unix.S_IFREG | 0o600, Nlink: 1, Uid: 1000}
	if err := checkStat(&own, unix.S_IFREG, 0o600, 1000); err != nil {
		t.Error(err)
	}
	if err := checkStat(&own, unix.S_IFREG, 0o600, 1001); err == nil || !strings.Contains(err.Error(), "uid 1000") {
		t.Error(err)
	}
}
