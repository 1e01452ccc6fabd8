package direct

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// examineHome tests the home, or the place where it would be created.
func examineHome(home localapi.Home) apitype.Finding {
	const name = "home"
	dir := string(home)
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent := standing(dir)
		if err := roomFor(parent); err != nil {
			return apitype.Finding{Name: name, State: apitype.Missing, Tried: fmt.Sprintf("%s does not exist, and cannot be made in %s: %v", dir, parent, err), Cure: "set BAILEY_HOME to a directory you may write"}
		}
		return apitype.Finding{Name: name, State: apitype.Good, Tried: fmt.Sprintf("%s does not exist yet; the first call makes it in %s", dir, parent), Cure: ""}
	}
	if err != nil {
		return apitype.Finding{Name: name, State: apitype.Missing, Tried: fmt.Sprintf("looked at %s: %v", dir, err), Cure: "set BAILEY_HOME to a directory you may write"}
	}
	if !info.IsDir() {
		return apitype.Finding{Name: name, State: apitype.Missing, Tried: dir + " is not a directory", Cure: "move it away, or set BAILEY_HOME"}
	}
	if err := home.Owned(); err != nil {
		return wrong(name, apitype.Missing, "asked whose "+dir+" is", err)
	}
	if err := writable(dir); err != nil {
		return apitype.Finding{Name: name, State: apitype.Missing, Tried: fmt.Sprintf("%s cannot be written: %v", dir, err), Cure: "mount it read-write, chmod 700 it, or set BAILEY_HOME to a directory you may write"}
	}
	return apitype.Finding{Name: name, State: apitype.Good, Tried: dir + " is yours alone, and can be written", Cure: ""}
}

// examineSocket creates a socket next to the gateway's socket and removes it. Not every file system supports sockets.
func examineSocket(home localapi.Home) []apitype.Finding {
	const name, tried = "socket", "made a socket in the home and connected to it"
	dir, err := os.Open(string(home))
	if err != nil {
		return nil // does not exist yet
	}
	defer dir.Close()
	l, err := net.Listen("unix", cli.SocketIn(dir, fmt.Sprintf("doctor-%d.sock", os.Getpid())))
	if err == nil {
		defer l.Close() // removes the socket
		var c net.Conn
		if c, err = net.Dial("unix", l.Addr().String()); err == nil {
			c.Close()
		}
	}
	if err != nil {
		return []apitype.Finding{{Name: name, State: apitype.Missing, Tried: tried + ": " + err.Error(), Cure: "set BAILEY_HOME to a directory on a local disk: ext4, xfs, btrfs or tmpfs"}}
	}
	return []apitype.Finding{{Name: name, State: apitype.Good, Tried: tried, Cure: ""}}
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
func examineLedger(home localapi.Home) []apitype.Finding {
	found := []apitype.Finding{}
	dir := home.Ledger()
	if _, err := os.Lstat(dir); err == nil {
		found = append(found, examineChain(dir))
	}
	dir = standing(dir)
	frail, err := ledger.Durability(dir)
	switch {
	case err != nil:
		found = append(found, wrong("ledger durable", apitype.Missing, "asked for the file system", err))
	case frail != "":
		found = append(found, apitype.Finding{Name: "ledger durable", State: apitype.Warning, Tried: frail, Cure: "keep BAILEY_HOME on a local disk: ext4, xfs or btrfs"})
	default:
		found = append(found, apitype.Finding{Name: "ledger durable", State: apitype.Good, Tried: "the file system of " + dir + " keeps what was synced", Cure: ""})
	}
	if dir != home.Ledger() && dir != string(home) {
		return found // nothing may be written outside the home
	}
	return append(found, examineSpace(dir))
}

func examineChain(dir string) apitype.Finding {
	const name = "ledger"
	report, err := ledger.Verify(dir)
	switch {
	case err != nil:
		return wrong(name, apitype.Missing, "verified "+dir, err)
	case report.Segments == 0:
		return apitype.Finding{Name: name, State: apitype.Good, Tried: dir + " is empty; the first call begins it", Cure: ""}
	case !report.OK:
		return apitype.Finding{Name: name, State: apitype.Missing, Tried: fmt.Sprintf("verified %s: %v", dir, report.FirstBad),
			Cure: "a torn tail is repaired at the next start; otherwise keep it, compare it with a copy, and move " + dir + " aside to begin a new one"}
	}
	return apitype.Finding{Name: name, State: apitype.Good, Tried: fmt.Sprintf("verified %s: %d entries, head %.16s…", dir, report.Entries, report.Head), Cure: ""}
}

// dayBytes should be free for one day of the ledger.
const dayBytes = 64 << 20

// examineSpace treats a temporary file as the ledger treats its own: it reserves space, writes and syncs.
func examineSpace(dir string) apitype.Finding {
	const name = "ledger space"
	tried := "reserved, wrote and synced a file in " + dir
	free, err := ledger.Rehearse(dir)
	if err != nil {
		return wrong(name, apitype.Missing, tried, &bailey.Error{Kind: bailey.Unavailable, Message: "the ledger could not be written", Hint: diskCure(err), Err: err})
	}
	if free < dayBytes {
		return apitype.Finding{Name: name, State: apitype.Warning, Tried: fmt.Sprintf("%s; %d KiB are free", tried, free>>10), Cure: "free some space where BAILEY_HOME is"}
	}
	return apitype.Finding{Name: name, State: apitype.Good, Tried: tried, Cure: ""}
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
