//go:build unix

package agenthook

import (
	"cmp"
	"fmt"
	"os"
)

// scratchDir returns the directory in which Claude Code keeps scratch files.
func scratchDir() string {
	return fmt.Sprintf("%s/claude-%d", cmp.Or(os.Getenv("CLAUDE_CODE_TMPDIR"), "/tmp"), os.Getuid())
}
