package gateway

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// systemDirs are directories that are nobody's project, and those below which everything is the system's. Where
// they lie, the system says, and no variable; a folder that it does not know, there is not.
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

// daemonSockets: those of Windows are pipes, which no path of a workspace leads to.
func daemonSockets() []string { return nil }

// systemSecrets are below a home, beside those that every system has.
func systemSecrets() []string {
	return []string{"AppData/Roaming/gcloud", "AppData/Roaming/gnupg", "AppData/Roaming/Microsoft/Credentials", "AppData/Local/Microsoft/Credentials",
		"AppData/Roaming/Microsoft/Protect", "AppData/Roaming/GitHub CLI", "AppData/Roaming/npm", "_netrc"}
}

// fold makes names that differ in case one, as Windows mostly does: what is compared so is refused, so one too
// many costs nothing.
func fold(path string) string { return strings.ToLower(path) }

// everyHome is not asked for: there is no uid 0.
func everyHome() []string { return nil }
