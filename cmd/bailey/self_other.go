//go:build !linux

package main

import (
	"os"
	"path/filepath"
)

// ownFile returns the path of this program.
func ownFile() (string, error) { return os.Executable() }

// socketIn returns a socket address in dir.
func socketIn(dir *os.File, name string) string { return filepath.Join(dir.Name(), name) }
