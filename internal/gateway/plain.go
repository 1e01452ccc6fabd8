package gateway

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadPlain reads a regular file of at most most bytes. If the file does not exist, the result is nil; for an empty
// file it is not nil. It does not follow symlinks or wait for a pipe.
func ReadPlain(name string, most int64) ([]byte, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|noWait|noFollow, 0)
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
