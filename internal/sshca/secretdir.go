package sshca

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"bailey"
)

const (
	secretMode = 0o600
	publicMode = 0o644
	dirMode    = 0o700

	// maxKeyFile is the maximum size of a key or certificate file in bytes.
	maxKeyFile = 16 << 10
)

// secretDir is an open directory that only its owner can access. All names are relative to the open directory, so a
// later exchange of its path has no effect.
type secretDir struct {
	root *os.Root
	path string
	// before is called with the name of each operation before it changes the directory. A test uses it to stop a
	// sequence of operations at each step, as a crash would. It is nil otherwise.
	before func(operation string) error
}

// platformFault returns the error of each operation on key files if this system does not keep modes.
func platformFault() error {
	if keepsModes {
		return nil
	}
	return bailey.Unavailable.New("key files are not supported on Windows",
		"Keep the credentials in memory, and the key of the authority on Linux or macOS.")
}

// openSecretDir opens a directory. It refuses a link, a directory of another user, and one that others can access.
func openSecretDir(path string) (*secretDir, error) {
	if err := platformFault(); err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if err := checkDir(path, info); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(info, opened) {
		root.Close()
		return nil, bailey.Denied.New(path+" was replaced while it was opened",
			"Check which process replaces it.")
	}
	return &secretDir{root: root, path: path}, nil
}

func (d *secretDir) close() { d.root.Close() }

func (d *secretDir) joinPath(name string) string { return filepath.Join(d.path, name) }

// reportStep reports an operation that changes the directory.
func (d *secretDir) reportStep(operation string) error {
	if d.before == nil {
		return nil
	}
	return d.before(operation)
}

func checkDir(path string, info fs.FileInfo) error {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return bailey.Denied.New(path+" is a symbolic link, not a directory",
			"Use the path of the directory itself.")
	case !info.IsDir():
		return bailey.Denied.New(path+" is not a directory", "Use a path in a directory of mode 0700.")
	case info.Mode().Perm()&0o077 != 0:
		return bailey.Denied.New(fmt.Sprintf("the directory %s has mode %04o, so other users can access it", path,
			info.Mode().Perm()), "Run \"chmod 700 "+path+"\".")
	}
	return checkOwner(path, info)
}

// checkSecret checks a private key: its mode must be exactly 0600 or 0400, which also excludes setuid and setgid.
func checkSecret(path string, info fs.FileInfo) error {
	if err := checkRegular(path, info); err != nil {
		return err
	}
	const special = fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	if p := info.Mode().Perm(); p != secretMode && p != 0o400 || info.Mode()&special != 0 {
		return bailey.Denied.New(fmt.Sprintf("the private key %s has mode %04o, not 0600 or 0400", path, p),
			"Run \"chmod 600 "+path+"\". Replace the key if other users could read it.")
	}
	return nil
}

// checkPublic checks a public file: only its owner may change it.
func checkPublic(path string, info fs.FileInfo) error {
	if err := checkRegular(path, info); err != nil {
		return err
	}
	if p := info.Mode().Perm(); p&0o022 != 0 {
		return bailey.Denied.New(fmt.Sprintf("the file %s has mode %04o, so other users can change it", path, p),
			"Check its content, then run \"chmod 644 "+path+"\".")
	}
	return nil
}

func checkRegular(path string, info fs.FileInfo) error {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return bailey.Denied.New(path+" is a symbolic link, not a file", "Use the path of the file itself.")
	case !info.Mode().IsRegular():
		return bailey.Denied.New(path+" is not a regular file", "Use the path of a regular file.")
	case info.Size() > maxKeyFile:
		return bailey.Invalid.New(fmt.Sprintf("%s has %d bytes, at most %d are read", path, info.Size(), maxKeyFile),
			"Check whether this is the right file.")
	}
	return checkOwner(path, info)
}

func checkOwner(path string, info fs.FileInfo) error {
	uid, ok := ownerOf(info)
	if me := os.Geteuid(); !ok || uid != 0 && uid != me {
		return bailey.Denied.New(fmt.Sprintf("%s belongs to uid %d, not to uid %d or root", path, uid, me),
			"Check its content, then change its owner with chown.")
	}
	return nil
}

