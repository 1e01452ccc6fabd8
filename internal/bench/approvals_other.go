//go:build !linux

package bench

// processUsage returns 0 on this platform.
func processUsage() (bytes, files int) { return 0, 0 }
