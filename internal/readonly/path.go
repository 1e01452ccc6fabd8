package readonly

import (
	"path"
	"slices"
	"strings"
)

// harmlessDevices may be read. Any other device can block or act when it is opened, for example /dev/watchdog.
var harmlessDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin"}

// actingFiles are files and directories below which reading has an effect: it consumes kernel messages or trace events.
var actingFiles = []string{"/proc/kmsg", "/sys/kernel/debug", "/sys/kernel/tracing"}

// checkRead refuses a file of which reading acts.
func checkRead(name string) *refusal {
	clean := name
	if strings.Contains(name, "//") || strings.Contains(name, "/.") {
		clean = path.Clean(name)
	}
	if isBelow(clean, "/dev") && !slices.Contains(harmlessDevices, clean) {
		return newRefusal("Read /dev/null, /dev/zero or a regular file. ls and stat show a device.",
			"opening the device %s can act or block", name)
	}
	for _, f := range actingFiles {
		if isBelow(clean, f) {
			return newRefusal("Use dmesg or journalctl.", "reading %s changes the state of the kernel", name)
		}
	}
	return checkName(name)
}

// checkName refuses a file of which even the metadata is not free of effects: the automounter mounts names below /net.
func checkName(name string) *refusal {
	if isBelow(path.Clean(name), "/net") {
		return newRefusal("findmnt lists the mounted file systems.", "reading %s mounts a remote file system", name)
	}
	return nil
}

func isBelow(name, dir string) bool {
	return strings.HasPrefix(name, dir) && (len(name) == len(dir) || name[len(dir)] == '/')
}
