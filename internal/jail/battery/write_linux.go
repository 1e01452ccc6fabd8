package battery

import (
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writeProbes are attempts to change files that may only be read: a place, the tool, the cage's own root.
func writeProbes() []Probe {
	in := func(name string) func(*Scene) string {
		return func(s *Scene) string { return filepath.Join(s.RO, name) }
	}
	note := in(Note)
	one := func(name string, path func(*Scene) string, try func(string) error) Probe {
		return Probe{Name: "data/readonly-" + name, try: func(s *Scene) verdict { p := path(s); return errorVerdict(try(p), p+" was changed") }}
	}
	return []Probe{
		one("write", note, openWithFlags(unix.O_WRONLY)),
		one("append", note, openWithFlags(unix.O_WRONLY|unix.O_APPEND)),
		one("truncating-open", note, openWithFlags(unix.O_RDONLY|unix.O_TRUNC)),
		one("truncate", note, func(p string) error { return os.Truncate(p, 0) }),
		one("create", in("new-create"), openWithFlags(unix.O_WRONLY|unix.O_CREAT)),
		one("unnamed-file", in("."), openWithFlags(unix.O_RDWR|unix.O_TMPFILE)),
		one("rename", note, func(p string) error { return os.Rename(p, p+".old") }),
		one("hard-link", note, func(p string) error { return os.Link(p, p+".link") }),
		one("symlink", in("new-symlink"), func(p string) error { return os.Symlink("x", p) }),
		one("unlink", note, os.Remove),
		one("mkdir", in("new-mkdir"), func(p string) error { return os.Mkdir(p, 0o755) }),
		one("mkfifo", in("new-mkfifo"), func(p string) error { return unix.Mkfifo(p, 0o644) }),
		one("chmod", note, func(p string) error { return os.Chmod(p, 0o777) }),
		one("chown", note, func(p string) error { return os.Chown(p, os.Getuid(), os.Getgid()) }),
		one("times", note, func(p string) error { return unix.UtimesNano(p, make([]unix.Timespec, 2)) }),
		one("attribute", note, func(p string) error { return unix.Setxattr(p, "user.battery", []byte("x"), 0) }),
		one("flags", note, setNoDump),
		one("descriptor-reopened", note, reopenWritable),
		one("fchmod", note, func(p string) error { return withFD(p, func(fd int) error { return unix.Fchmod(fd, 0o777) }) }),
		{Name: "data/readonly-shared-mapping", try: sharedMapping},
		// A FIFO in a read-only mount can be opened for writing: its reader outside would get the data.
		one("fifo", in(Pipe), openWithFlags(unix.O_WRONLY|unix.O_NONBLOCK)),
		// The owner of a place owns every file made there, so a program with this bit would run as that user for every
		// user.
		{Name: "data/set-id", try: setIDBit},
		{Name: "data/tool-write", try: func(s *Scene) verdict { return tryReplaceFile(os.Args[0]) }},
		{Name: "data/helper-write", try: func(s *Scene) verdict { return tryReplaceFile(s.Helper) }},
		{Name: "data/library-write", try: func(s *Scene) verdict { return tryReplaceFile(s.Libc) }},
		{Name: "data/root-write", try: func(*Scene) verdict { return tryCreate("/battery-new") }},
		{Name: "data/etc-write", try: func(*Scene) verdict { return tryReplaceFile("/etc/passwd") }},
		{Name: "data/dev-write", try: func(*Scene) verdict { return tryCreate("/dev/battery-new") }},
		{Name: "data/device-mode", try: func(*Scene) verdict { return errorVerdict(os.Chmod("/dev/null", 0o600), "the mode of /dev/null") }},
	}
}

// openWithFlags tries to open a file and closes it again.
func openWithFlags(flags int) func(string) error {
	return func(path string) error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// withFD calls do with a descriptor that was opened for reading.
func withFD(path string, do func(fd int) error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

// tryReplaceFile tries to replace a file: to write it, to make it writable, to put another in its place. If the program runs,
// the error is ETXTBSY, which does not come from the cage.
func tryReplaceFile(path string) verdict {
	var s verdictSeries
	s.addVerdict("write", errorVerdict(openWithFlags(unix.O_WRONLY)(path), "opened "+path))
	s.addVerdict("chmod", errorVerdict(os.Chmod(path, 0o777), "the mode of "+path))
	s.addVerdict("rename", errorVerdict(os.Rename(path, path+".old"), "the name of "+path, syscall.EBUSY, syscall.EXDEV))
	s.addVerdict("unlink", errorVerdict(os.Remove(path), "removed "+path, syscall.EBUSY))
	return s.overallVerdict()
}

func tryCreate(path string) verdict {
	return errorVerdict(openWithFlags(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)(path), path+" was made")
}

// setNoDump sets the attribute "no dump", which needs ownership but no privilege (ioctl_iflags(2)).
func setNoDump(path string) error {
	return withFD(path, func(fd int) error {
		const noDump = 0x40
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, noDump)
	})
}

// reopenWritable uses /proc to turn a descriptor for reading into one for writing.
func reopenWritable(path string) error {
	return withFD(path, func(fd int) error {
		return openWithFlags(unix.O_RDWR)("/proc/self/fd/" + formatInt(fd))
	})
}

func setIDBit(s *Scene) verdict {
	path := filepath.Join(s.RW, "battery-set-id")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		return oddVerdict("%v", err)
	}
	defer os.Remove(path)
	var all verdictSeries
	all.addVerdict("set-uid", errorVerdict(unix.Chmod(path, 0o4755), "a program that is its owner"))
	all.addVerdict("set-gid", errorVerdict(unix.Chmod(path, 0o2755), "a program that is its group"))
	fd, err := unix.Open(path+"-new", unix.O_CREAT|unix.O_WRONLY, 0o4755)
	var st unix.Stat_t
	if err == nil && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_ISUID == 0 {
		err = unix.EPERM
	}
	os.Remove(path + "-new")
	all.addVerdict("made", errorVerdict(err, "a program that is its owner"))
	return all.overallVerdict()
}

// sharedMapping makes the mapping of a file that was opened for reading writable.
func sharedMapping(s *Scene) verdict {
	err := withFD(filepath.Join(s.RO, Note), func(fd int) error {
		b, err := unix.Mmap(fd, 0, 4, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		_, err = doSyscall(unix.SYS_MPROTECT, uintptr(unsafe.Pointer(&b[0])), 4096, unix.PROT_READ|unix.PROT_WRITE)
		return err
	})
	return errorVerdict(err, "a writable mapping")
}
