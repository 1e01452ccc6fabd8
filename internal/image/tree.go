package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"bailey"
	"bailey/internal/ext4"
)

const (
	maxEntries   = 2_000_000 // files of one image
	maxPath      = 4096
	maxFollowed  = 40  // symbolic links in one path, as the kernel allows
	maxNested    = 500 // directories, which package ext4 can write
	whiteout     = ".wh."
	opaque       = ".wh..wh..opq"
	bytesPerFile = 4096 + 256 // what a file takes at least
)

// A tree is the content of a root file system. It is collected from archives without writing a file, so no name, link
// or
// device of an archive touches the host: a path, also through symbolic links, is resolved inside the tree.
type tree struct {
	root    *ext4.Node
	entries int
	bytes   int64
	most    int64 // bytes allowed
}

func newTree(most int64) *tree {
	return &tree{root: newDirectory(), most: most}
}

func newDirectory() *ext4.Node {
	return &ext4.Node{Mode: ext4.Directory | 0o755, Children: map[string]*ext4.Node{}}
}

func isDirectory(n *ext4.Node) bool { return n != nil && n.Mode&ext4.TypeMask == ext4.Directory }

// addArchive adds an uncompressed tar archive to the tree. The content of files stays in the archive. If it is a layer
// of a
// container image, files named ".wh.NAME" remove what lower layers have (OCI image specification, layer.md).
func (t *tree) addArchive(from *io.SectionReader, layer bool) error {
	archive, fresh := tar.NewReader(from), map[*ext4.Node]bool{}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bailey.Invalid.Wrap(err, "the archive is damaged", "make it again")
		}
		at, err := from.Seek(0, io.SeekCurrent)
		if err == nil {
			err = t.addEntry(h, io.NewSectionReader(from, at, h.Size), layer, fresh)
		}
		if err != nil {
			return bailey.Invalid.Wrapf(err, "make the archive again, without this file",
				"the archive contains %.200q", h.Name)
		}
	}
}

// addEntry adds one file of an archive. fresh are the nodes of this archive.
func (t *tree) addEntry(h *tar.Header, content *io.SectionReader, layer bool, fresh map[*ext4.Node]bool) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if t.entries++; t.entries > maxEntries {
		return fmt.Errorf("there are more than %d files", maxEntries)
	}
	names, err := splitPath(h.Name)
	if err != nil {
		return err
	}
	if len(names) == 0 { // the root itself
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root is not a directory")
		}
		setOwner(t.root, h, ext4.Directory)
		return nil
	}
	dir, err := t.walkTo(names[:len(names)-1], true)
	if err != nil {
		return err
	}
	name := names[len(names)-1]
	if layer && strings.HasPrefix(name, whiteout) {
		removeLower(dir, name, fresh)
		return nil
	}
	n, err := t.newNode(h, content)
	if err != nil {
		return err
	}
	if old := dir.Children[name]; isDirectory(n) && isDirectory(old) {
		n.Children = old.Children
		*old = *n
		n = old
	}
	dir.Children[name], fresh[n] = n, true
	return nil
}

// splitPath returns the names of a path. It refuses ".." in archives: no honest program writes it there.
func splitPath(name string) (names []string, err error) {
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return nil, errors.New("its name is too long, or contains a NUL")
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == ".." || len(part) > 255:
			return nil, errors.New(`its name contains "..", or a part of more than 255 bytes`)
		default:
			names = append(names, part)
		}
	}
	return names, nil
}

// walkTo returns a directory. It follows symbolic links as they are seen in the guest, and makes missing directories.
func (t *tree) walkTo(names []string, create bool) (*ext4.Node, error) {
	dirs, followed := []*ext4.Node{t.root}, 0
	for len(names) > 0 {
		if len(dirs) > maxNested {
			return nil, fmt.Errorf("directories are nested more than %d times", maxNested)
		}
		dir, name := dirs[len(dirs)-1], names[0]
		names = names[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dirs = dirs[:max(1, len(dirs)-1)]
			continue
		}
		next := dir.Children[name]
		switch {
		case isDirectory(next):
			dirs = append(dirs, next)
		case next != nil && next.Mode&ext4.TypeMask == ext4.Symlink:
			if followed++; followed > maxFollowed {
				return nil, errors.New("its path leads through too many symbolic links")
			}
			names = append(strings.Split(next.Target, "/"), names...)
			if strings.HasPrefix(next.Target, "/") {
				dirs = dirs[:1]
			}
		case next != nil:
			return nil, fmt.Errorf("%q in its path is not a directory", name)
		case !create:
			return nil, fmt.Errorf("%q does not exist", name)
		default:
			if t.entries++; t.entries > maxEntries {
				return nil, fmt.Errorf("there are more than %d files", maxEntries)
			}
			next = newDirectory()
			dir.Children[name] = next
			dirs = append(dirs, next)
		}
	}
	return dirs[len(dirs)-1], nil
}

// findNode returns the node of a path, whose last part is followed if it is a symbolic link; nil if it does not exist.
func (t *tree) findNode(name string) *ext4.Node {
	for range maxFollowed {
		dir, err := t.walkTo(strings.Split(path.Dir(name), "/"), false)
		if err != nil {
			return nil
		}
		n := dir.Children[path.Base(name)]
		if n == nil || n.Mode&ext4.TypeMask != ext4.Symlink {
			return n
		}
		if strings.HasPrefix(n.Target, "/") {
			name = n.Target
		} else {
			name = path.Dir(name) + "/" + n.Target
		}
	}
	return nil
}

