package workspace

import (
	"os"
	"strings"
)

// system lists directories that cannot be a workspace themselves. systemTrees lists trees that belong to the system.
var (
	system      = []string{"/", "/home", "/opt", "/srv", "/var", "/var/lib", "/usr", "/usr/local", "/mnt", "/media", "/run"}
	systemTrees = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/include", "/usr/share"}
)

func systemDirs() (dirs, trees []string) { return system, systemTrees }

// sockets lists the sockets of daemons and agents that give their privileges to any client.
var sockets = []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/run/podman", "/var/lib/incus/unix.socket", "/run/dbus", "/run/systemd"}

func daemonSockets() []string { return sockets }

// systemSecrets returns nil: secrets has all the paths that Linux needs.
func systemSecrets() []string { return nil }

// fold changes nothing: names that differ in case are different files.
func fold(path string) string { return path }

func everyHome() []string { return accounts("/etc/passwd") }

// accounts returns the home directories in a file in passwd(5) format. Root can reach all of them.
func accounts(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var homes []string
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ":")
		if len(f) == 7 && strings.HasPrefix(f[5], "/home/") {
			homes = append(homes, Canonical(f[5]))
		}
	}
	return homes
}
