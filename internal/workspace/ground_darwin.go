package workspace

import (
	"path/filepath"
	"strings"
)

// systemDirs returns directories that cannot be a workspace themselves, and trees that belong to the system. /etc, /tmp
// and /var are symlinks, so their names below /private are listed.
func systemDirs() (dirs, trees []string) {
	return []string{"/", "/Users", "/Users/Shared", "/Volumes", "/opt", "/opt/homebrew", "/usr", "/usr/local", "/private", "/private/tmp", "/private/var"},
		[]string{"/System", "/Library", "/Applications", "/bin", "/sbin", "/dev", "/cores", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec",
			"/usr/share", "/private/etc", "/private/var/db", "/private/var/root", "/private/var/run", "/private/var/log"}
}

// daemonSockets returns the sockets of daemons that give their privileges to any client.
func daemonSockets() []string { return []string{"/var/run/docker.sock", "/private/var/run"} }

// systemSecrets returns paths below a home, in addition to those of every system.
func systemSecrets() []string {
	return []string{"Library/Keychains", "Library/Cookies", "Library/Application Support/com.apple.TCC", "Library/Application Support/gcloud", "Library/Group Containers"}
}

// fold makes names equal that differ only in case, as most macOS file systems do. Folded paths are compared only to
// refuse them, so a false match is safe.
func fold(path string) string { return strings.ToLower(path) }

// everyHome returns the home directories that root can reach.
func everyHome() []string {
	homes, _ := filepath.Glob("/Users/*") // the pattern is valid
	return append(homes, "/private/var/root")
}
