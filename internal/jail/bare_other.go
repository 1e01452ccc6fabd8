//go:build !linux

package jail

import (
	"os/exec"

	"bailey"
)

// bareDir returns the path of the place: here no file name leads to an open directory.
func bareDir(p bailey.Place) string { return p.Path }

func bareEnded(cmd *exec.Cmd) { cmd.Wait() }
