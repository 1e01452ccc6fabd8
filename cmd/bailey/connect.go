package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/gateway"
)

// maxClientFile bounds a client's configuration in bytes: Claude Code's own grows with its projects.
const maxClientFile = 64 << 20

// clientFile is a file of a client, opened so that nothing leads out of its directory.
type clientFile struct {
	root *os.Root
	name string
	text []byte // nil where there is no file
	mode fs.FileMode
}

func (f *clientFile) path() string { return filepath.Join(f.root.Name(), f.name) }

// openClientFile reads dir/name. A link is refused: what it leads to may belong to another project.
func openClientFile(dir, name string, mode fs.FileMode) (*clientFile, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &clientFile{root: root, name: name, mode: mode}
	if err := f.read(); err != nil {
		root.Close()
		return nil, err
	}
	return f, nil
}

func (f *clientFile) read() error {
	info, err := f.root.Lstat(f.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.text = nil
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &bailey.Error{Kind: bailey.Denied, Message: f.path() + " is no regular file: nothing is written through links", Hint: "put a file in its place"}
	case info.Size() > maxClientFile:
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s is over the %d bytes allowed", f.path(), maxClientFile)}
	}
	f.mode = info.Mode().Perm()
	r, err := f.root.OpenFile(f.name, os.O_RDONLY|noWait|noFollow, 0) // it may be a pipe by now
	if err != nil {
		return err
	}
	defer r.Close()
	f.text, err = io.ReadAll(io.LimitReader(r, maxClientFile))
	return err
}

// write replaces the file, or removes it where text is nil, after record has said so durably. A file that
// somebody else has changed since it was read stays as it is.
func (f *clientFile) write(text []byte, record func() error) error {
	first := func() error {
		now := &clientFile{root: f.root, name: f.name}
		if err := now.read(); err != nil {
			return err
		}
		if !bytes.Equal(now.text, f.text) || (now.text == nil) != (f.text == nil) {
			return errMeanwhile
		}
		return record()
	}
	if text != nil {
		return gateway.Replace(f.root, f.name, text, f.mode, first)
	}
	if err := first(); err != nil {
		return err
	}
	return f.root.Remove(f.name)
}

// claudeCode writes or removes Claude Code's configuration.
func (i *initial) claudeCode(ctx context.Context) (*change, error) {
	f, err := i.claudeFile()
	if err != nil {
		return nil, err
	}
	c := configuration{Client: "claude-code", Scope: i.scope, File: f.path()}
	var had configuration
	if err := i.client.Look(ctx, gateway.Query{Verb: "configuration", Args: map[string]any{"file": c.File}}, &had); err != nil {
		return nil, err
	}
	verb, note := configureEvent, "Claude Code starts bailey serve"
	var now []byte
	if i.undo {
		verb, note, c.Command, c.Added = undoEvent, "Claude Code no longer starts bailey serve", had.Command, had.Added
		if had.Added == "" {
			return nil, &bailey.Error{Kind: bailey.NotFound, Message: "init wrote nothing into " + c.File + " that stands there still", Hint: "there is nothing to undo"}
		}
		now, err = removeServer(f.text, serverEntry(c.Command), c.Added)
	} else {
		if c.Command, err = ownCommand(); err != nil {
			return nil, err
		}
		now, c.Added, err = addServer(f.text, serverEntry(c.Command))
	}
	if err != nil {
		return nil, about(c.File, err)
	}
	i.report.Claude = &claudeReport{Scope: i.scope, File: c.File, Command: c.Command, Configured: !i.undo}
	if !i.undo && c.Added == "" {
		return nil, nil
	}
	return &change{file: c.File, note: note, diff: difference(string(f.text), string(now)), make: func(ctx context.Context) error {
		return f.write(now, func() error {
			args := map[string]any{"client": c.Client, "scope": c.Scope, "file": c.File, "command": c.Command, "added": string(c.Added)}
			return act(ctx, i.client, i.op, verb, args, &configuration{})
		})
	}}, nil
}

func (i *initial) claudeFile() (*clientFile, error) {
	if i.scope == "project" {
		return openClientFile(i.dir, ".mcp.json", 0o644)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "no home directory is known", Hint: "set HOME", Err: err}
	}
	return openClientFile(home, ".claude.json", 0o600)
}

// about gives an error the file that it is about.
func about(file string, err error) error {
	return &bailey.Error{Kind: bailey.KindOf(err), Message: file, Hint: bailey.HintOf(err), Err: err}
}

// ownCommand is how another program starts this one: by its name where that is the one on PATH.
func ownCommand() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if onPath, err := exec.LookPath("bailey"); err == nil && sameFile(onPath, self) {
		return "bailey", nil
	}
	if strings.Contains(self, "/go-build") {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: "this bailey goes away when it ends: go run built it", Hint: "go install ./cmd/bailey, then bailey init"}
	}
	return self, nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
