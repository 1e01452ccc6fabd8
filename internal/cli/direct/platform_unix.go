//go:build linux || darwin

package direct

import (
	"syscall"
)

// checkWritable asks the kernel, which also knows of read-only mounts (access(2)).
func checkWritable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}
