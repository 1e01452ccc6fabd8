//go:build !linux

package cli

import (
	"os"
	"path/filepath"
)

// OwnFile returns the path of this program.
func OwnFile() (string, error) { return os.Executable() }

// SocketIn returns a socket address in dir.
func SocketIn(dir *os.File, name string) string { return filepath.Join(dir.Name(), name) }
