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
	"bailey/internal/gateway"
	"bailey/internal/ledger"
)

// examineHome looks at the home, or at where it would be made.
func examineHome(home gateway.Home) finding {
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
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return finding{name, missing, dir + " is not a directory", "move it away, or set BAILEY_HOME"}
	case !ok || int(st.Uid) != os.Geteuid():
		return finding{name, missing, dir + " belongs to somebody else", "set BAILEY_HOME to a directory of your own"}
	case info.Mode().Perm()&0o077 != 0:
		return finding{name, missing, fmt.Sprintf("%s has mode %04o: others could reach in", dir, info.Mode().Perm()), "chmod 700 " + dir}
	}
	if err := writable(dir); err != nil {
		return finding{name, missing, fmt.Sprintf("%s cannot be written: %v", dir, err), "mount it read-write, chmod 700 it, or set BAILEY_HOME to a directory you may write"}
	}
	return finding{name, good, fmt.Sprintf("%s is yours, mode %04o, and can be written", dir, info.Mode().Perm()), ""}
}

// examineSocket makes a socket beside the gateway's and takes it away: not every file system holds one.
func examineSocket(home gateway.Home) []finding {
	const name, tried = "socket", "made a socket in the home and connected to it"
	dir, err := os.Open(string(home))
	if err != nil {
		return nil // not there yet
	}
	defer dir.Close()
	// Through the descriptor, since an address holds 108 bytes (unix(7)) and a home's path may be longer.
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/doctor-%d.sock", dir.Fd(), os.Getpid()))
	if err == nil {
		defer l.Close() // removes it
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

// standing is the nearest directory above path, or path itself, that exists.
func standing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == "/" || path == "." {
			return path
		}
		path = filepath.Dir(path)
	}
}

// roomFor makes a directory in parent and takes it away: of root, access(2) says more than is true.
func roomFor(parent string) error {
	dir, err := os.MkdirTemp(parent, ".bailey-doctor-")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// writable asks the kernel, which knows of read-only mounts as well (access(2)).
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}

// examineLedger verifies the ledger there is, and tests the disk beneath it, or beneath where it will be.
func examineLedger(home gateway.Home) []finding {
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
		return found // nothing is written outside the home
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

// What the ledger needs for one open call (package ledger, Space), and what should be there for a day.
const (
	callBytes = 64 << 10
	dayBytes  = 64 << 20
)

// examineSpace does to a temporary file what the ledger does to its own: reserve, write, sync.
func examineSpace(dir string) finding {
	const name = "ledger space"
	tried := "reserved, wrote and synced a file in " + dir
	err := rehearse(dir)
	var st syscall.Statfs_t
	if err == nil {
		err = syscall.Statfs(dir, &st)
	}
	if err != nil {
		return wrong(name, missing, tried, &bailey.Error{Kind: bailey.Unavailable, Message: "the ledger could not be written", Hint: diskCure(err), Err: err})
	}
	if free := st.Bavail * uint64(st.Bsize); free < dayBytes {
		return finding{name, warning, fmt.Sprintf("%s; %d KiB are free", tried, free>>10), "free some space where BAILEY_HOME is"}
	}
	return finding{name, good, tried, ""}
}

func rehearse(dir string) error {
	f, err := os.CreateTemp(dir, "doctor-")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil { // nothing stays, whatever ends this process
		return err
	}
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE, fallocate(2)
	for {
		if err = syscall.Fallocate(int(f.Fd()), keepSize, 0, callBytes); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return os.NewSyscallError("fallocate", err)
	}
	if _, err := f.Write(make([]byte, callBytes)); err != nil {
		return err
	}
	return f.Sync()
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
