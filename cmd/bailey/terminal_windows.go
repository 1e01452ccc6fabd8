package main

import (
	"errors"
	"os"
)

// A console of Windows is not known as a terminal: operator verbs want BAILEY_OPERATOR=1 and --yes there.
func isTerminal(*os.File) bool       { return false }
func oneByOne(*os.File) func()       { return func() {} }
func controlling() (*os.File, error) { return nil, errors.ErrUnsupported }
