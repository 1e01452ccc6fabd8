package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"bailey"
	"bailey/internal/ledger"
	"bailey/internal/wire"
)

// examineHome tests the home, or the place where it would be created.
func examineHome(home wire.Home) finding {
	const name = "home"
	dir := string(home)
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent := standing(dir)
		if err := roomFor(parent); err != nil {
			return finding{name, missing, fmt.Sprintf("%s does not exist, and cannot be made in %s: %v", dir, parent, err), "set BAILEY_HOME to a directory you may write"}
		}
		return finding{name, good, fmt.Sprintf("%s does not exist yet; the first call makes it in %s", dir, parent), ""}
	}
	if err != nil {
		return finding{name, missing, fmt.Sprintf("looked at %s: %v", dir, err), "set BAILEY_HOME to a directory you may write"}
	}
	if !info.IsDir() {
		return finding{name, missing, dir + " is not a directory", "move it away, or set BAILEY_HOME"}
	}
	if err := home.Owned(); err != nil {
		return wrong(name, missing, "asked whose "+dir+" is", err)
	}
	if err := writable(dir); err != nil {
		return finding{name, missing, fmt.Sprintf("%s cannot be written: %v", dir, err), "mount it read-write, chmod 700 it, or set BAILEY_HOME to a directory you may write"}
	}
	return finding{name, good, dir + " is yours alone, and can be written", ""}
}

// examineSocket creates a socket next to the gateway's socket and removes it. Not every file system supports sockets.
func examineSocket(home wire.Home) []finding {
	const name, tried = "socket", "made a socket in the home and connected to it"
	dir, err := os.Open(string(home))
	if err != nil {
		return nil // does not exist yet
	}
	defer dir.Close()
	l, err := net.Listen("unix", socketIn(dir, fmt.Sprintf("doctor-%d.sock", os.Getpid())))
	if err == nil {
		defer l.Close() // removes the socket
		var c net.Conn
		if c, err = net.Dial("unix", l.Addr().String()); err == nil {
			c.Close()
		}
	}
	if err != nil {
		return []finding{{name, missing, tried + ": " + err.Error(), "set BAILEY_HOME to a directory on a local disk: ext4, xfs, btrfs or tmpfs"}}
	}
	return []finding{{name, good, tried, ""}}
}

// standing returns path, or if it does not exist, its nearest parent that exists.
func standing(path string) string {
	for {
		above := filepath.Dir(path)
		if _, err := os.Stat(path); err == nil || above == path {
			return path
		}
		path = above
	}
}

// roomFor creates a directory in parent and removes it. For root, access(2) reports more access than there is.
func roomFor(parent string) error {
	dir, err := os.MkdirTemp(parent, ".bailey-doctor-")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// examineLedger verifies the ledger if it exists, and tests its disk.
func examineLedger(home wire.Home) []finding {
	found := []finding{}
	dir := home.Ledger()
	if _, err := os.Lstat(dir); err == nil {
		found = append(found, examineChain(dir))
	}
	dir = standing(dir)
	frail, err := ledger.Durability(dir)
	switch {
	case err != nil:
		found = append(found, wrong("ledger durable", missing, "asked for the file system", err))
	case frail != "":
		found = append(found, finding{"ledger durable", warning, frail, "keep BAILEY_HOME on a local disk: ext4, xfs or btrfs"})
	default:
		found = append(found, finding{"ledger durable", good, "the file system of " + dir + " keeps what was synced", ""})
	}
	if dir != home.Ledger() && dir != string(home) {
		return found // nothing may be written outside the home
	}
	return append(found, examineSpace(dir))
}

func examineChain(dir string) finding {
	const name = "ledger"
	report, err := ledger.Verify(dir)
	switch {
	case err != nil:
		return wrong(name, missing, "verified "+dir, err)
	case report.Segments == 0:
		return finding{name, good, dir + " is empty; the first call begins it", ""}
	case !report.OK:
		return finding{name, missing, fmt.Sprintf("verified %s: %v", dir, report.FirstBad),
			"a torn tail is repaired at the next start; otherwise keep it, compare it with a copy, and move " + dir + " aside to begin a new one"}
	}
	return finding{name, good, fmt.Sprintf("verified %s: %d entries, head %.16s…", dir, report.Entries, report.Head), ""}
}

// dayBytes should be free for one day of the ledger.
const dayBytes = 64 << 20

// examineSpace treats a temporary file as the ledger treats its own: it reserves space, writes and syncs.
func examineSpace(dir string) finding {
	const name = "ledger space"
	tried := "reserved, wrote and synced a file in " + dir
	free, err := ledger.Rehearse(dir)
	if err != nil {
		return wrong(name, missing, tried, &bailey.Error{Kind: bailey.Unavailable, Message: "the ledger could not be written", Hint: diskCure(err), Err: err})
	}
	if free < dayBytes {
		return finding{name, warning, fmt.Sprintf("%s; %d KiB are free", tried, free>>10), "free some space where BAILEY_HOME is"}
	}
	return finding{name, good, tried, ""}
}

func diskCure(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space, or raise the quota, where BAILEY_HOME is"
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
		return "the file system cannot reserve space: keep BAILEY_HOME on ext4, xfs, btrfs or tmpfs"
	case errors.Is(err, syscall.EFBIG):
		return "raise the limit on file sizes (ulimit -f)"
	case errors.Is(err, syscall.EROFS):
		return "mount it read-write, or set BAILEY_HOME to a directory that you may write"
	}
	return "look at the disk and the kernel's log, or set BAILEY_HOME to a directory that you may write"
}
