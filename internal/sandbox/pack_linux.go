package sandbox

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
)

const maxPackedFiles = 100_000

// packFiles writes the files of a call as an archive, tar(5), whose names are absolute paths without their first slash:
// the places of the call as they are now, and what it is lent.
func (r *callRun) packFiles(to io.Writer, lent bailey.Lent) error {
	a := &archive{tar: tar.NewWriter(to), hide: r.job.Hide, masks: r.masks, made: map[string]bool{},
		left: int64(r.memoryMB) << 20 / packedShare, memoryMB: r.memoryMB}
	err := a.addDirectory(callHome, 0o700, callUser)
	if err == nil {
		err = a.addDirectory("/tmp", 0o1777, 0)
	}
	for _, p := range r.job.Places {
		if err == nil {
			err = a.addPlace(p)
		}
	}
	for _, f := range lent.Files {
		if err == nil {
			err = a.addDirectory(callSecrets, 0o700, callUser)
		}
		if err == nil {
			value := f.Value.Reveal()
			err = a.addContent(path.Join(callSecrets, f.Env), 0o400, int64(len(value)), strings.NewReader(value))
		}
	}
	if err != nil {
		return err
	}
	return a.tar.Close()
}

// An archive is the archive of one call.
type archive struct {
	tar         *tar.Writer
	hide, masks []string
	made        map[string]bool // directories and files
	left        int64           // bytes
	memoryMB    int
}

// addDirectory adds a directory, and those above it, unless they were added.
func (a *archive) addDirectory(name string, mode int64, owner int) error {
	if name == "/" || a.made[name] {
		return nil
	}
	if err := a.addDirectory(path.Dir(name), 0o755, 0); err != nil {
		return err
	}
	return a.addHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: owner, Gid: owner})
}

func (a *archive) addHeader(h *tar.Header) error {
	const perFile = 4 << 10 // bytes of memory that a file needs at least
	a.made[h.Name] = true
	if a.left -= h.Size + perFile; a.left < 0 || len(a.made) > maxPackedFiles {
		return bailey.Invalid.Errorf(
			"name a smaller directory, or raise microvm.memoryMB in settings.yaml",
			"the files of the call do not fit in a machine with %d MB, of which they may have a quarter, or are more than %d",
			a.memoryMB,
			maxPackedFiles,
		)
	}
	h.Name, h.Format = strings.TrimPrefix(h.Name, "/"), tar.FormatPAX
	return a.tar.WriteHeader(h)
}

func (a *archive) addContent(name string, mode, size int64, from io.Reader) error {
	err := a.addHeader(
		&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size, Uid: callUser, Gid: callUser,
			ModTime: time.Now()},
	)
	if err == nil {
		_, err = io.CopyN(a.tar, from, size)
	}
	return err
}

// addPlace adds a place of the call: a directory with all that is in it, or a file.
func (a *archive) addPlace(p bailey.Place) error {
	if a.made[p.Path] {
		return nil
	}
	if err := a.addDirectory(path.Dir(p.Path), 0o755, 0); err != nil {
		return err
	}
	if p.Frozen != nil {
		return a.addContent(p.Path, 0o444, p.Frozen.Size, io.NewSectionReader(p.Frozen.File, 0, p.Frozen.Size))
	}
	// The descriptor has no access to the content (O_PATH, openat(2)); this opens the same file, whatever its path names.
	fd, err := unix.Open(
		"/proc/self/fd/"+strconv.Itoa(int(p.File.Fd())),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0,
	)
	if err != nil {
		return bailey.Invalid.Wrap(err, p.Path+" cannot be read", "name another path")
	}
	f := os.NewFile(uintptr(fd), p.Path)
	if info, err := f.Stat(); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		f.Close()
		return bailey.Invalid.Wrapf(err, "name another path", "%s is neither a file nor a directory", p.Path)
	}
	return a.addOpened(f, p.Path)
}

// addOpened adds an opened file or directory, and closes it. Sockets, pipes and devices are left out.
func (a *archive) addOpened(f *os.File, name string) error {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch {
	case isBelow(a.masks, name) || a.made[name]:
		return nil
	case info.IsDir():
		if err := a.addHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: int64(info.Mode().Perm()), Uid: callUser,
			Gid: callUser}); err != nil {
			return err
		}
		return a.addEntries(f, name)
	case !info.Mode().IsRegular():
		return nil
	case a.isOnWay(name):
		return a.refuseWay(name, "file")
	}
	h := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Mode:     int64(info.Mode().Perm()),
		Size:     info.Size(),
		Uid:      callUser,
		Gid:      callUser,
		ModTime:  info.ModTime(),
	}
	if slices.Contains(a.hide, name) {
		h.Size = 0
	}
	size := h.Size
	if err := a.addHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(a.tar, f, size); errors.Is(err, io.EOF) {
		return bailey.Conflict.Errorf("call again", "%s became shorter while it was copied", name)
	} else if err != nil {
		return err
	}
	return nil
}

// addEntries adds what a directory contains. No symbolic link is followed: it is copied as a link.
func (a *archive) addEntries(dir *os.File, name string) error {
	entries, err := dir.ReadDir(maxPackedFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := a.addEntry(dir, e.Name(), path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) addEntry(dir *os.File, entry, name string) error {
	if isBelow(a.masks, name) {
		return nil
	}
	fd, err := unix.Openat(
		int(dir.Fd()),
		entry,
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY,
		0,
	)
	switch {
	case errors.Is(err, unix.ELOOP):
		return a.addLink(dir, entry, name)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO): // removed meanwhile, or a socket
		return nil
	case errors.Is(err, unix.EACCES): // the jail could not read it either
		return nil
	case err != nil:
		return bailey.Unavailable.Wrapf(err, "make it readable, or name another directory", "cannot read %s", name)
	}
	return a.addOpened(os.NewFile(uintptr(fd), name), name)
}

// isOnWay reports whether a file to hide lies below name. If that is not a directory, but a link or a file that names
// another directory, such as git's .git, the tool would find the hidden file under another name.
func (a *archive) isOnWay(name string) bool {
	return slices.ContainsFunc(a.hide, func(h string) bool { return strings.HasPrefix(h, name+"/") })
}

func (a *archive) refuseWay(name, kind string) error {
	return bailey.Denied.Errorf("name the directory to which it leads, if it is inside the workspace",
		"%s is a %s, so a file that it leads to cannot be hidden", name, kind)
}

func (a *archive) addLink(dir *os.File, entry, name string) error {
	if a.isOnWay(name) || slices.Contains(a.hide, name) {
		return a.refuseWay(name, "link")
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), entry, target)
	if err != nil {
		return nil // replaced meanwhile
	}
	return a.addHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: string(target[:n]), Mode: 0o777,
		Uid: callUser, Gid: callUser})
}
