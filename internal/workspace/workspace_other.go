//go:build !linux

package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"

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
