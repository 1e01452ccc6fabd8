//go:build !linux

package direct

import (
	"errors"
	"os"
)

func openRaw(*os.File) (*rawTerminal, error) { return nil, errors.ErrUnsupported }
