//go:build !linux

package bench

// footprint returns 0 on this platform.
func footprint() (bytes, files int) { return 0, 0 }
