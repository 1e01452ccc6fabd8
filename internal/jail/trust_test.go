//go:build linux

package jail

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/ktest"
)

// TestAccessControlList checks files of root with an access control list: the group bits are its mask, and it may allow
// another user to write.
func TestAccessControlList(t *testing.T) {
	ktest.Require(t, "root")
	path := put(t, filepath.Join("/var/lib", "bailey-test-acl"), "a tool", 0o755)
	t.Cleanup(func() { os.Remove(path) })
	if l, err := (trust{}).untrustedPart(path); l != "" || err != nil {
		t.Fatalf("%q, %v", l, err)
	}
	acl := []byte{2, 0, 0, 0} // linux/posix_acl_xattr.h: version, then tag, permissions and id of each entry
	for _, e := range [][3]uint16{{0x01, 7, 0xffff}, {0x02, 7, 31337}, {0x04, 5, 0xffff}, {0x10, 7, 0xffff}, {0x20, 5, 0xffff}} {
		id := []byte{byte(e[2]), byte(e[2] >> 8), 0, 0}
		if e[2] == 0xffff {
			id = []byte{0xff, 0xff, 0xff, 0xff}
		}
		acl = append(append(acl, byte(e[0]), 0, byte(e[1]), 0), id...)
	}
	if err := unix.Setxattr(path, "system.posix_acl_access", acl, 0); err != nil {
		ktest.Missing(t, "acl", err)
	}
	if l, err := (trust{}).untrustedPart(path); l != path || err != nil {
		t.Errorf("%q, %v: uid 31337 may write it", l, err)
	}
}

// TestGroupsAreTheGatewaysOwn checks that no other user can open a gateway's groups, and so hold their lock.
func TestGroupsAreTheGatewaysOwn(t *testing.T) {
	g, _ := grouped(t).holder.openCgroups()
	for _, s := range g.sites {
		for _, dir := range []string{s.base, s.dir} {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", dir, info.Mode(), err)
			}
		}
	}
}

// TestWatchLosesSight checks that a cage that can no longer be seen counts as ended only if its end is reported: a
// /proc with hidepid hides a live one.
func TestWatchLosesSight(t *testing.T) {
	ktest.Require(t, "sleep")
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := newWatch(cmd.Process, new(sync.WaitGroup))
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w.root)
	if w.lost != 2*time.Second {
		t.Errorf("without news it waits %v", w.lost)
	}
	w.lost = short
	if over := w.measureUntilOver(); !strings.Contains(over, "cannot see") {
		t.Errorf("nobody said that it has ended: %q", over)
	}
	close(w.stop)
	if over := w.measureUntilOver(); over != "" {
		t.Errorf("it has ended: %q", over)
	}
}
