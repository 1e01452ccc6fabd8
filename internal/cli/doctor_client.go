package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"bailey/internal/safefile"
)

func StatSelf() (fs.FileInfo, error) {
	self, err := OwnFile()
	if err != nil {
		return nil, err
	}
	return os.Stat(self)
}

// configBytes limits a file of Claude Code. ~/.claude.json also contains history and grows.
const configBytes = 32 << 20

// ReadConfig reads a client's file. It returns nil if the file does not exist.
func ReadConfig(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // opening a pipe would block
		return nil, errors.New("it is no regular file")
	}
	f, err := os.OpenFile(file, os.O_RDONLY|safefile.NoWait, 0) // by now it may have become a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, configBytes+1))
	if err == nil && len(text) > configBytes {
		err = fmt.Errorf("it is over %d bytes", configBytes)
	}
	return text, err
}
