package workspace

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"bailey"
	"bailey/internal/gitremote"
	"bailey/pack"
)

// maxConfig limits a file of .git that is read, in bytes.
const maxConfig = 1 << 20

// Checkout reads the git checkout to which the directory of a call belongs. Like git, it searches from that directory
// upwards, but not outside the workspace. Each file is opened like a path input, so a link cannot lead to a masked
// file or out of the workspace.
func (w *Workspaces) Checkout(call bailey.Call) (pack.Checkout, error) {
	dir := Canonical(call.Dir)
	for {
		found, err := w.hasGit(call, dir)
		if err != nil {
			return nil, err
		}
		if found {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil, errors.New("the working directory is not in a git repository")
		}
		dir = up
	}
	c, err := gitremote.OpenCheckout(dir, func(path string) ([]byte, error) { return w.readConfig(call, path) })
	if err != nil {
		return nil, err
	}
	return checkout{c}, nil
}

func (w *Workspaces) hasGit(call bailey.Call, dir string) (bool, error) {
	at, err := w.Open(call, pack.PathInput{Name: "repo", Dir: true}, dir)
	if err != nil {
		return false, errors.New("the working directory is not in a git repository of the workspace")
	}
	defer at.File.Close()
	return w.Has(at, ".git")
}

func (w *Workspaces) readConfig(call bailey.Call, path string) ([]byte, error) {
	dir, name := filepath.Split(path)
	at, err := w.Open(call, pack.PathInput{Name: "repo", Dir: true}, dir)
	if err != nil {
		return nil, err
	}
	has, err := w.Has(at, name)
	at.File.Close()
	switch {
	case err != nil:
		return nil, err
	case !has:
		return nil, fs.ErrNotExist
	}
	file, err := w.Open(call, pack.PathInput{Name: "repo", File: true}, path)
	if err != nil {
		return nil, err
	}
	defer file.File.Close()
	r, err := w.Read(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if len(text) > maxConfig {
		return nil, errors.New(name + " of the repository is too large")
	}
	return text, err
}

// checkout is a pack.Checkout.
type checkout struct{ *gitremote.Checkout }

func (c checkout) Repository(chosen bool) (owner, name string, err error) {
	g, err := c.Checkout.Repository(chosen)
	return g.Owner, g.Name, err
}

func (c checkout) PullRequest() (string, error) {
	g, err := c.Checkout.Repository(true)
	if err != nil {
		return "", err
	}
	return c.Checkout.PullRequest(g)
}
