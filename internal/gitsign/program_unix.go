//go:build unix

package gitsign

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// systemDirs returns the directories in which programs of the system are searched.
func systemDirs() []string { return []string{"/usr/bin", "/bin", "/usr/local/bin"} }

// onlyRootWrites returns an error if a user other than root could write or replace the program at a canonical path.
func onlyRootWrites(path string) error {
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Uid != 0 || info.Mode()&0o002 != 0 || info.Mode()&0o020 != 0 && st.Gid != 0 {
			return fmt.Errorf("%s is not run: users other than root can write %s", path, p)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}
