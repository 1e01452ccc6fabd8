package index

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/receipts"

	"golang.org/x/sys/unix"
)

// TestFullIndex starts its own binary as a child that may mount.
const childEnv = "INDEX_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := childFullIndex(os.Args[1]); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// TestFullIndex checks an index on a disk that is really full: calls continue and queries are answered from the ledger,
// and from the index again when there is space.
func TestFullIndex(t *testing.T) {
	ktest.Long(t)
	home := t.TempDir()
	do(t, os.MkdirAll(filepath.Join(home, "index"), 0o700))
	ktest.Require(t, "userns")
	cmd := exec.Command("/proc/self/exe", home)
	cmd.Env = append(os.Environ(), childEnv+"=full-index")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}}
	raw, err := cmd.CombinedOutput()
	if out := string(raw); err != nil || strings.Count(out, "reading the ledger instead") != 3 || !strings.Contains(out, "no space") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func childFullIndex(home string) error {
	small := filepath.Join(home, "index")
	if err := unix.Mount("index", small, "tmpfs", 0, "size=48k,mode=0700"); err != nil {
		return fmt.Errorf("mounting a small tmpfs: %w", err)
	}
	l, err := ledger.New(ledger.Config{Dir: filepath.Join(home, "ledger")})
	if err != nil {
		return err
	}
	defer l.Close()
	x := New(Config{Path: filepath.Join(small, "index.db"), Ledger: l, Log: logger(os.Stdout)})
	defer x.Close()
	for i := range 4 {
		if i == 3 {
			if err := unix.Mount("", small, "", unix.MS_REMOUNT, "size=4m"); err != nil {
				return fmt.Errorf("making room: %w", err)
			}
		}
		for range 100 {
			seal, err := l.Open(context.Background(), intent())
			if err == nil {
				err = seal(bailey.Outcome{Status: bailey.OK})
			}
			if err != nil {
				return err
			}
		}
		page, err := x.Find(context.Background(), receipts.Filter{Limit: receipts.MaxLimit})
		if err != nil || len(page.Records) != (i+1)*100 {
			return fmt.Errorf("%d receipts, %w", len(page.Records), err)
		}
	}
	return nil
}
