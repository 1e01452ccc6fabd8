//go:build unix

package workspace

import (
	"os"
	"syscall"
)

// sameOwner reports whether two opened files belong to one user.
func sameOwner(a, b *os.File) bool {
	owner := func(f *os.File) (uint32, bool) {
		info, err := f.Stat()
		if err != nil {
			return 0, false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return 0, false
		}
		return st.Uid, true
	}
	first, ok := owner(a)
	second, also := owner(b)
	return ok && also && first == second
}
