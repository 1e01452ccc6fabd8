// Package safefile reads and replaces regular files whose paths other processes can change: it follows no symbolic link,
// waits for no pipe, and a reader finds either the old or the new content.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"bailey"
)

// Read reads a regular file of at most most bytes. If the file does not exist, the result is nil; for an empty
// file it is not nil. It does not follow symlinks or wait for a pipe.
func Read(name string, most int64) ([]byte, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|NoWait|NoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("it is over the %d bytes allowed", most)
	}
	return text, err
}

// ReadNamed reads a regular file of at most most bytes that the user has named. It follows symlinks, and returns an
// error if the file does not exist.
func ReadNamed(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("it is not a regular file")}
	}
	f, err := os.OpenFile(name, os.O_RDONLY|NoWait, 0) // by now it may have become a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it is over the %d bytes allowed", most)}
	}
	return b, err
}

// ReadPlain is like [Read]. Its errors are of the kind Invalid, with a hint.
func ReadPlain(name string, most int64) ([]byte, error) {
	text, err := Read(name, most)
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, name+" cannot be read",
			fmt.Sprintf("it must be a regular file that you own, of at most %d bytes", most))
	}
	return text, nil
}
