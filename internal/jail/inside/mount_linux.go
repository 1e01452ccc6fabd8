package inside

import (
	"syscall"
	"unsafe"
)

// bind clones the tree at source and attaches it at target. The source must be the very file that the plan names: if
// the name leads through a symlink, or to another file by now, bind returns ELOOP or ESTALE.
func bind(source, target string, dev, ino, attrs uint64) syscall.Errno {
	fd, e := open(source)
	if e != 0 {
		return e
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return number(err)
	}
	if ino != 0 && (uint64(st.Dev) != dev || st.Ino != ino) {
		return syscall.ESTALE
	}
	// Recursive, since mounts inherited by a less privileged mount namespace are locked together, and the kernel shows
	// none of them without those that cover it (mount_namespaces(7)).
	tree, e := call6(sysOpenTree, fd, uintptr(unsafe.Pointer(&empty)),
		treeClone|atRecursive|atEmptyPath|syscall.O_CLOEXEC, 0, 0, 0)
	syscall.Close(int(fd))
	if e != 0 {
		return e
	}
	if e := setattr(tree, "", atEmptyPath|atRecursive, attrs); e != 0 {
		return e
	}
	return attach(tree, target)
}

// attach moves a detached mount onto target and closes it.
func attach(tree uintptr, target string) syscall.Errno {
	at, e := open(target)
	if e != 0 {
		return e
	}
	_, e = call6(sysMoveMount, tree, uintptr(unsafe.Pointer(&empty)), at, uintptr(unsafe.Pointer(&empty)), moveFromFD|moveToFD, 0)
	syscall.Close(int(at))
	syscall.Close(int(tree))
	return e
}

// pivot makes the current directory the root. The old root is then mounted on top of it and is detached (pivot_root(2),
// "pivot_root(".", ".")").
func pivot() syscall.Errno {
	dot := []byte{'.', 0}
	if e := call(syscall.SYS_PIVOT_ROOT, uintptr(unsafe.Pointer(&dot[0])), uintptr(unsafe.Pointer(&dot[0])), 0); e != 0 {
		return e
	}
	if e := number(syscall.Unmount(".", syscall.MNT_DETACH)); e != 0 {
		return e
	}
	return number(syscall.Chdir("/"))
}

// chdir enters a directory of the cage and follows no symlink on the way.
func chdir(path string) syscall.Errno {
	fd, e := open(path)
	if e != 0 {
		return e
	}
	defer syscall.Close(int(fd))
	return number(syscall.Fchdir(int(fd)))
}

// file writes a new file.
func file(path, content string, mode uint32) syscall.Errno {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, mode)
	if err != nil {
		return number(err)
	}
	defer syscall.Close(fd)
	if content == "" {
		return 0
	}
	n, err := syscall.Write(fd, []byte(content))
	if err == nil && n != len(content) {
		return syscall.ENOSPC
	}
	return number(err)
}

// copyIn writes a new file of size bytes with the content of a donated descriptor. It reads at offsets, since other
// holders of the same file share the position.
func copyIn(from int, path string, mode uint32, size int64) syscall.Errno {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, mode)
	if err != nil {
		return number(err)
	}
	defer syscall.Close(fd)
	for at := int64(0); at < size; {
		n, err := syscall.Sendfile(fd, from, &at, int(min(size-at, 1<<30)))
		if err != nil && err != syscall.EINTR {
			return number(err)
		}
		if n == 0 && err == nil {
			return syscall.ESTALE // the file became shorter
		}
	}
	return 0
}

// open returns an O_PATH descriptor, following no symlink anywhere in path.
func open(path string) (uintptr, syscall.Errno) {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return 0, syscall.EINVAL
	}
	how := [3]uint64{oPath | syscall.O_CLOEXEC, 0, noSymlinks | noMagicLinks}
	return call6(sysOpenat2, fdcwd, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
}

// setattr adds mount attributes. It never clears one: those that the host set remain.
func setattr(fd uintptr, path string, flags uintptr, attrs uint64) syscall.Errno {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return syscall.EINVAL
	}
	attr := [4]uint64{attrs, 0, 0, 0}
	_, e := call6(sysMountSetattr, fd, uintptr(unsafe.Pointer(p)), flags, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	return e
}
