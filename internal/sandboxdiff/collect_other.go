//go:build !linux

package sandboxdiff

import "bailey"

// Collect refuses: it lists root file systems of Linux, on Linux.
func Collect(string) (*Inventory, error) {
	return nil, bailey.Unavailable.New("a root file system can be listed on Linux only", "Run this on Linux.")
}
