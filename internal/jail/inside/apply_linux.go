package inside

import (
	"syscall"
	"unsafe"
)

// applyStep carries out one step. After Exec it returns the pid of the tool.
func applyStep(s Step) (tool int, errno syscall.Errno) {
	if len(s.S) < minStrings[s.Op&63] || len(s.N) < minNumbers[s.Op&63] {
		return 0, syscall.EBADMSG
	}
	switch s.Op {
	case Unshare:
		return 0, errnoOf(syscall.Unshare(int(s.N[0])))
	case Undump:
		return 0, rawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	case Signals:
		return 0, resetSignals()
	case Private:
		return 0, errnoOf(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	case Tmpfs, Fresh:
		return 0, errnoOf(syscall.Mount("tmpfs", s.S[0], "tmpfs", uintptr(s.N[0]), s.S[1]))
	case Proc:
		return 0, errnoOf(syscall.Mount("proc", s.S[0], "proc", uintptr(s.N[0]), s.S[1]))
	case Terminals:
		return 0, errnoOf(syscall.Mount("devpts", s.S[0], "devpts", uintptr(s.N[0]), s.S[1]))
	case Enter:
		return 0, errnoOf(syscall.Chdir(s.S[0]))
	case Dir:
		return 0, errnoOf(syscall.Mkdir(s.S[0], uint32(s.N[0])))
	case File:
		return 0, writeNewFile(s.S[0], s.S[1], uint32(s.N[0]))
	case Link:
		return 0, errnoOf(syscall.Symlink(s.S[1], s.S[0]))
	case Bind:
		return 0, bindMount(s.S[0], s.S[1], s.N[0], s.N[1], s.N[2])
	case Donated:
		fd, e := donatedFD(s.N[0])
		if e != 0 {
			return 0, e
		}
		return 0, attachMount(uintptr(fd), s.S[1])
	case Copy, Lend:
		fd, e := donatedFD(s.N[0])
		if e != 0 {
			return 0, e
		}
		return 0, copyIn(fd, s.S[1], uint32(s.N[1]), int64(s.N[2]))
	case Seal:
		return 0, addMountAttrs(fdcwd, s.S[0], 0, s.N[0])
	case Pivot:
		return 0, pivotRoot()
	case Loopback:
		return 0, bringUpLoopback()
	case Listen:
		return 0, offerListener(s)
	}
	return applyRestriction(s)
}

// minStrings and numbers hold the minimum number of strings and numbers of each operation.
var minStrings = [64]int{Tmpfs: 2, Fresh: 2, Proc: 2, Enter: 1, Dir: 1, File: 2, Link: 2, Bind: 2, Donated: 2, Copy: 2,
	Lend: 2, Seal: 1, Host: 1, Chdir: 1, Exec: 2, Rule: 1,
	Reach: 1, Grant: 1, Become: 2, Listen: 1, Terminals: 2}
var minNumbers = [64]int{Tmpfs: 1, Fresh: 1, Proc: 1, Dir: 1, File: 1, Bind: 3, Donated: 1, Copy: 3, Lend: 3, Seal: 1,
	Rlimit: 3, Securebits: 1, Umask: 1, Exec: 2, Filter: 1, Ruleset: 3, Rule: 1, Unshare: 1,
	Ids: 2, Reach: 1, Grant: 4, Home: 1, Tasks: 2, Become: 2, Listen: 3, Terminals: 1}

// bindMount clones the tree at source and attaches it at target. The source must be the very file that the plan names: if
// the name leads through a symlink, or to another file by now, bind returns ELOOP or ESTALE.
func bindMount(source, target string, dev, ino, attrs uint64) syscall.Errno {
	fd, e := openPath(source)
	if e != 0 {
		return e
	}
	if e := checkIdentity(fd, dev, ino); e != 0 {
		return e
	}
	// Recursive, since mounts inherited by a less privileged mount namespace are locked together, and the kernel shows
	// none of them without those that cover it (mount_namespaces(7)).
	tree, e := call6(sysOpenTree, fd, uintptr(unsafe.Pointer(&emptyPath)),
		treeClone|atRecursive|atEmptyPath|syscall.O_CLOEXEC, 0, 0, 0)
	syscall.Close(int(fd))
	if e != 0 {
		return e
	}
	if e := addMountAttrs(tree, "", atEmptyPath|atRecursive, attrs); e != 0 {
		return e
	}
	return attachMount(tree, target)
}

// checkIdentity returns ESTALE if fd is not the file that the plan names. A zero inode names no file.
func checkIdentity(fd uintptr, dev, ino uint64) syscall.Errno {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return errnoOf(err)
	}
	if ino != 0 && (uint64(st.Dev) != dev || st.Ino != ino) {
		return syscall.ESTALE
	}
	return 0
}

