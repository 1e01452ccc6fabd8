package gitsign

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// readText reads a text up to the end that its sender makes.
func readText(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxObject+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the text did not arrive within %v", readPatience)
	case err != nil:
		return nil, fmt.Errorf("the text did not arrive: %w", err)
	case len(text) > MaxObject:
		return nil, fmt.Errorf("the text has more than %d bytes", MaxObject)
	}
	return text, nil
}
