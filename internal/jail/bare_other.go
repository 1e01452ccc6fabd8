//go:build !linux

package jail

import (
	"os"
	"os/exec"

	"bailey"
)

// bareDir returns the path of the place: here no file name leads to an open directory.
func bareDir(p bailey.Place) string { return p.Path }

// makePipe returns a read end and a write end.
func makePipe(int) (r, w *os.File, err error) { return os.Pipe() }

func bareEnded(cmd *exec.Cmd) { cmd.Wait() }
