//go:build !linux

package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"bailey"
)

// Has reports whether a path exists below the descriptor's path. Systems without a cage have no descriptor to start
// from. It follows symlinks that stay below it.
func (w *Workspaces) Has(p bailey.Place, below string) (bool, error) {
	root, err := os.OpenRoot(p.Path)
	if err == nil {
		defer root.Close()
		_, err = root.Stat(below)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, bailey.Invalid.Wrapf(pathErrorCause(err), "name a directory that you can read",
			"%s in %s cannot be examined", below, p.Path)
	}
	return true, nil
}

// Load reads a file below the place. No component may be a symbolic link.
func (w *Workspaces) Load(p bailey.Place, below string, max int64) (data []byte, there bool, err error) {
	root, err := os.OpenRoot(p.Path)
	if err != nil {
		return nil, false, bailey.Invalid.Wrapf(pathErrorCause(err), "name a directory that you may read", "%s", p.Path)
	}
	defer root.Close()
	for at := below; at != "."; at = path.Dir(at) {
		info, err := root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && at != below && info.Mode().IsRegular():
			return nil, false, nil
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			err = errors.New("it is a symbolic link")
		}
		if err != nil {
			return nil, false, bailey.Invalid.Wrapf(pathErrorCause(err), "it must be a file that you may read, and no link",
				"%s in %s cannot be read", below, p.Path)
		}
	}
	f, err := root.Open(below)
	if err != nil {
		return nil, false, bailey.Invalid.Wrapf(pathErrorCause(err), "it must be a file that you may read",
			"%s in %s cannot be read", below, p.Path)
	}
	defer f.Close()
	return loadFile(p, f, below, max)
}

// Read reads the file through the opened descriptor, which is readable on these systems.
func (w *Workspaces) Read(p bailey.Place) (io.ReadCloser, error) {
	info, err := p.File.Stat()
	if err == nil {
		err = checkSize(p, info)
	}
	if err != nil {
		return nil, err
	}
	return io.NopCloser(io.NewSectionReader(p.File, 0, info.Size())), nil
}

// Freeze does nothing: without a cage, no copy can replace the file. The approval request says that the contents are
// not bound.
func (w *Workspaces) Freeze(bailey.Place) (*bailey.Frozen, func(), error) { return nil, nil, nil }