// attachMount moves a detached mount onto target and closes it.
func attachMount(tree uintptr, target string) syscall.Errno {
	at, e := openPath(target)
	if e != 0 {
		return e
	}
	_, e = call6(sysMoveMount, tree, uintptr(unsafe.Pointer(&emptyPath)), at, uintptr(unsafe.Pointer(&emptyPath)),
		moveFromFD|moveToFD, 0)
	syscall.Close(int(at))
	syscall.Close(int(tree))
	return e
}

// pivotRoot makes the current directory the root. The old root is then mounted on top of it and is detached (pivot_root(2),
// "pivot_root(".", ".")").
func pivotRoot() syscall.Errno {
	dot := []byte{'.', 0}
	if e := rawSyscall(syscall.SYS_PIVOT_ROOT, uintptr(unsafe.Pointer(&dot[0])), uintptr(unsafe.Pointer(&dot[0])),
		0); e != 0 {
		return e
	}
	if e := errnoOf(syscall.Unmount(".", syscall.MNT_DETACH)); e != 0 {
		return e
	}
	return errnoOf(syscall.Chdir("/"))
}

// changeDir enters a directory of the cage and follows no symlink on the way.
func changeDir(path string) syscall.Errno {
	fd, e := openPath(path)
	if e != 0 {
		return e
	}
	defer syscall.Close(int(fd))
	return errnoOf(syscall.Fchdir(int(fd)))
}

// writeNewFile writes a new file.
func writeNewFile(path, content string, mode uint32) syscall.Errno {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, mode)
	if err != nil {
		return errnoOf(err)
	}
	defer syscall.Close(fd)
	if content == "" {
		return 0
	}
	n, err := syscall.Write(fd, []byte(content))
	if err == nil && n != len(content) {
		return syscall.ENOSPC
	}
	return errnoOf(err)
}

// copyIn writes a new file of size bytes with the content of a donated descriptor. It reads at offsets, since other
// holders of the same file share the position.
func copyIn(from int, path string, mode uint32, size int64) syscall.Errno {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, mode)
	if err != nil {
		return errnoOf(err)
	}
	defer syscall.Close(fd)
	for at := int64(0); at < size; {
		n, err := syscall.Sendfile(fd, from, &at, int(min(size-at, 1<<30)))
		if err != nil && err != syscall.EINTR {
			return errnoOf(err)
		}
		if n == 0 && err == nil {
			return syscall.ESTALE // the file became shorter
		}
	}
	return 0
}

// openPath returns an O_PATH descriptor, following no symlink anywhere in path.
func openPath(path string) (uintptr, syscall.Errno) {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return 0, syscall.EINVAL
	}
	how := [3]uint64{oPath | syscall.O_CLOEXEC, 0, noSymlinks | noMagicLinks}
	return call6(sysOpenat2, fdcwd, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
}

// addMountAttrs adds mount attributes. It never clears one: those that the host set remain.
func addMountAttrs(fd uintptr, path string, flags uintptr, attrs uint64) syscall.Errno {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return syscall.EINVAL
	}
	attr := [4]uint64{attrs, 0, 0, 0}
	_, e := call6(sysMountSetattr, fd, uintptr(unsafe.Pointer(p)), flags, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr), 0)
	return e
}

// bringUpLoopback brings up the only interface of a new network namespace. Its addresses come with it (netdevice(7)).
func bringUpLoopback() syscall.Errno {
	const setFlags, up, running = 0x8914, 0x1, 0x40 // SIOCSIFFLAGS, IFF_UP, IFF_RUNNING
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer syscall.Close(fd)
	request := struct { // ifreq
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: up | running}
	copy(request.name[:], "lo")
	return rawSyscall(syscall.SYS_IOCTL, uintptr(fd), setFlags, uintptr(unsafe.Pointer(&request)))
}

// offerListener makes a listening socket in the cage and passes it to the gateway: a socket stays in the namespace in which it
// was made, whichever process holds it. The cage keeps no descriptor of it, so no process in the cage answers
// connections.
func offerListener(s Step) syscall.Errno {
	family, address := syscall.AF_INET, syscall.Sockaddr(nil)
	if path := s.S[0]; path != "" {
		family, address = syscall.AF_UNIX, &syscall.SockaddrUnix{Name: path}
	} else {
		a := s.N[1]
		address = &syscall.SockaddrInet4{Port: int(s.N[2]),
			Addr: [4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, address); err != nil {
		return errnoOf(err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		return errnoOf(err)
	}
	head := put32(put32([]byte{Socketed}, uint32(s.N[0])), 0)
	return errnoOf(syscall.Sendmsg(Socket, head, syscall.UnixRights(fd), nil, 0))
}

// backlog is the number of connections that may wait for the gateway, which accepts them as soon as it can.
const backlog = 1024
