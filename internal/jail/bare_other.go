//go:build !linux

package jail

import (
	"os/exec"

	"bailey"
)

// bareDir is a place's path: no name leads to an open directory here.
func bareDir(p bailey.Place) string { return p.Path }

// bareEnded waits for the program.
func bareEnded(cmd *exec.Cmd) { cmd.Wait() }
