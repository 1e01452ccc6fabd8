package terminal

import (
	"errors"
	"os"
)

// Is returns false: a Windows console is not recognized as a terminal. Operator commands need BAILEY_OPERATOR=1 and
// --yes there.
func Is(*os.File) bool { return false }

// Height returns 0.
func Height(*os.File) int { return 0 }

// OneByOne does nothing, as no terminal is recognized.
func OneByOne(*os.File) func() { return func() {} }

// Controlling returns errors.ErrUnsupported.
func Controlling() (*os.File, error) { return nil, errors.ErrUnsupported }
