package agenthook

import (
	"os"
	"path/filepath"
)

// scratchDir returns the directory in which Claude Code keeps scratch files.
func scratchDir() string { return filepath.Join(os.TempDir(), "claude") }