// readText returns the content of a small regular file, or "" if it does not exist.
func (t *tree) readText(name string, most int64) string {
	n := t.findNode(name)
	if n == nil || n.Mode&ext4.TypeMask != ext4.Regular || n.Size == 0 || n.Size > most {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(n.Open(), n.Size))
	if err != nil {
		return ""
	}
	return string(text)
}

// putNode adds a file that is not a directory, which replaces what is there.
func (t *tree) putNode(name string, n *ext4.Node) error {
	names, err := splitPath(name)
	if err != nil || len(names) == 0 {
		return errors.Join(err, errors.New("its name is empty"))
	}
	dir, err := t.walkTo(names[:len(names)-1], true)
	if err != nil {
		return err
	}
	last := names[len(names)-1]
	if isDirectory(dir.Children[last]) {
		return errors.New("there is a directory")
	}
	t.bytes += n.Size
	dir.Children[last] = n
	return nil
}

// removeLower applies a whiteout: a file of lower layers vanishes, or all those in a directory.
func removeLower(dir *ext4.Node, name string, fresh map[*ext4.Node]bool) {
	if name == opaque {
		for child, n := range dir.Children {
			dropLower(dir, child, n, fresh)
		}
		return
	}
	child := strings.TrimPrefix(name, whiteout)
	if n := dir.Children[child]; n != nil {
		dropLower(dir, child, n, fresh)
	}
}

func dropLower(dir *ext4.Node, name string, n *ext4.Node, fresh map[*ext4.Node]bool) {
	for child, below := range n.Children {
		dropLower(n, child, below, fresh)
	}
	if !fresh[n] && len(n.Children) == 0 {
		delete(dir.Children, name)
	}
}

// newNode returns the node of a file in an archive.
func (t *tree) newNode(h *tar.Header, content *io.SectionReader) (*ext4.Node, error) {
	n := &ext4.Node{}
	switch h.Typeflag {
	case tar.TypeDir:
		n.Children = map[string]*ext4.Node{}
		setOwner(n, h, ext4.Directory)
	case tar.TypeReg:
		if h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.size"] != "" {
			return nil, errors.New("it is stored as a sparse file, which is not supported")
		}
		n.Size = h.Size
		n.Open = func() io.Reader { return io.NewSectionReader(content, 0, h.Size) }
		setOwner(n, h, ext4.Regular)
	case tar.TypeLink:
		return t.findLinked(h.Linkname)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= maxPath || strings.ContainsRune(h.Linkname, 0) {
			return nil, errors.New("its target is empty, too long, or contains a NUL")
		}
		n.Target = h.Linkname
		setOwner(n, h, ext4.Symlink)
	case tar.TypeChar, tar.TypeBlock:
		if h.Devmajor < 0 || h.Devmajor > 0xfff || h.Devminor < 0 || h.Devminor > 0xfffff {
			return nil, errors.New("the numbers of the device are impossible")
		}
		n.Major, n.Minor = uint32(h.Devmajor), uint32(h.Devminor)
		setOwner(n, h, map[byte]uint32{tar.TypeChar: ext4.CharDev, tar.TypeBlock: ext4.BlockDev}[h.Typeflag])
	case tar.TypeFifo:
		setOwner(n, h, ext4.FIFO)
	default:
		return nil, fmt.Errorf("its type is %q, which is not supported", h.Typeflag)
	}
	if t.bytes += n.Size + bytesPerFile; t.bytes > t.most {
		return nil, fmt.Errorf("the files have more than %d bytes", t.most)
	}
	return n, nil
}

// findLinked returns the file to which a hard link leads: one of the tree, never one of the host.
func (t *tree) findLinked(target string) (*ext4.Node, error) {
	names, err := splitPath(target)
	if err != nil || len(names) == 0 {
		return nil, errors.Join(err, errors.New("the hard link leads nowhere"))
	}
	dir, err := t.walkTo(names[:len(names)-1], false)
	if err != nil {
		return nil, fmt.Errorf("the hard link leads nowhere: %w", err)
	}
	n := dir.Children[names[len(names)-1]]
	if n == nil || isDirectory(n) {
		return nil, fmt.Errorf("the hard link leads to %.200q, which is not a file of the archive", target)
	}
	return n, nil
}

func setOwner(n *ext4.Node, h *tar.Header, kind uint32) {
	n.Mode, n.MTime = kind|uint32(h.Mode)&0o7777, h.ModTime
	n.UID, n.GID = uint32(h.Uid), uint32(h.Gid)
	if value := h.PAXRecords["SCHILY.xattr.security.capability"]; kind == ext4.Regular && len(value) <= 32 {
		n.Capability = []byte(value)
	}
}

// osRelease returns the values of os-release(5), without quotes.
func osRelease(text string) map[string]string {
	values := map[string]string{}
	for line := range bytes.Lines([]byte(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if ok && !strings.HasPrefix(name, "#") && len(values) < 100 {
			values[name] = strings.Trim(value, `"'`)
		}
	}
	return values
}
