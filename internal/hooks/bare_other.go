//go:build !unix

package hooks

import (
	"io/fs"
	"os"
	"os/exec"

	"bailey"
)

func runnable(info fs.FileInfo) bool { return info.Mode().IsRegular() }

// group is for platforms whose processes have groups.
type group struct{}

// launch refuses: what a hook started here could not be ended with it.
func launch(cmd *exec.Cmd) (group, error) {
	cmd.Err = &bailey.Error{Kind: bailey.Unavailable, Message: "this platform starts no hooks", Hint: "use Linux or macOS"}
	return group{}, cmd.Err
}

func (group) term() {}
func (group) kill() {}

func code(s *os.ProcessState) int { return s.ExitCode() }
