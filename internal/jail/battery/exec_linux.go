package battery

import (
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// execProbes are attempts to run programs that are not pinned. If a probe succeeds, its process becomes the other program,
// which reports it. Making anonymous memory executable is not such an attempt: just-in-time compilers do it.
func execProbes() []Probe {
	const copyable = "no mount is noexec, and what can be read can be copied into anonymous memory"
	file := func(name string, path func(*Scene) string) Probe {
		return Probe{Name: "exec/" + name, try: func(s *Scene) verdict { return tryExec(path(s)) }}
	}
	in := func(dir func(*Scene) string, name string) func(*Scene) string {
		return func(s *Scene) string { return filepath.Join(dir(s), name) }
	}
	ro, rw := func(s *Scene) string { return s.RO }, func(s *Scene) string { return s.RW }
	list := []Probe{
		file("place-readonly", in(ro, Tool)),
		file("place-writable", in(rw, Tool)),
		file("script", in(ro, Script)),
		file("library", func(s *Scene) string { return s.Libc }),
		{Name: "exec/copy-in-tmp", try: func(s *Scene) verdict { return tryExecCopy(s.Tmp) }},
		{Name: "exec/copy-in-home", try: func(s *Scene) verdict { return tryExecCopy(s.Home) }},
		{Name: "exec/copy-in-place", try: func(s *Scene) verdict { return tryExecCopy(s.RW) }},
		{Name: "exec/hard-link", try: hardLink},
		{Name: "exec/deleted", try: tryExecDeleted},
		{Name: "exec/memfd", try: execMemfdProbe(byDescriptor)},
		{Name: "exec/memfd-by-proc", try: execMemfdProbe(func(fd int) verdict { return tryExec("/proc/self/fd/" + formatInt(fd)) })},
		{Name: "exec/unnamed-file", try: func(s *Scene) verdict { return tryExecTmpfile(s.Tmp) }},
		{Name: "exec/unnamed-file-in-place", try: func(s *Scene) verdict { return tryExecTmpfile(s.RW) }},
		{Name: "exec/descriptor", try: func(s *Scene) verdict { return tryWithFD(filepath.Join(s.RO, Tool), byDescriptor) }},
		{Name: "exec/descriptor-by-proc", try: func(s *Scene) verdict {
			return tryWithFD(filepath.Join(s.RO, Tool),
				func(fd int) verdict { return tryExec("/proc/self/fd/" + formatInt(fd)) })
		}},
		// The loader is a program that runs any file that it can read (traps 6 and 18).
		{Name: "exec/loader-place-readonly", try: func(s *Scene) verdict { return tryLoader(s, s.Loader, filepath.Join(s.RO, True)) }},
		{Name: "exec/loader-place-writable", try: func(s *Scene) verdict { return tryLoader(s, s.Loader, filepath.Join(s.RW, True)) }},
		{Name: "exec/loader-tmp", try: loaderTmp},
		{Name: "exec/loader-preload", try: func(s *Scene) verdict { return tryLoader(s, s.Loader, "--preload", filepath.Join(s.RO, Lib), s.Helper) }},
		{Name: "exec/preload", try: func(s *Scene) verdict { return tryPreload(s, "LD_PRELOAD="+filepath.Join(s.RO, Lib)) }},
		{Name: "exec/audit", try: func(s *Scene) verdict { return tryPreload(s, "LD_AUDIT="+filepath.Join(s.RO, Lib)) }},
		{Name: "exec/library-path", try: libraryPath},
		{Name: "exec/map-place", try: func(s *Scene) verdict { return tryMapExec(filepath.Join(s.RO, Lib)) }, Full: copyable},
		{Name: "exec/map-tmp", try: func(s *Scene) verdict { return mappedCopy(s.Tmp, tryMapExec) }, Full: copyable},
		{Name: "exec/map-then-protect", try: func(s *Scene) verdict { return tryProtectExec(filepath.Join(s.RO, Lib)) }, Full: copyable},
		{Name: "exec/protect-tmp", try: func(s *Scene) verdict { return mappedCopy(s.Tmp, tryProtectExec) }, Full: copyable},
		{Name: "exec/set-id-in-place", try: setID},
	}
	for _, path := range []string{"/bin/sh", "/bin/bash", "/usr/bin/python3", "/usr/bin/perl", "/bin/busybox",
		"/usr/bin/env", "/usr/bin/sudo", "/usr/bin/newuidmap", "/bin/mount"} {
		list = append(list, file("host-"+filepath.Base(path), func(*Scene) string { return path }))
	}
	return list
}

var noopArgs = []string{"battery", "noop"}

// tryExec executes a file in this process, so it returns only if that was refused. A program other than the battery ends
// with an error because of this argument: the runner calls that odd.
func tryExec(path string) verdict {
	return errorVerdict(syscall.Exec(path, noopArgs, os.Environ()), "", syscall.ELOOP)
}

func byDescriptor(fd int) verdict {
	argv, _ := syscall.SlicePtrFromStrings(noopArgs)
	envv, _ := syscall.SlicePtrFromStrings(os.Environ())
	_, err := doSyscall(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(cString(""))), uintptr(unsafe.Pointer(&argv[0])),
		uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH)
	if err == syscall.ETXTBSY { // every check of the cage comes before this error: the file is still open for writing
		err = nil
	}
	return errorVerdict(err, "it may be executed")
}

