package terminal

import (
	"errors"
	"os"
)

// Is is false: a console of Windows is not known as a terminal. Operator verbs want BAILEY_OPERATOR=1 and --yes there.
func Is(*os.File) bool { return false }

// OneByOne does nothing: there is no terminal.
func OneByOne(*os.File) func() { return func() {} }

// Controlling is none.
func Controlling() (*os.File, error) { return nil, errors.ErrUnsupported }
