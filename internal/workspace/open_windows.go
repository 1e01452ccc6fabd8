package workspace

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/windows"
)

// openPath opens path for reading, because Windows has no O_PATH. It follows links; pathOf returns the resolved path.
func openPath(path string) (*os.File, error) { return os.Open(path) }

// pathOf returns the path of a handle (GetFinalPathNameByHandleW): without links, and in the case that the volume
// stores. A path without a drive or share is an error.
func pathOf(f *os.File) (string, error) {
	var buf [windows.MAX_LONG_PATH]uint16
	n, err := windows.GetFinalPathNameByHandle(windows.Handle(f.Fd()), &buf[0], uint32(len(buf)), 0)
	if err != nil || int(n) >= len(buf) {
		return "", fmt.Errorf("%s: its place is not known: %v", f.Name(), err)
	}
	path := windows.UTF16ToString(buf[:n])
	if rest, ok := strings.CutPrefix(path, `\\?\UNC\`); ok {
		return `\\` + rest, nil
	}
	rest, ok := strings.CutPrefix(path, `\\?\`)
	if !ok || len(rest) < 3 || rest[1] != ':' {
		return "", fmt.Errorf("%s: its place is not known: %q", f.Name(), path)
	}
	return rest, nil
}

// mountRoot reports whether f is the root of a volume. If the system cannot tell, it returns true.
func mountRoot(f *os.File) bool {
	path, err := pathOf(f)
	if err != nil {
		return true
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return true
	}
	var volume [windows.MAX_LONG_PATH]uint16
	if err := windows.GetVolumePathName(name, &volume[0], uint32(len(volume))); err != nil {
		return true
	}
	root := windows.UTF16ToString(volume[:])
	return strings.EqualFold(strings.TrimSuffix(path, `\`), strings.TrimSuffix(root, `\`))
}
