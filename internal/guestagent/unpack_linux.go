package guestagent

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// unpackFiles reads an archive, tar(5), and creates its directories, files and links below root. A directory that
// exists stays as it is. Then it makes each of the trees, which the archive must contain, read-only for every process
// of the guest.
func unpackFiles(in io.Reader, root string, trees []string) error {
	unix.Umask(0)
	var dirs []*tar.Header // of new directories, whose modes come last: they may forbid to write
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the archive is damaged: %w", err)
		}
		made, err := unpackEntry(archive, h, filepath.Join(root, path.Clean("/"+h.Name)))
		if err != nil {
			return err
		}
		if made && h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
	}
	for _, h := range dirs {
		mode := fs.FileMode(h.Mode)&fs.ModePerm | stickyBit(h)
		if err := os.Chmod(filepath.Join(root, path.Clean("/"+h.Name)), mode); err != nil {
			return err
		}
	}
	for _, tree := range trees {
		if err := sealTree(tree); err != nil {
			return fmt.Errorf("cannot make %s read-only: %w", tree, err)
		}
	}
	return nil
}

func stickyBit(h *tar.Header) fs.FileMode {
	if h.Mode&unix.S_ISVTX != 0 {
		return fs.ModeSticky
	}
	return 0
}

// unpackEntry creates one file. made is false if it is a directory that exists.
func unpackEntry(content io.Reader, h *tar.Header, name string) (made bool, err error) {
	switch h.Typeflag {
	case tar.TypeDir:
		err = os.Mkdir(name, 0o700)
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
	case tar.TypeSymlink:
		err = os.Symlink(h.Linkname, name)
	case tar.TypeReg:
		err = unpackFile(content, h, name)
	default:
		err = fmt.Errorf("the archive contains %s, which has the type %q", h.Name, h.Typeflag)
	}
	if err == nil {
		err = os.Lchown(name, h.Uid, h.Gid)
	}
	return true, err
}

func unpackFile(content io.Reader, h *tar.Header, name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, fs.FileMode(h.Mode)&fs.ModePerm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}

// sealTree mounts a file or directory over itself, read-only.
func sealTree(tree string) error {
	if err := unix.Mount(tree, tree, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", tree, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}
