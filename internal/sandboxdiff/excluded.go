package sandboxdiff

import (
	"path"
	"strings"
)

// excluded are the paths that no inventory has, with everything below them, by reason. An entry with * is a pattern of
// path.Match; the other entries are paths.
var excluded = []struct {
	reason string
	paths  []string
}{
	{"the kernel's, or temporary", []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/run",
		"/var/lock",
		"/lost+found"}},
	{"the identity of one machine, which every clone gets anew", []string{"/etc/machine-id", "/etc/hostname",
		"/etc/resolv.conf", "/etc/mtab", "/etc/adjtime", "/etc/ssh/ssh_host_*", "/var/lib/dbus", "/var/lib/systemd",
		"/var/lib/urandom", "/var/lib/private"}},
	{"logs, mail and caches", []string{"/var/cache", "/var/log", "/var/mail", "/var/backups", "/root/.cache",
		"/home/*/.cache", "/root/.ansible", "/home/*/.ansible", "/etc/ld.so.cache", "/etc/udev/hwdb.bin",
		"/usr/lib/udev/hwdb.bin", "/usr/share/info/dir", "/usr/lib/*/gconv/gconv-modules.cache", "/boot/initrd.img*",
		"/boot/grub/grub.cfg", "/usr/lib/modules/*/modules.*", "/var/spool/*"}},
	{"histories of shells and editors", []string{"/root/.*_history", "/home/*/.*_history", "/root/.lesshst",
		"/home/*/.lesshst", "/root/.viminfo", "/home/*/.viminfo", "/root/.wget-hsts", "/home/*/.wget-hsts"}},
	{"listed as packages", []string{"/var/lib/dpkg", "/var/lib/apt", "/var/lib/ucf", "/var/lib/pam", "/usr/lib/apk/db",
		"/lib/apk/db", "/etc/apk/world", "/var/lib/shells.state"}},
	{"listed as users and groups", []string{"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/subuid",
		"/etc/subgid", "/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-",
		"/etc/.pwd.lock"}},
}

// isExcluded says whether a path is not compared. Its parents are not excluded.
func isExcluded(name string) bool {
	if name == "/var/spool/cron" {
		return false
	}
	base := path.Base(name)
	if base == "__pycache__" || strings.HasSuffix(base, ".pyc") { // Python writes them when a program runs
		return true
	}
	for _, e := range excluded {
		for _, p := range e.paths {
			if p == name {
				return true
			}
			if strings.Contains(p, "*") {
				if ok, err := path.Match(p, name); ok && err == nil {
					return true
				}
			}
		}
	}
	return false
}
