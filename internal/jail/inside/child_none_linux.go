//go:build linux && !amd64 && !arm64

package inside

import "syscall"

// Walks tells whether this architecture has the assembly that a warm helper needs.
const Walks = false

func cloneAndWalk(*cloneArgs, uintptr, *syscallRow, *childProgress) int { return -int(syscall.ENOSYS) }
