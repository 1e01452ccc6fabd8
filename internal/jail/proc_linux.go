package jail

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// shownOfProc lists the entries that a cage's own /proc shows beside its processes, such as numbers by which programs
// size themselves. Everything else there tells of the host's kernel, hardware and keys (kcore, kallsyms, keys, cmdline,
// timer_list, bus, …): entries that are not listed here, including those that future kernels add, are covered.
var shownOfProc = []string{"self", "thread-self", "mounts", "net", "sys",
	"cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat"}

// coverProc covers the other entries of /proc, if the cage has one.
func (l *layout) coverProc() error {
	if !l.proc {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return layerUnavailable("proc-private", err)
	}
	null := l.binds["/dev/null"]
	for _, e := range entries {
		name := e.Name()
		if name[0] >= '0' && name[0] <= '9' || slices.Contains(shownOfProc, name) || e.Type()&os.ModeSymlink != 0 {
			continue
		}
		b := bind{source: "/dev/null", target: "/proc/" + name, layer: "proc-private", dev: null.dev, ino: null.ino,
			attrs: readOnly | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
		if e.IsDir() {
			b.source, b.dir, b.dev, b.ino, l.empty = emptyDir[1:], true, 0, 0, true
			b.attrs |= unix.MOUNT_ATTR_NODEV
		}
		l.binds[b.target] = b
	}
	return nil
}
