package battery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func dataProbes() []Probe {
	const covered = "without mounts nothing is covered: a place that holds a masked path is refused"
	list := []Probe{
		{Name: "data/secret", try: func(s *Scene) verdict { return tryRead(s.Secret) }},
		{Name: "data/secret-upwards", try: func(s *Scene) verdict { return tryRead(s.RO + "/../" + filepath.Base(s.Secret)) }},
		{Name: "data/secret-link", try: func(s *Scene) verdict { return tryRead(filepath.Join(s.RO, Link)) }},
		{Name: "data/secret-magic-link", try: func(s *Scene) verdict { return tryRead("/proc/self/root" + s.Secret) }},
		{Name: "data/secret-cwd", try: secretFromCwd},
		{Name: "data/masked", try: func(s *Scene) verdict { return tryRead(filepath.Join(s.RO, Hidden, Inner)) }, Full: covered},
		{Name: "data/masked-link", try: func(s *Scene) verdict { return tryRead(filepath.Join(s.RO, Way, Inner)) }, Full: covered},
		{Name: "data/masked-upwards", try: func(s *Scene) verdict { return tryRead(s.RO + "/./" + Way + "/../" + Hidden + "/" + Inner) }, Full: covered},
		{Name: "data/masked-chdir", try: maskedChdir, Full: covered},
		{Name: "data/masked-write", try: func(s *Scene) verdict { return tryCreate(filepath.Join(s.RW, Hidden, "new")) }, Full: covered},
		{Name: "data/masked-rename", try: maskedRename, Full: covered},
		{Name: "data/masked-holder-rename", try: maskedHolder, Full: covered},
		{Name: "data/homes", try: func(s *Scene) verdict { return checkDirEntries("/home", "bailey") }, Full: "names of directories, not what is in them"},
		{Name: "data/own-home-is-empty", try: func(s *Scene) verdict { return checkDirEntries(s.Home) }},
		{Name: "data/own-tmp-is-empty", try: func(s *Scene) verdict { return checkDirEntries(s.Tmp, firstComponent(s.Tmp, os.Args[0])) }},
		{Name: "data/handle", try: tryOpenByHandle},
		{Name: "data/descriptors", try: checkDescriptors, here: true},
		{Name: "data/inherited-directory", try: checkInheritedDirs, here: true},
		{Name: "data/streams", try: checkStdStreams, here: true},
		{Name: "data/environment", try: checkEnviron, here: true},
		{Name: "data/host-name", try: hostName, Full: "there is one host name without a namespace for it"},
		{Name: "data/kallsyms", try: checkKallsyms},
		{Name: "data/cgroup-path", try: cgroupPath},
	}
	for _, path := range []string{"/etc/shadow", "/etc/machine-id", "/etc/hostname", "/etc/ssh", "/root", "/var/lib", "/var/log", "/run", "/boot", "/opt", "/srv",
		"/sys/kernel", "/sys/fs/cgroup", "/sys/class/net", "/proc/kcore", "/proc/keys", "/proc/config.gz", "/proc/kmsg",
		"/proc/cmdline", "/proc/timer_list",
		"/proc/1/environ", "/proc/1/maps", "/proc/1/mem", "/proc/1/fd", "/proc/1/root", "/proc/1/cwd", "/proc/1/exe", "/proc/1/task/1/mem", "/proc/1/map_files"} {
		list = append(list, Probe{Name: "data/read" + strings.NewReplacer("/", "-", "_", "-").Replace(path), try: func(*Scene) verdict { return tryRead(path) }})
	}
	return list
}

// tryRead opens a file or directory and reads from it. If it is empty, it is a cover.
func tryRead(path string) verdict {
	f, err := os.Open(path)
	if err != nil {
		return errorVerdict(err, "", syscall.ELOOP)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		names, err := f.Readdirnames(-1)
		if err == nil && len(names) == 0 {
			return heldVerdict("%s is empty", path)
		}
		return errorVerdict(err, fmt.Sprintf("%s holds %s", path, strings.Join(names[:min(5, len(names))], " ")))
	}
	b := make([]byte, 64)
	n, err := f.Read(b)
	if n == 0 && (err == nil || err.Error() == "EOF") {
		return heldVerdict("%s is empty", path)
	}
	if errors.Is(err, syscall.EIO) { // /proc/1/mem is open, but no memory is mapped at address zero
		err = nil
	}
	return errorVerdict(err, fmt.Sprintf("%s reads %q", path, b[:n]))
}

func secretFromCwd(s *Scene) verdict {
	if err := os.Chdir(s.RO); err != nil {
		return oddVerdict("%v", err)
	}
	up := strings.Repeat("../", 40)
	return tryRead("/proc/self/cwd/" + up + s.Secret[1:])
}

func maskedChdir(s *Scene) verdict {
	if err := os.Chdir(filepath.Join(s.RO, Hidden)); err != nil {
		return errorVerdict(err, "")
	}
	return tryRead(Inner)
}

