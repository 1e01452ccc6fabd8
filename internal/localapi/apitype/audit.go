package apitype

import (
	"errors"
	"io/fs"

	"bailey"
	"bailey/audit"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// KeptNote returns a checkpoint of the home, or nil if the file does not exist.
func KeptNote(file string) ([]byte, error) {
	signed, err := safefile.ReadNamed(file, audit.MaxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, Unread(file, err)
	}
	return signed, nil
}

func Unread(name string, err error) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: "the file " + terminal.Shown(name) + " cannot be read", Err: err, Hint: "name a file that bailey audit wrote, or - for stdin"}
}
