//go:build linux

package ledger

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/ktest"

	"golang.org/x/sys/unix"
)

// TestFileLimit checks that if the kernel's file size limit is reached, intents are refused and the outcomes of open
// calls are durable.
func TestFileLimit(t *testing.T) {
	dir := place(t)
	out, err := command("file-limit", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ulimit") {
		t.Fatalf("%v\n%s", err, out)
	}
	verified(t, dir)
}

func childFileLimit(dir string) error {
	signal.Ignore(unix.SIGXFSZ)
	limit := unix.Rlimit{Cur: 2 << 20, Max: 2 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	return untilRefused(dir, unix.EFBIG)
}

// TestFullDisk checks a disk that is really full, in the child's own mount namespace.
func TestFullDisk(t *testing.T) {
	dir := place(t)
	do(t, os.MkdirAll(dir, 0o700))
	if out := elsewhere(t, "full-disk", dir); !strings.Contains(out, "free some space") {
		t.Fatal(out)
	}
}

// elsewhere runs a child that may mount, and returns its output.
func elsewhere(t *testing.T, role, dir string) string {
	t.Helper()
	ktest.Require(t, "userns")
	cmd := command(role, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func childFullDisk(dir string) error {
	if err := unix.Mount("ledger", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		return fmt.Errorf("mounting a small tmpfs: %w", err)
	}
	return untilRefused(dir, unix.ENOSPC)
}

// untilRefused opens receipts until there is no space, then seals each with the largest outcome, and reopens the
// ledger.
func untilRefused(dir string, want error) error {
	l, err := New(Config{Dir: dir, Reserve: 1})
	if err != nil {
		return err
	}
	var seals []func(bailey.Outcome) error
	for {
		seal, err := l.Open(context.Background(), intent())
		if err != nil {
			fmt.Println(err, bailey.HintOf(err))
			break
		}
		if seals = append(seals, seal); len(seals) > 1000 {
			return fmt.Errorf("never refused, want %v", want)
		}
	}
	for i, seal := range seals[1:] {
		if err := seal(bailey.Outcome{Status: bailey.OK, Reason: strings.Repeat("x", room-400)}); err != nil {
			return fmt.Errorf("outcome %d of %d: %w", i, len(seals), err)
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	if l, err = New(Config{Dir: dir}); err != nil {
		return fmt.Errorf("opening it again: %w", err)
	}
	if r, err := l.Verify(); err != nil || !r.OK || r.Open != 0 || r.Intents != len(seals) {
		return fmt.Errorf("%+v %v", r, err)
	}
	return l.Close()
}

// TestDiskReserve checks that if the free space is below the reserve, calls are refused, and outcomes and notes are
// not.
func TestDiskReserve(t *testing.T) {
	dir, disk := place(t), &faulty{}
	l := open(t, Config{Dir: dir, Reserve: 1000, Wrap: func(d Disk) Disk { disk.Disk = d; return disk }})
	seal, err := l.Open(context.Background(), intent())
	do(t, err)
	for _, c := range []struct {
		free func() (uint64, error)
		want error
	}{
		{func() (uint64, error) { return 999, nil }, unix.ENOSPC},
		{func() (uint64, error) { return 0, unix.EIO }, unix.EIO},
	} {
		disk.set(func() { disk.free = c.free })
		_, err = l.Open(context.Background(), intent())
		unavailableWith(t, err, c.want)
	}
	do(t, l.Note(context.Background(), "note", nil))
	do(t, seal(bailey.Outcome{Status: bailey.OK}))
	disk.set(func() { disk.free = func() (uint64, error) { return 1000, nil } })
	call(t, l)
	do(t, l.Close())
	if r := verified(t, dir); r.Intents != 2 || r.Open != 0 || r.Entries != 6 {
		t.Errorf("%+v", r)
	}
}