// maskedRename moves a mask away from the path that it covers.
func maskedRename(s *Scene) verdict {
	from, to := filepath.Join(s.RW, Hidden), filepath.Join(s.RW, "moved-mask")
	if err := os.Rename(from, to); err != nil {
		return errorVerdict(err, "", syscall.EBUSY)
	}
	return openVerdict("%s became %s", from, to)
}

// maskedHolder moves a directory that contains a masked one: in the next cage the mask would cover a path that does not
// exist, and the secret would have another path without a mask.
func maskedHolder(s *Scene) verdict {
	from, to := filepath.Join(s.RW, Holder), filepath.Join(s.RW, "moved-holder")
	if err := os.Rename(from, to); err != nil {
		return errorVerdict(err, "", syscall.EBUSY)
	}
	return openVerdict("%s became %s, and what it holds lies beneath no mask from now on", from, to)
}

// firstComponent returns the first name on the way from dir to path: the entry that the cage itself shows there.
func firstComponent(dir, path string) string {
	rest, _ := strings.CutPrefix(path, dir+"/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// checkDirEntries lists unexpected entries of a directory.
func checkDirEntries(dir string, expected ...string) verdict {
	list, err := os.ReadDir(dir)
	if err != nil {
		return errorVerdict(err, "")
	}
	for _, e := range list {
		if !slices.Contains(expected, e.Name()) && !strings.HasPrefix(e.Name(), "battery-") {
			return openVerdict("%s holds %s", dir, e.Name())
		}
	}
	return heldVerdict("%s holds nothing else", dir)
}

// tryOpenByHandle guesses the root of the filesystem of a place by its inode, 2 on ext4 (the container escape known as shocker).
func tryOpenByHandle(s *Scene) verdict {
	at, err := unix.Open(s.RO, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return oddVerdict("%v", err)
	}
	const ino32Gen = 1 // FILEID_INO32_GEN
	id := binary.LittleEndian.AppendUint32(nil, 2)
	_, err = unix.OpenByHandleAt(at, unix.NewFileHandle(ino32Gen, append(id, 0, 0, 0, 0)), unix.O_RDONLY)
	return errorVerdict(err, "a file by its handle", syscall.ESTALE)
}

// checkDescriptors expects only the three streams (trap 4). Descriptors that the Go runtime opens for itself have no file
// type.
func checkDescriptors(*Scene) verdict {
	for fd := 3; fd < 4096; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT != 0 {
			return openVerdict("descriptor %d, mode %o", fd, st.Mode)
		}
	}
	return heldVerdict("none above 2")
}

// checkInheritedDirs looks for a directory of the host that stayed open: it would be a hole in every mount namespace (trap 4).
func checkInheritedDirs(s *Scene) verdict {
	for fd := 3; fd < 4096; fd++ {
		if secret, err := unix.Openat(fd, s.Secret[1:], unix.O_RDONLY, 0); err == nil {
			unix.Close(secret)
			return openVerdict("%s by descriptor %d", s.Secret, fd)
		}
	}
	return heldVerdict("no descriptor leads there")
}

// checkStdStreams expects pipes or /dev/null: a terminal accepts TIOCSTI, a socket passes descriptors, a directory leads
// outside.
func checkStdStreams(*Scene) verdict {
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return oddVerdict("descriptor %d: %v", fd, err)
		}
		null := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
		if st.Mode&unix.S_IFMT != unix.S_IFIFO && !null {
			return openVerdict("descriptor %d has mode %o", fd, st.Mode)
		}
	}
	return heldVerdict("pipes and /dev/null")
}

// checkEnviron expects only variables that the cage or the manifest sets (traps 4 and 12).
func checkEnviron(s *Scene) verdict {
	allowed := append([]string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", Env}, s.Lent...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(allowed, name) {
			return openVerdict("%s is set", name)
		}
	}
	return heldVerdict("only %d known names", len(os.Environ()))
}

func hostName(s *Scene) verdict {
	name, err := os.Hostname()
	if err != nil || name == s.HostName {
		return errorVerdict(err, "the host is called "+name)
	}
	return heldVerdict("it is called %s", name)
}

// checkKallsyms reveals where the kernel is in memory if it shows an address other than zero.
func checkKallsyms(*Scene) verdict {
	b := make([]byte, 16)
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return errorVerdict(err, "")
	}
	defer f.Close()
	if n, _ := f.Read(b); n == 0 || strings.Trim(string(b[:n]), "0") == "" {
		return heldVerdict("no address")
	}
	return openVerdict("the kernel begins at %s", b)
}

// cgroupPath expects every group of the cage to be a root.
func cgroupPath(*Scene) verdict {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return errorVerdict(err, "")
	}
	for line := range strings.Lines(string(b)) {
		if path := line[strings.LastIndex(line, ":")+1:]; path != "/\n" {
			return openVerdict("a group of the host's: %s", strings.TrimSpace(line))
		}
	}
	return heldVerdict("every group is a root")
}
