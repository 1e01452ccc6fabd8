package sshca

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"bailey"
)

// Names of the files of a credential. ssh(1) adds "-cert.pub" to the name of the key.
const (
	keyName         = "key"
	certificateName = "key-cert.pub"
)

// credentialFiles writes credentials below one directory:
//
//	DIR/PRINCIPAL/TARGET/USER/SERIAL/key
//	DIR/PRINCIPAL/TARGET/USER/SERIAL/key-cert.pub
//
// TARGET and USER are results of PathName. Each credential has a directory of its own, which appears with both files or
// not at all, so that a program never reads a key with the certificate of another one.
type credentialFiles struct {
	dir string

	// tree is held for reading while files of one credential are written or checked, and for writing while the
	// directory of a target is removed.
	tree sync.RWMutex

	mu     sync.Mutex          // protects owners
	owners map[string]entryKey // of DIR/PRINCIPAL/TARGET/USER, in lower case
}

// claimFolder returns the directory of a target and user, relative to dir. A name can be chosen such that it equals the
// converted form of another name, and some file systems ignore case. The error is Conflict if two names would share a
// directory.
func (f *credentialFiles) claimFolder(key entryKey) (string, error) {
	folder := filepath.Join(PathName(string(key.principal)), PathName(key.name), PathName(key.user))
	f.mu.Lock()
	defer f.mu.Unlock()
	owner, ok := f.owners[strings.ToLower(folder)]
	if ok && owner != key {
		return "", bailey.Conflict.New(fmt.Sprintf("the targets %.80q and %.80q have the same directory %s", key.name,
			owner.name, folder), "Rename one of the targets.")
	}
	f.owners[strings.ToLower(folder)] = key
	return folder, nil
}

// writeCredential writes the files of a credential and removes those before the previous one, which programs can still
// use.
func (f *credentialFiles) writeCredential(key entryKey, c, previous *Credential) error {
	f.tree.RLock()
	defer f.tree.RUnlock()
	folder, err := f.claimFolder(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, dirMode); err != nil {
		return cannotWrite(f.dir, err)
	}
	d, err := openSecretDir(f.dir)
	if err != nil {
		return err
	}
	defer d.close()
	if err := f.makeFolder(d, folder); err != nil {
		return err
	}
	serial := fmt.Sprintf("%016x", c.Certificate.Serial)
	if err := d.writePair(folder, serial, c.files); err != nil {
		return cannotWrite(filepath.Join(f.dir, folder), err)
	}
	c.folder = filepath.Join(folder, serial)
	c.KeyFile = filepath.Join(f.dir, c.folder, keyName)
	c.CertificateFile = filepath.Join(f.dir, c.folder, certificateName)
	keep := []string{serial}
	if previous != nil {
		keep = append(keep, filepath.Base(previous.folder))
	}
	return d.removeOthers(folder, keep)
}

// makeFolder creates each directory down to folder with mode 0700, and checks those that exist.
func (f *credentialFiles) makeFolder(d *secretDir, folder string) error {
	for _, path := range pathPrefixes(folder) {
		if err := d.root.Mkdir(path, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return cannotWrite(d.joinPath(path), err)
		}
		if err := d.checkFolder(path); err != nil {
			return err
		}
	}
	return nil
}

// pathPrefixes returns the directories on a relative path and the path itself, from the first to the last.
func pathPrefixes(path string) (list []string) {
	for i, c := range path {
		if c == filepath.Separator {
			list = append(list, path[:i])
		}
	}
	return append(list, path)
}

func (d *secretDir) checkFolder(path string) error {
	info, err := d.root.Lstat(path)
	if err != nil {
		return cannotRead(d.joinPath(path), err)
	}
	return checkDir(d.joinPath(path), info)
}

// writePair writes the files to a temporary directory and renames it. The directory is not synced: after a crash of the
// machine, Credentials.Clear removes it.
func (d *secretDir) writePair(folder, serial string, files map[string][]byte) error {
	temp := filepath.Join(folder, tempName(serial))
	if err := d.root.RemoveAll(temp); err != nil {
		return err
	}
	if err := d.doStep("mkdir", func() error { return d.root.Mkdir(temp, dirMode) }); err != nil {
		return err
	}
	for _, name := range []string{keyName, certificateName} {
		mode := fs.FileMode(secretMode)
		if name == certificateName {
			mode = publicMode
		}
		if err := d.writeFile(filepath.Join(temp, name), files[name], mode); err != nil {
			return err
		}
	}
	return d.renamePath(temp, filepath.Join(folder, serial))
}

func (d *secretDir) removeOthers(folder string, keep []string) error {
	list, err := fs.ReadDir(d.root.FS(), filepath.ToSlash(folder))
	for _, e := range list {
		if e.Name() != keep[0] && e.Name() != keep[len(keep)-1] {
			err = errors.Join(err, d.root.RemoveAll(filepath.Join(folder, e.Name())))
		}
	}
	if err != nil {
		return cannotWrite(d.joinPath(folder), err)
	}
	return nil
}

// checkCredential checks the files of a credential before their use. complete is false if a file is missing, for
// example because a program has cleaned a directory for temporary files; then a new credential must be written.
func (f *credentialFiles) checkCredential(c *Credential) (complete bool, err error) {
	f.tree.RLock()
	defer f.tree.RUnlock()
	d, err := openSecretDir(f.dir)
	if err == nil {
		defer d.close()
		err = d.checkPair(c)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (d *secretDir) checkPair(c *Credential) error {
	for _, path := range pathPrefixes(c.folder) {
		if err := d.checkFolder(path); err != nil {
			return err
		}
	}
	for name, want := range c.files {
		check := checkSecret
		if name == certificateName {
			check = checkPublic
		}
		path := filepath.Join(c.folder, name)
		got, err := d.readFile(path, check)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return bailey.Denied.New(d.joinPath(path)+" was changed since it was written",
				"Find the process that changed it, then remove the directory "+filepath.Dir(d.joinPath(path))+".")
		}
	}
	return nil
}

// removeTarget removes the directory of a target with those of all its users.
func (f *credentialFiles) removeTarget(p Principal, name string) error {
	return f.removeFolder(filepath.Join(PathName(string(p)), PathName(name)),
		func(k entryKey) bool { return k.principal == p && k.name == name })
}

// removeAll removes the directory of each principal for which the authority issues certificates. It leaves other files,
// because dir can be wrong.
func (f *credentialFiles) removeAll() error {
	var err error
	for _, p := range []Principal{Sandbox, ReadOnly} {
		err = errors.Join(err, f.removeFolder(string(p), func(k entryKey) bool { return k.principal == p }))
	}
	return err
}

func (f *credentialFiles) removeFolder(folder string, match func(entryKey) bool) error {
	f.tree.Lock()
	defer f.tree.Unlock()
	if !f.removeOwners(folder, match) {
		return nil
	}
	d, err := openSecretDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.root.RemoveAll(folder); err != nil {
		return cannotWrite(d.joinPath(folder), err)
	}
	return nil
}

// removeOwners forgets the owners that match. It returns false if folder is that of another target, see folder.
func (f *credentialFiles) removeOwners(folder string, match func(entryKey) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, owner := range f.owners {
		if strings.HasPrefix(path, strings.ToLower(folder)+string(filepath.Separator)) && !match(owner) {
			return false
		}
	}
	maps.DeleteFunc(f.owners, func(_ string, owner entryKey) bool { return match(owner) })
	return true
}