func tryWithFD(path string, do func(fd int) verdict) verdict {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return errorVerdict(err, "")
	}
	return do(fd)
}

// copyExecutable copies a file into a directory and makes it executable.
func copyExecutable(from, dir string) (string, error) {
	b, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "battery-"+filepath.Base(from))
	os.Remove(to)
	return to, os.WriteFile(to, b, 0o755)
}

func tryExecCopy(dir string) verdict {
	path, err := copyExecutable(os.Args[0], dir)
	if err != nil {
		return oddVerdict("%v", err)
	}
	return tryExec(path)
}

// hardLink links the tool's own file, which may be executed, into a place outside its read-only mount.
func hardLink(s *Scene) verdict {
	to := filepath.Join(s.RW, "linked")
	if err := os.Link(os.Args[0], to); err != nil {
		return errorVerdict(err, "", syscall.EXDEV)
	}
	return openVerdict("%s is the tool's file", to)
}

func tryExecDeleted(s *Scene) verdict {
	path, err := copyExecutable(os.Args[0], s.Tmp)
	if err != nil {
		return oddVerdict("%v", err)
	}
	return tryWithFD(path, func(fd int) verdict { os.Remove(path); return byDescriptor(fd) })
}

// execMemfdProbe tests the way around noexec mounts (trap 6).
func execMemfdProbe(run func(fd int) verdict) func(*Scene) verdict {
	return func(*Scene) verdict {
		fd, err := unix.MemfdCreate("battery", 0)
		if err != nil {
			return errorVerdict(err, "")
		}
		return fillAndRun(fd, run)
	}
}

// fillAndRun writes the tool into a new file and runs it from a descriptor that cannot write.
func fillAndRun(fd int, run func(fd int) verdict) verdict {
	b, err := os.ReadFile(os.Args[0])
	if err == nil {
		_, err = os.NewFile(uintptr(fd), "file").Write(b)
	}
	if err != nil {
		return oddVerdict("%v", err)
	}
	if reopened, err := unix.Open("/proc/self/fd/"+formatInt(fd), unix.O_RDONLY, 0); err == nil {
		unix.Close(fd)
		return run(reopened)
	}
	return run(fd) // without /proc it stays open for writing: ETXTBSY comes after the permission check
}

func tryExecTmpfile(dir string) verdict {
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE, 0o755)
	if err != nil {
		return errorVerdict(err, "")
	}
	return fillAndRun(fd, byDescriptor)
}

// tryMapExec maps the bytes of a file as instructions.
func tryMapExec(path string) verdict {
	return tryWithFD(path, func(fd int) verdict {
		_, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
		return errorVerdict(err, path+" is mapped executable")
	})
}

func tryProtectExec(path string) verdict {
	return tryWithFD(path, func(fd int) verdict {
		b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			return oddVerdict("%v", err)
		}
		return trySyscall(path+" became executable", unix.SYS_MPROTECT, uintptr(unsafe.Pointer(&b[0])), 4096,
			unix.PROT_READ|unix.PROT_EXEC)
	})
}

func mappedCopy(dir string, try func(string) verdict) verdict {
	path, err := copyExecutable(os.Args[0], dir)
	if err != nil {
		return oddVerdict("%v", err)
	}
	return try(path)
}

// setID leaves a set-id program for users outside, or runs it itself.
func setID(s *Scene) verdict {
	path, err := copyExecutable(os.Args[0], s.RW)
	if err != nil {
		return oddVerdict("%v", err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
		return errorVerdict(err, "")
	}
	return tryExec(path)
}
