//go:build !linux

package peer

// Executable returns a placeholder: it is implemented only on Linux.
func Executable(int) string { return "not visible" }
