package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/terminal"
)

// writeRules writes rules for review into a new file and returns its path. This is out, if it ends in .cedar, else the
// file name in the directory out, which is created if necessary. Existing files are not overwritten.
func writeRules(out, name string, text []byte) (string, error) {
	file := out
	if !strings.HasSuffix(out, ".cedar") {
		if err := os.Mkdir(out, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("directory %s cannot be made", terminal.Shown(out)), Hint: "name one whose parent is there, or a file *.cedar", Err: err}
		}
		file = filepath.Join(out, name)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("%s is there already", terminal.Shown(file)), Hint: "name another file, or move that one away: nothing is overwritten"}
	}
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return "", &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%s cannot be written", terminal.Shown(file)), Err: err}
	}
	return file, nil
}

// giveRules writes rules to out or, if out is empty, to standard output, and then prints a summary as text or JSON.
func (a *App) giveRules(out, name string, text []byte, said func(file string) any, inWords func()) error {
	file := ""
	if out != "" {
		var err error
		if file, err = writeRules(out, name, text); err != nil {
			return err
		}
	}
	switch {
	case a.JSON:
		return a.Print(said(file))
	case file == "":
		if _, err := a.Stdout.Write(text); err != nil {
			return err
		}
	}
	inWords()
	if file != "" {
		fmt.Fprintf(a.Stdout, "written: %s\nlook at it, then: bailey policy check DIR, and bailey policy apply DIR\n", terminal.Shown(file))
	}
	return nil
}
