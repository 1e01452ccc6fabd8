//go:build !linux

package sandbox

import (
	"io"

	"bailey"
)

// packFiles fails: machines exist on Linux only.
func (r *callRun) packFiles(io.Writer, bailey.Lent) error {
	return bailey.Unavailable.New("a microvm needs Linux", "use isolation: jail")
}
