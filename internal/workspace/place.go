package workspace

import (
	"fmt"
	"path/filepath"

	"bailey"
)

// OpenPlace opens a path that an operator names for a cage, once; the cage shows that descriptor. An operator is not
// restricted to workspaces. If the path is masked or no cage may show it, the jail refuses it.
func OpenPlace(path string, write bool) (bailey.Place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return bailey.Place{}, err
	}
	f, err := openPath(path)
	if err != nil {
		return bailey.Place{}, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%q cannot be opened", path), Err: cause(err),
			Hint: "name a path that exists and that you may reach"}
	}
	real, err := pathOf(f)
	if err != nil {
		f.Close()
		return bailey.Place{}, err
	}
	return bailey.Place{Path: real, File: f, Write: write}, nil
}
