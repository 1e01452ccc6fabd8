//go:build !linux

package workspace

import (
	"bailey"
)

// Freeze does nothing: without a cage, no copy can replace the file. The approval request says that the contents are
// not bound.
func (w *Workspaces) Freeze(bailey.Place) (*bailey.Frozen, func(), error) { return nil, nil, nil }
