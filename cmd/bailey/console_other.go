//go:build !linux

package main

import (
	"errors"
	"os"
)

// Where there is no cage there is nothing to put on a terminal.
type console struct{ slave *os.File }

func openConsole(_, _ *os.File) (*console, error) {
	return nil, errors.ErrUnsupported
}

func (*console) close() {}
