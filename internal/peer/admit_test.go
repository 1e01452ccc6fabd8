//go:build linux || darwin

package peer

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"bailey"
)

// TestListenFor checks that the uid decides which peers may connect. The directory must belong to this user, and no
// other user may have write permission.
func TestListenFor(t *testing.T) {
	dir := home(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s.sock")
	var admitted atomic.Bool
	admitted.Store(true)
	l, err := ListenFor(path, func(uid int) bool { return admitted.Load() && uid == os.Geteuid() })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	told := make(chan int, 1)
	l.Refused = func(uid, _ int) { told <- uid }
	conns := make(chan *Conn, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(conns)
				return
			}
			conns <- c
		}
	}()
	c, err := DialUID(path, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	far := <-conns
	if c.UID != os.Geteuid() || far.UID != os.Geteuid() || far.PID != os.Getpid() {
		t.Errorf("near %d, far %d of %d", c.UID, far.UID, far.PID)
	}
	c.Close()
	if _, err := DialUID(path, os.Geteuid()+1); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" {
		t.Errorf("a listener of another uid: %v", err)
	}
	(<-conns).Close()
	admitted.Store(false)
	c, err = DialUID(path, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if uid := <-told; uid != os.Geteuid() {
		t.Errorf("told of %d", uid)
	}
	if _, _, err := c.ReadFrame(); err == nil {
		t.Error("a peer that is not admitted got a word")
	}
}

func TestListenForRefuses(t *testing.T) {
	all := func(int) bool { return true }
	for name, mode := range map[string]os.FileMode{"group": 0o775, "others": 0o757} {
		dir := home(t)
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ListenFor(filepath.Join(dir, "s"), all); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" {
			t.Errorf("%s may write: %v", name, err)
		}
	}
	dir := home(t)
	link := filepath.Join(home(t), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenFor(filepath.Join(link, "s"), all); !errors.Is(err, bailey.Denied) {
		t.Errorf("a directory behind a link: %v", err)
	}
	if _, err := ListenFor(filepath.Join(dir, "no", "s"), all); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Errorf("no directory: %v", err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 61000, 61000); err != nil {
			t.Fatal(err)
		}
		if _, err := ListenFor(filepath.Join(dir, "s"), all); !errors.Is(err, bailey.Denied) {
			t.Errorf("somebody else's directory: %v", err)
		}
	}
}

// TestExecutable checks that Executable returns this program's own path.
func TestExecutable(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := Executable(os.Getpid()); got != self && got != "not visible" {
		t.Errorf("%s, want %s", got, self)
	}
	if got := Executable(1 << 30); got != "not visible" {
		t.Errorf("of a process that is not: %s", got)
	}
}
