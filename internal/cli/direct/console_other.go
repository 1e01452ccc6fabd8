//go:build !linux

package direct

import (
	"errors"
	"os"
)

// console is not supported on a platform without a cage.
type console struct{ slave *os.File }

func openConsole(_, _ *os.File) (*console, error) {
	return nil, errors.ErrUnsupported
}

func (*console) close() {}
