package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"bailey"
)

// directory is the ledger's directory, held open. Every name is looked up in it and never through a path, which an
// attacker could exchange. The platform-specific parts are in dir_unix.go and dir_windows.go.
type directory struct {
	holder
	path    string
	locked  *os.File
	remarks *copyNotes // for a copy; nil if the directory must be fit to be written
}

const (
	lockName    = "lock"
	genesisName = "genesis.new" // until it is complete and on the disk
)

var segmentName = lazyRegexp(`^[0-9]{8}\.jsonl$`)

// makeDir creates the directory and its missing parents, each with mode 0700 and on the disk.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, os.ErrNotExist) && filepath.Dir(path) != path {
		if err = makeDir(filepath.Dir(path)); err == nil {
			err = os.Mkdir(path, 0o700)
		}
	}
	if errors.Is(err, os.ErrExist) {
		return nil // opening it shows whether it is fit to use
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func openDir(path string) (*directory, error) {
	return openPlace(path, "the ledger's directory", "chmod 700 and chown it, after finding out who changed it")
}

// openPlace opens a directory. what names it in errors. hint is the remedy if other users can access it.
func openPlace(path, what, hint string) (*directory, error) {
	if path == "" {
		return nil, bailey.Invalid.New(what+" has no name", "")
	}
	path = filepath.Clean(path) // O_NOFOLLOW would follow the link in "link/"
	d, err := openUncheckedDir(path)
	if err != nil {
		return nil, unavailableError("it has to be a directory of its own: no link, mode 0700, owned by who runs this",
			err, "%s %s does not open", what, path)
	}
	if err := d.checkFit(); err != nil {
		d.holder.Close()
		return nil, unavailableError(hint, err, "%s %s is refused", what, path)
	}
	return d, nil
}

// openRegular opens a regular file of the directory and checks it through its descriptor.
func (d *directory) openRegular(name string, flags int) (*os.File, error) {
	f, err := d.openFit(name, flags)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if d.remarks != nil {
		return nil, bailey.Invalid.Wrap(err, filepath.Join(d.path, name)+" cannot be read",
			"a segment is a regular file that you can read, no link, pipe or device: copy its bytes")
	}
	return nil, unavailableError("a ledger file is regular, mode 0600, yours and has one name: find out who changed it and put it right",
		err, "%s is refused", filepath.Join(d.path, name))
}

// lockDir locks the directory against other writers until Close.
func (d *directory) lockDir() error {
	f, err := d.openRegular(lockName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if err := lockWhole(f); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20))
		f.Close()
		return lockedError(d.path, string(holder), err)
	}
	d.locked = f
	if err := f.Truncate(0); err != nil {
		return unavailableError(diskErrorHint(err), err, "the ledger's lock %s", f.Name())
	}
	if _, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0); err != nil {
		return unavailableError(diskErrorHint(err), err, "the ledger's lock %s", f.Name())
	}
	return nil
}

func lockedError(path, holder string, err error) error {
	who := "another process"
	if _, nan := strconv.Atoi(holder); nan == nil {
		who = "process " + holder
	}
	return bailey.Conflict.Wrapf(err,
		"one gateway per home: use the one that runs, or end it first: bailey gateway stop",
		"%s writes the ledger in %s", who, path)
}

// Close releases the directory and its lock.
func (d *directory) Close() error {
	if d.locked != nil {
		d.locked.Close()
	}
	return d.holder.Close()
}

// listNames returns the directory's names, sorted.
func (d *directory) listNames() ([]string, error) {
	f, err := d.reopenDir() // its own offset, so that readers do not disturb each other
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.path, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.path, err)
	}
	slices.Sort(names)
	return names, nil
}

// listSegments returns the names of the segments in order. It fails if a segment is missing in between.
func (d *directory) listSegments() ([]string, error) {
	names, err := d.listNames()
	if err != nil {
		return nil, err
	}
	return segmentNames(d.path, names, d.remarks != nil)
}

// segmentNames returns the segment names among the sorted names of a directory. copied is set if the directory is a
// copy.
func segmentNames(path string, names []string, copied bool) ([]string, error) {
	names = slices.DeleteFunc(names, func(n string) bool { return !segmentName().MatchString(n) })
	for i, n := range names {
		if want := segmentFile(i + 1); n != want {
			hint := "restore the missing segment from a copy, or move the ledger aside to begin a new one"
			if copied {
				hint = "ask for the missing segment: nothing behind it can be verified without it"
			}
			return nil, bailey.Conflict.Errorf(hint, "the ledger in %s has %s and no %s", path, n, want)
		}
	}
	return names, nil
}

// createFile creates a file with content. It writes to temp first, so that name appears complete and durable or not at all.
func (d *directory) createFile(temp, name string, content io.Reader) error {
	if err := d.removeFile(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", temp, err)
	}
	f, err := d.openRegular(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.renameDurably(temp, name)
	}
	if err != nil {
		d.removeFile(temp) // it may have filled the disk
		return unavailableError(diskErrorHint(err), err, "%s could not be written", filepath.Join(d.path, name))
	}
	return nil
}

// lazyRegexp compiles a pattern when it is first used. Otherwise every start of the program would pay for it.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
