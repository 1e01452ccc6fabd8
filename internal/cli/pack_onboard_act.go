package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"bailey"
)

// Vacant returns an error if dir exists and is not an empty directory.
func Vacant(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return &bailey.Error{Kind: bailey.Invalid, Message: dir + " is a symbolic link", Hint: "name the directory itself with --dir"}
	}
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &bailey.Error{Kind: bailey.Invalid, Message: dir + " is no directory that a pack can be written to", Err: err, Hint: "name another one with --dir"}
	case len(list) > 0:
		return &bailey.Error{Kind: bailey.Conflict, Message: dir + " is not empty, and nothing in it is overwritten", Hint: "name another directory with --dir"}
	}
	return nil
}

// Settle creates the directory with all its files atomically. If it fails, nothing remains.
func Settle(dir string, files map[string][]byte) (err error) {
	defer func() {
		if err != nil {
			err = &bailey.Error{Kind: bailey.Unavailable, Message: "the pack could not be written to " + dir, Err: err, Hint: "name another directory with --dir"}
		}
	}()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".onboard-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(made, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	// succeeds only if empty
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(made, dir)
}
