package workspace

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// systemDirs returns directories that cannot be a workspace themselves, and trees that belong to the system. The paths
// come from the system and not from environment variables. Folders unknown to the system are left out.
func systemDirs() (dirs, trees []string) {
	for _, id := range []*windows.KNOWNFOLDERID{windows.FOLDERID_Windows, windows.FOLDERID_ProgramFiles, windows.FOLDERID_ProgramFilesX86, windows.FOLDERID_ProgramData} {
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
	return []string{"AppData/Roaming/gcloud", "AppData/Roaming/gnupg", "AppData/Roaming/Microsoft/Credentials", "AppData/Local/Microsoft/Credentials",
		"AppData/Roaming/Microsoft/Protect", "AppData/Roaming/GitHub CLI", "AppData/Roaming/npm", "_netrc"}
}

// fold makes names equal that differ only in case, as Windows mostly does. Folded paths are compared only to refuse
// them, so a false match is safe.
func fold(path string) string { return strings.ToLower(path) }

// everyHome returns nil and is not called: Windows has no uid 0.
func everyHome() []string { return nil }
