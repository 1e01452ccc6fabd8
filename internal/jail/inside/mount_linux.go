package inside

import (
	"syscall"
	"unsafe"
)

// bindMount clones the tree at source and attaches it at target. The source must be the very file that the plan names: if
// the name leads through a symlink, or to another file by now, bind returns ELOOP or ESTALE.
func bindMount(source, target string, dev, ino, attrs uint64) syscall.Errno {
	fd, e := openPath(source)
	if e != 0 {
		return e
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return errnoOf(err)
	}
	if ino != 0 && (uint64(st.Dev) != dev || st.Ino != ino) {
		return syscall.ESTALE
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
