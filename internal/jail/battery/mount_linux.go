package battery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mountProbes are attempts to show, uncover or unlock files by mounting. Trap 13: all of them work as root outside a cage.
func mountProbes() []Probe {
	var list []Probe
	add := func(name string, try func(*Scene) error) {
		list = append(list, Probe{Name: "mount/" + name, try: func(s *Scene) verdict { return errorVerdict(try(s), "done") }})
	}
	for _, fs := range []string{"tmpfs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs",
		"debugfs", "binfmt_misc"} {
		add("new-"+strings.ReplaceAll(fs, "_", "-"),
			func(s *Scene) error { return unix.Mount("none", s.Tmp, fs, 0, "") })
	}
	add("new-overlay", func(s *Scene) error {
		return unix.Mount("overlay", s.Tmp, "overlay", 0, "lowerdir="+s.RO+",upperdir="+s.Tmp+",workdir="+s.Home)
	})
	add("bind", func(s *Scene) error { return unix.Mount(s.RO, s.Tmp, "", unix.MS_BIND|unix.MS_REC, "") })
	add("bind-root", func(s *Scene) error { return unix.Mount("/", s.Tmp, "", unix.MS_BIND, "") })
	add("move", func(s *Scene) error { return unix.Mount(s.RO, s.Tmp, "", unix.MS_MOVE, "") })
	add("writable-place", func(s *Scene) error { return unix.Mount("", s.RO, "", unix.MS_REMOUNT|unix.MS_BIND, "") })
	add("writable-root", func(*Scene) error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") })
	add("executable-tmp", func(s *Scene) error { return unix.Mount("", s.Tmp, "", unix.MS_REMOUNT|unix.MS_BIND, "") })
	for name, flag := range map[string]uintptr{"shared": unix.MS_SHARED, "slave": unix.MS_SLAVE,
		"private": unix.MS_PRIVATE, "unbindable": unix.MS_UNBINDABLE} {
		add("make-"+name, func(*Scene) error { return unix.Mount("", "/", "", flag|unix.MS_REC, "") })
	}
	newAPI(add)
	return append(append(list, unmountProbes()...),
		Probe{Name: "mount/attributes", try: checkMountFlags, Full: "nothing is mounted"})
}

// newAPI adds the system calls of Linux 5.2 and later, which older deny-lists do not contain.
func newAPI(add func(name string, try func(*Scene) error)) {
	add("open-tree-clone", func(s *Scene) error {
		_, err := unix.OpenTree(unix.AT_FDCWD, s.RO, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		return err
	})
	add("open-tree-attr", func(s *Scene) error { // Linux 6.15
		const openTreeAttr = 467
		path, attr := cString(s.RO), unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		return syscallError(openTreeAttr, atCwd, uintptr(unsafe.Pointer(path)), unix.OPEN_TREE_CLONE,
			uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	})
	add("fsopen", func(*Scene) error { _, err := unix.Fsopen("tmpfs", 0); return err })
	add("fspick", func(s *Scene) error { _, err := unix.Fspick(unix.AT_FDCWD, s.Tmp, 0); return err })
	add("move-mount", func(s *Scene) error { return unix.MoveMount(unix.AT_FDCWD, s.RO, unix.AT_FDCWD, s.Tmp, 0) })
	add("clear-readonly", clearMountAttrs(unix.MOUNT_ATTR_RDONLY, func(s *Scene) string { return s.RO }))
	add("clear-noexec", clearMountAttrs(unix.MOUNT_ATTR_NOEXEC, func(s *Scene) string { return s.Tmp }))
	add("clear-root", clearMountAttrs(unix.MOUNT_ATTR_RDONLY, func(*Scene) string { return "/" }))
}

func clearMountAttrs(bits uint64, of func(*Scene) string) func(*Scene) error {
	return func(s *Scene) error {
		return unix.MountSetattr(unix.AT_FDCWD, of(s), 0, &unix.MountAttr{Attr_clr: bits})
	}
}

// unmountProbes try each flag of umount2(2) that can have an effect: if a mask is removed, a secret is visible.
func unmountProbes() []Probe {
	var list []Probe
	for _, t := range []struct {
		name string
		path func(*Scene) string
	}{
		{"mask", func(s *Scene) string { return filepath.Join(s.RO, Hidden) }},
		{"place", func(s *Scene) string { return s.RO }},
		{"tmp", func(s *Scene) string { return s.Tmp }},
		{"null", func(*Scene) string { return "/dev/null" }},
		{"proc", func(*Scene) string { return "/proc" }},
		{"proc-file", func(*Scene) string { return "/proc/kcore" }},
		{"root", func(*Scene) string { return "/" }},
	} {
		list = append(list, Probe{Name: "mount/unmount-" + t.name, try: func(s *Scene) verdict {
			var all verdictSeries
			for flag, name := range map[int]string{0: "plain", unix.MNT_DETACH: "detach", unix.MNT_EXPIRE: "expire",
				unix.UMOUNT_NOFOLLOW: "nofollow", unix.MNT_FORCE: "force"} {
				all.addVerdict(name, errorVerdict(unix.Unmount(t.path(s), flag), t.path(s)+" is gone"))
			}
			return all.overallVerdict()
		}})
	}
	return list
}

// checkMountFlags reads what each mount allows (statfs(2)).
func checkMountFlags(s *Scene) verdict {
	const inert = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	want := map[string]int64{"/": unix.ST_RDONLY | inert, s.Tmp: inert, s.Home: inert, s.RO: unix.ST_RDONLY | inert,
		s.RW:        inert,
		os.Args[0]:  unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV,
		s.Libc:      unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV,
		"/dev/null": unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NOEXEC, filepath.Join(s.RO,
			Hidden): unix.ST_RDONLY | inert}
	if s.Proc {
		want["/proc"] = unix.ST_RDONLY | inert
	}
	var missing []string
	for path, bits := range want {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return oddVerdict("%s: %v", path, err)
		}
		if st.Flags&bits != bits {
			missing = append(missing, fmt.Sprintf("%s lacks %#x", path, bits&^st.Flags))
		}
	}
	if len(missing) > 0 {
		return openVerdict("%s", strings.Join(missing, ", "))
	}
	return heldVerdict("%d mounts are as inert as they should be", len(want))
}

const atCwd = ^uintptr(99) // AT_FDCWD is -100

// cString returns a string in the form that system calls take.
func cString(s string) *byte { return &append([]byte(s), 0)[0] }
