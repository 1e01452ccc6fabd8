//go:build !linux

package main

import (
	"os"
	"path/filepath"
)

// ownFile is this program's file.
func ownFile() (string, error) { return os.Executable() }

// socketIn is an address in dir.
func socketIn(dir *os.File, name string) string { return filepath.Join(dir.Name(), name) }
