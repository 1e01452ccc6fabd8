package ledger

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"bailey"
	"bailey/internal/ledger/owned"
)

// directory is the ledger's directory.
type directory struct {
	*owned.Dir
	locked *os.File
}

const (
	lockName    = "lock"
	genesisName = "genesis.new" // until it is complete and on the disk
)

var segmentName = lazyRegexp(`^[0-9]{8}\.jsonl$`)

func openDir(path string) (*directory, error) {
	d, err := openOwned(path)
	return &directory{Dir: d}, err
}

func openOwned(path string) (*owned.Dir, error) {
	return owned.OpenDir(path, "the ledger's directory", "run chmod 700 and chown on it, after finding out who changed it")
}

// lockDir locks the directory against other writers until Close.
func (d *directory) lockDir() error {
	f, err := d.OpenRegular(lockName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if err := owned.LockFile(f); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20))
		f.Close()
		return lockedError(d.Path, string(holder), err)
	}
	d.locked = f
	if err := f.Truncate(0); err != nil {
		return bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err), "the ledger's lock %s", f.Name())
	}
	if _, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0); err != nil {
		return bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err), "the ledger's lock %s", f.Name())
	}
	return nil
}

func lockedError(path, holder string, err error) error {
	who := "another process"
	if _, nan := strconv.Atoi(holder); nan == nil {
		who = "process " + holder
	}
	return bailey.Conflict.Wrapf(err,
		"use the running gateway, or stop it first: bailey gateway stop",
		"%s writes the ledger in %s", who, path)
}

// Close releases the directory and its lock.
func (d *directory) Close() error {
	if d.locked != nil {
		d.locked.Close()
	}
	return d.Dir.Close()
}

// listSegments returns the names of the segments in order. It fails if a segment is missing in between.
func (d *directory) listSegments() ([]string, error) {
	names, err := d.List()
	if err != nil {
		return nil, err
	}
	return segmentNames(d.Path, names, d.Accept != nil)
}

// segmentNames returns the segment names among the sorted names of a directory. copied is set if the directory is a
// copy.
func segmentNames(path string, names []string, copied bool) ([]string, error) {
	names = slices.DeleteFunc(names, func(n string) bool { return !segmentName().MatchString(n) })
	for i, n := range names {
		if want := segmentFile(i + 1); n != want {
			hint := "restore the missing segment from a copy, or move the ledger aside to start a new one"
			if copied {
				hint = "request the missing segment: nothing after it can be verified without it"
			}
			return nil, bailey.Conflict.Errorf(hint, "the ledger in %s has %s but not %s", path, n, want)
		}
	}
	return names, nil
}

// lazyRegexp compiles a pattern when it is first used. Otherwise every start of the program would pay for it.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
