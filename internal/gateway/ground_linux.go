package gateway

import (
	"os"
	"strings"
)

// system are directories that are nobody's project, and those below which everything is the system's.
var (
	system      = []string{"/", "/home", "/opt", "/srv", "/var", "/var/lib", "/usr", "/usr/local", "/mnt", "/media", "/run"}
	systemTrees = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/include", "/usr/share"}
)

func systemDirs() (dirs, trees []string) { return system, systemTrees }

// sockets of agents and daemons that would lend their powers to whoever connects.
var sockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/run/podman", "/var/lib/incus/unix.socket", "/run/dbus", "/run/systemd"}

func daemonSockets() []string { return sockets }

// systemSecrets: all of Linux's are in secrets.
func systemSecrets() []string { return nil }

// fold: names that differ in case are two.
func fold(path string) string { return path }

// everyHome is what root reaches.
func everyHome() []string { return accounts("/etc/passwd") }

// accounts are the homes that passwd(5) names: root reaches them all.
func accounts(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var homes []string
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ":")
		if len(f) == 7 && strings.HasPrefix(f[5], "/home/") {
			homes = append(homes, canonical(f[5]))
		}
	}
	return homes
}
