package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// systemDirs returns directories that cannot be a workspace themselves, and trees that belong to the system. The paths
// come from the system and not from environment variables. Folders unknown to the system are left out.
func systemDirs() (dirs, trees []string) {
	for _, id := range []*windows.KNOWNFOLDERID{windows.FOLDERID_Windows, windows.FOLDERID_ProgramFiles,
		windows.FOLDERID_ProgramFilesX86, windows.FOLDERID_ProgramData} {
		if path, err := windows.KnownFolderPath(id, windows.KF_FLAG_DEFAULT); err == nil {
			trees = append(trees, path)
		}
	}
	if users, err := windows.KnownFolderPath(windows.FOLDERID_UserProfiles, windows.KF_FLAG_DEFAULT); err == nil {
		dirs = append(dirs, users, filepath.Join(users, "Public"))
	}
	return dirs, trees
}

// daemonSockets returns nil: on Windows they are pipes, which no path in a workspace can reach.
func daemonSockets() []string { return nil }

// systemSecrets returns paths below a home, in addition to those of every system.
func systemSecrets() []string {
	return []string{"AppData/Roaming/gcloud", "AppData/Roaming/gnupg", "AppData/Roaming/Microsoft/Credentials",
		"AppData/Local/Microsoft/Credentials",
		"AppData/Roaming/Microsoft/Protect", "AppData/Roaming/GitHub CLI", "AppData/Roaming/npm", "_netrc"}
}

// foldCase makes names equal that differ only in case, as Windows mostly does. Folded paths are compared only to refuse
// them, so a false match is safe.
func foldCase(path string) string { return strings.ToLower(path) }

// everyHome returns nil and is not called: Windows has no uid 0.
func everyHome() []string { return nil }

// openPath opens path for reading, because Windows has no O_PATH. It follows links; pathOf returns the resolved path.
func openPath(path string) (*os.File, error) { return os.Open(path) }

// pathOf returns the path of a handle (GetFinalPathNameByHandleW): without links, and in the case that the volume
// stores. A path without a drive or share is an error.
func pathOf(f *os.File) (string, error) {
	var buf [windows.MAX_LONG_PATH]uint16
	n, err := windows.GetFinalPathNameByHandle(windows.Handle(f.Fd()), &buf[0], uint32(len(buf)), 0)
	if err != nil || int(n) >= len(buf) {
		return "", fmt.Errorf("%s: its path is unknown: %v", f.Name(), err)
	}
	path := windows.UTF16ToString(buf[:n])
	if rest, ok := strings.CutPrefix(path, `\\?\UNC\`); ok {
		return `\\` + rest, nil
	}
	rest, ok := strings.CutPrefix(path, `\\?\`)
	if !ok || len(rest) < 3 || rest[1] != ':' {
		return "", fmt.Errorf("%s: its path is unknown: %q", f.Name(), path)
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
