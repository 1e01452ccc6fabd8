package gateway

import (
	"path/filepath"
	"strings"
)

// systemDirs are directories that are nobody's project, and those below which everything is the system's. What
// lies in /private is known by that name: /etc, /tmp and /var are links.
func systemDirs() (dirs, trees []string) {
	return []string{"/", "/Users", "/Users/Shared", "/Volumes", "/opt", "/opt/homebrew", "/usr", "/usr/local", "/private", "/private/tmp", "/private/var"},
		[]string{"/System", "/Library", "/Applications", "/bin", "/sbin", "/dev", "/cores", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec",
			"/usr/share", "/private/etc", "/private/var/db", "/private/var/root", "/private/var/run", "/private/var/log"}
}

// daemonSockets lend the powers of daemons to whoever connects.
func daemonSockets() []string { return []string{"/var/run/docker.sock", "/private/var/run"} }

// systemSecrets are below a home, beside those that every system has.
func systemSecrets() []string {
	return []string{"Library/Keychains", "Library/Cookies", "Library/Application Support/com.apple.TCC", "Library/Application Support/gcloud", "Library/Group Containers"}
}

// fold makes names that differ in case one, as the file system of macOS mostly does: what is compared so is
// refused, so one too many costs nothing.
func fold(path string) string { return strings.ToLower(path) }

// everyHome is what root reaches.
func everyHome() []string {
	homes, _ := filepath.Glob("/Users/*") // its pattern is good
	return append(homes, "/private/var/root")
}
