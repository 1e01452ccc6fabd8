package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"bailey"

	"golang.org/x/sys/unix"
)

// directory is the ledger's directory, held by descriptor: every name is looked up in it and never
// through a path that somebody could exchange.
type directory struct {
	*os.File
	path   string
	locked *os.File
}

const (
	lockName    = "lock"
	genesisName = "genesis.new" // until it is whole and on the disk
)

var segmentName = lazy(`^[0-9]{8}\.jsonl$`)

// makeDir makes the directory and what is missing above it, each 0700 and on the disk.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, os.ErrNotExist) && filepath.Dir(path) != path {
		if err = makeDir(filepath.Dir(path)); err == nil {
			err = os.Mkdir(path, 0o700)
		}
	}
	if errors.Is(err, os.ErrExist) {
		return nil // whether it is fit to use shows when it is opened
	}
	if err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.Sync()
}

func openDir(path string) (*directory, error) {
	if path == "" {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "the ledger has no directory"}
	}
	path = filepath.Clean(path) // O_NOFOLLOW looks through "link/"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, unavailable("give the ledger a directory of its own: no link, mode 0700, owned by who runs the gateway",
			err, "the ledger's directory %s does not open", path)
	}
	d := &directory{File: os.NewFile(uintptr(fd), path), path: path}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unfit(&st, unix.S_IFDIR, 0o700, os.Geteuid())
	}
	if err != nil {
		d.Close()
		return nil, unavailable("chmod 700 and chown it, after finding out who changed it", err, "the ledger's directory %s is refused", path)
	}
	return d, nil
}

// unfit says why a file of this status must not hold a ledger: somebody else could read or change it,
// or it is also somewhere else.
func unfit(st *unix.Stat_t, kind, mode uint32, uid int) error {
	switch {
	case st.Mode&unix.S_IFMT != kind:
		return fmt.Errorf("it is of another type (%#o)", st.Mode&unix.S_IFMT)
	case int(st.Uid) != uid:
		return fmt.Errorf("it belongs to uid %d and not to %d", st.Uid, uid)
	case st.Mode&0o7777&^mode != 0:
		return fmt.Errorf("its mode is %#o, the most is %#o", st.Mode&0o7777, mode)
	case kind == unix.S_IFREG && st.Nlink != 1:
		return fmt.Errorf("it has %d names (hard links)", st.Nlink)
	}
	return nil
}

// same says why name is no longer f, of the given size: somebody moved, replaced, linked or changed it.
func (d *directory) same(f *os.File, name string, size int64) error {
	var named, opened unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &named, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("%s is gone: %w", f.Name(), err)
	}
	if err := unix.Fstat(int(f.Fd()), &opened); err != nil {
		return err
	}
	if named.Dev != opened.Dev || named.Ino != opened.Ino {
		return fmt.Errorf("%s is another file now", f.Name())
	}
	if opened.Size != size {
		return fmt.Errorf("%s has %d bytes, of which %d are ours", f.Name(), opened.Size, size)
	}
	return unfit(&opened, unix.S_IFREG, 0o600, os.Geteuid())
}

// open opens a regular file of the directory, checked by its descriptor. O_NONBLOCK keeps a FIFO in its
// place from holding us up (open(2)).
func (d *directory) open(name string, flags int) (*os.File, error) {
	var fd int
	err := restart(func() (err error) {
		fd, err = unix.Openat(int(d.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil {
			err = unfit(&st, unix.S_IFREG, 0o600, os.Geteuid())
		}
		if err == nil {
			return os.NewFile(uintptr(fd), filepath.Join(d.path, name)), nil
		}
		unix.Close(fd)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return nil, unavailable("a ledger file is regular, mode 0600, yours and has one name: find out who changed it and put it right",
		err, "%s is refused", filepath.Join(d.path, name))
}

// lock holds the directory against other writers until Close.
func (d *directory) lock() error {
	f, err := d.open(lockName, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20))
		f.Close()
		return taken(d.path, string(holder), err)
	}
	d.locked = f
	if err := f.Truncate(0); err != nil {
		return unavailable(cure(err), err, "the ledger's lock %s", f.Name())
	}
	if _, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0); err != nil {
		return unavailable(cure(err), err, "the ledger's lock %s", f.Name())
	}
	return nil
}

func taken(path, holder string, err error) error {
	who := "another process"
	if _, nan := strconv.Atoi(holder); nan == nil {
		who = "process " + holder
	}
	return &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("%s writes the ledger in %s", who, path),
		Hint: "one gateway per home: use the one that runs, or end it first: bailey gateway stop", Err: err}
}

// Close lets the directory and its lock go.
func (d *directory) Close() error {
	if d.locked != nil {
		d.locked.Close()
	}
	return d.File.Close()
}

// list returns the directory's names, sorted.
func (d *directory) list() ([]string, error) {
	again, err := unix.Openat(int(d.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.path, err)
	}
	f := os.NewFile(uintptr(again), d.path) // an offset of its own: readers do not disturb each other
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.path, err)
	}
	slices.Sort(names)
	return names, nil
}

// segments returns the names of the segments in order. None is missing in between.
func (d *directory) segments() ([]string, error) {
	names, err := d.list()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !segmentName().MatchString(n) })
	for i, n := range names {
		if want := fmt.Sprintf("%08d.jsonl", i+1); n != want {
			return nil, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("the ledger in %s has %s and no %s", d.path, n, want),
				Hint: "restore the missing segment from a copy, or move the ledger aside to begin a new one"}
		}
	}
	return names, nil
}

// create makes a new file with content, durable under name at once or not at all: first as temp.
func (d *directory) create(temp, name string, content io.Reader) error {
	if err := unix.Unlinkat(int(d.Fd()), temp, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("removing %s: %w", temp, err)
	}
	f, err := d.open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
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
		err = unix.Renameat2(int(d.Fd()), temp, int(d.Fd()), name, unix.RENAME_NOREPLACE)
	}
	if err == nil {
		err = d.Sync()
	}
	if err != nil {
		return unavailable(cure(err), err, "%s could not be written", filepath.Join(d.path, name))
	}
	return nil
}
