package settings

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/workspace"
)

// socketsOf reads the sockets of daemons.
func socketsOf(n ast.Node) (map[string]string, error) {
	all, known := map[string]string{}, keys{}
	for _, daemon := range bailey.Daemons() {
		known[daemon] = func(n ast.Node) error {
			path, err := wordOf(n, maxWord)
			if err == nil && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
				err = fault(n, "a socket wants an absolute path without .., as in /var/run/docker.sock")
			}
			all[daemon] = path
			return err
		}
	}
	if err := each(n, "daemon", known); err != nil {
		return nil, err
	}
	return all, nil
}

// Sheltered refuses a daemon's socket inside a workspace: a process that can create sockets there can reach the daemon
// without the gate.
func Sheltered(n Network, workspaces []string) error {
	for _, daemon := range slices.Sorted(maps.Keys(n.Sockets)) {
		if path := n.Sockets[daemon]; (workspace.Bounds{Dirs: workspaces}).Hold(workspace.Canonical(path)) {
			return &bailey.Error{Kind: bailey.Invalid, Message: "the socket " + path + " of " + daemon + " lies in a workspace", Hint: "have the daemon listen elsewhere: an agent in the workspace would reach it"}
		}
	}
	return nil
}