// readFile returns the content of a file. The check applies to the descriptor that is read.
func (d *secretDir) readFile(name string, check func(string, fs.FileInfo) error) ([]byte, error) {
	path := d.joinPath(name)
	named, err := d.root.Lstat(name)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if err := check(path, named); err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if !os.SameFile(named, info) {
		return nil, bailey.Denied.New(path+" was replaced while it was read", "Check which process replaces it.")
	}
	if err := check(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		clear(text)
		return nil, cannotRead(path, err)
	}
	return text, nil
}

// createFile writes a new file: complete under its name, or not at all. The error is Conflict if the name exists.
func (d *secretDir) createFile(name string, text []byte, mode fs.FileMode) error {
	return d.publishFile(name, text, mode, func(temp string) error {
		// A hard link, unlike rename(2), does not replace an existing file.
		if err := d.doStep("link "+name, func() error { return d.root.Link(temp, name) }); err != nil {
			return err
		}
		return d.removeFile(temp)
	})
}

// replaceFile writes a file: with the complete new content under its name, or with the old content.
func (d *secretDir) replaceFile(name string, text []byte, mode fs.FileMode) error {
	return d.publishFile(name, text, mode, func(temp string) error { return d.renamePath(temp, name) })
}

// tempName returns the name under which a file is written first. No function reads it.
func tempName(name string) string { return "." + name + ".new" }

// publishFile writes a temporary file to the disk and publishes it. The caller must hold the lock of the directory,
// because a temporary file of a process that crashed is removed.
func (d *secretDir) publishFile(name string, text []byte, mode fs.FileMode, publish func(temp string) error) error {
	temp := tempName(name)
	err := d.removeFile(temp)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = d.writeFile(temp, text, mode)
	}
	if err == nil {
		err = publish(temp)
	}
	if err == nil {
		err = d.syncDir()
	}
	if err == nil {
		return nil
	}
	// The temporary file can hold a private key that is not used.
	if left := d.removeFile(temp); left != nil && !errors.Is(left, fs.ErrNotExist) {
		err = errors.Join(err, left)
	}
	if errors.Is(err, fs.ErrExist) {
		return existsAlready(d.joinPath(name))
	}
	return cannotWrite(d.joinPath(name), err)
}

func existsAlready(path string) error {
	return bailey.Conflict.New(path+" exists already", "Keep it, or move it to another directory first.")
}

func cannotWrite(path string, err error) error {
	return bailey.Unavailable.Wrap(err, "cannot write "+path,
		"Check the permissions and the free space of the directory.")
}

func (d *secretDir) writeFile(temp string, text []byte, mode fs.FileMode) (err error) {
	if err := d.reportStep("create " + temp); err != nil {
		return err
	}
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, secretMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := d.reportStep("write " + temp); err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil { // independent of the umask
		return err
	}
	if err := d.reportStep("sync " + temp); err != nil {
		return err
	}
	return f.Sync()
}

func (d *secretDir) doStep(operation string, f func() error) error {
	if err := d.reportStep(operation); err != nil {
		return err
	}
	return f()
}

func (d *secretDir) removeFile(name string) error {
	return d.doStep("remove "+name, func() error { return d.root.Remove(name) })
}

func (d *secretDir) renamePath(from, to string) error {
	return d.doStep("rename "+to, func() error { return d.root.Rename(from, to) })
}

func (d *secretDir) syncDir() error {
	return d.doStep("sync directory", func() error {
		f, err := d.root.Open(".")
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// lockDir waits until no other process or goroutine changes the directory, and returns the function that ends the lock.
func (d *secretDir) lockDir() (unlock func(), err error) {
	f, err := d.root.Open(".")
	if err == nil {
		if err = lockFile(f); err == nil {
			return func() { f.Close() }, nil
		}
		f.Close()
	}
	return nil, bailey.Unavailable.Wrap(err, "cannot lock "+d.path, "Use a directory on a local file system.")
}

// cannotRead returns a NotFound error if the file does not exist, otherwise Unavailable.
func cannotRead(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return bailey.NotFound.Wrap(fs.ErrNotExist, path+" does not exist",
			"Create the key of the certificate authority, or restore it from a copy.")
	}
	return bailey.Unavailable.Wrap(err, "cannot read "+path, "Check the permissions of the file and its directory.")
}
