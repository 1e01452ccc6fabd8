//go:build linux

package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
)

// Fixed paths and ids of a cage.
const (
	homeDir  = "/home/bailey"
	userName = "bailey"
	tmpDir   = "/tmp"
	emptyDir = "/.empty" // covers masked directories
	nothing  = "/.none"  // an empty file that covers files that a call hides
	copyDir  = "/.copy"  // holds copies of files that users other than root could write
	// the new root is mounted here: a directory that must exist, and hides no bind's source
	base     = "/proc"
	insideID = 1000 // uid and gid of the tool in its own namespace
)

// A bind is a tree of the host that the cage shows at target.
type bind struct {
	source, target string
	dev, ino       uint64
	attrs          uint64
	dir            bool
	run            bool // a program that may be executed
	device         bool
	tree           bool // from the host; its files may be executed
	layer          string
	copy           *toolFile      // shown instead of the source
	frozen         *bailey.Frozen // the same, for the snapshot of a file that a person was asked about
	place          *os.File       // descriptor that was checked, kept open so that its inode is not reused
	uid, gid       uint32         // of the owner, which an idmapped bind maps to the cage's own user
}

// layout is the cage's file tree before it is turned into steps. Paths are absolute and canonical.
type layout struct {
	binds map[string]bind   // by target
	links map[string]string // path to link target
	files map[string]string // path to content
	masks []string
	lent  []string // variables of lent files, sorted
	net   *bailey.Network
	wall  *bailey.Wall
	proc  bool
	empty bool // a masked directory needs emptyDir

	crowded string // place of an agent jail with too many files to examine all
}

func newLayout() *layout {
	return &layout{binds: map[string]bind{}, links: map[string]string{}, files: map[string]string{
		"/etc/passwd": fmt.Sprintf("%s:x:%d:%[2]d::%s:/\n", userName, insideID, homeDir),
		"/etc/group":  fmt.Sprintf("%s:x:%d:\n", userName, insideID),
	}}
}

// containsPath reports whether path is dir or lies beneath it.
func containsPath(dir, path string) bool {
	return dir == path || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// bindAbove returns the innermost bind strictly above path.
func (l *layout) bindAbove(path string) (bind, bool) {
	for p := filepath.Dir(path); p != "/"; p = filepath.Dir(p) {
		if b, ok := l.binds[p]; ok {
			return b, true
		}
	}
	return bind{}, false
}

// addTool adds a program, executable and read-only, and the data that its loader reads. A script is read by its
// interpreter. It must be executable only if the kernel is to follow its first line, as for a helper.
func (l *layout) addTool(t *tool, helper bool) {
	for _, f := range t.files {
		b := bind{source: f.path, target: f.path, dev: f.id.dev, ino: f.id.ino, layer: "root-readonly",
			run: f.use == executable || f.use == loader || f.use == script &&
				helper, attrs: readOnly | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if f.use == script && !helper {
			b.attrs |= unix.MOUNT_ATTR_NOEXEC
		}
		if f.copied {
			b.copy = &f
		}
		if old, ok := l.binds[f.path]; ok {
			b.attrs &= old.attrs
			b.run = b.run || old.run
		}
		l.binds[f.path] = b
	}
	for _, f := range t.data {
		l.binds[f.path] = bind{source: f.path, target: f.path, dev: f.id.dev, ino: f.id.ino, layer: "binds-noexec",
			attrs: readOnly | inert}
	}
	l.addSymlinks(t.links)
}

func (l *layout) addSymlinks(links []link) {
	for _, k := range links {
		l.links[k.path] = k.target
	}
}

// addRootSymlinks repeats the host's top-level symlinks, for example /bin to usr/bin, so that well-known paths work.
func (l *layout) addRootSymlinks() {
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if target, err := os.Readlink(p); err == nil {
			l.links[p] = target
		}
	}
}

// addDevices binds devices of the host: in a user namespace no device can be made (user_namespaces(7)).
func (l *layout) addDevices() error {
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := l.addDevice(name, 1, minor); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) addDevice(name string, major, minor uint32) error {
	path := "/dev/" + name
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFCHR || uint64(st.Rdev) != unix.Mkdev(major, minor)) {
		err = unix.ENODEV
	}
	if err != nil {
		return layerUnavailable("dev-private", &os.PathError{Op: "check", Path: path, Err: err})
	}
	l.binds[path] = bind{source: path, target: path, dev: uint64(st.Dev), ino: st.Ino, layer: "dev-private",
		device: true, attrs: readOnly | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	return nil
}

// addReadPath adds a path that the tool declares, read-only and inert. If it does not exist, it is left out.
func (l *layout) addReadPath(path string) error {
	if !filepath.IsAbs(path) {
		return bailey.Invalid.Errorf("write it in the manifest with a leading slash",
			"read path %q is not absolute", path)
	}
	real, links, err := resolveLinks(filepath.Clean(path))
	if os.IsNotExist(err) {
		return nil
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(real, &st)
	}
	if err != nil {
		return bailey.Unavailable.Wrap(err, path+" cannot be shown to the tool", "")
	}
	b, err := l.checkedBind(real, &st)
	if err != nil {
		return err
	}
	b.attrs = readOnly | inert
	if _, ok := l.binds[real]; !ok {
		l.binds[real] = b
	}
	l.addSymlinks(links)
	return nil
}

// bindPlace adds a path input: the very descriptor that was checked, inert, and read-only unless the call writes.
func (l *layout) bindPlace(p bailey.Place, file *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return bailey.Invalid.Wrap(err, p.Path+" cannot be bound", "")
	}
	b, err := l.checkedBind(p.Path, &st)
	if err != nil {
		return err
	}
	b.place, b.attrs = file, readOnly|inert
	if p.Write {
		b.attrs = inert
	}
	if old, ok := l.binds[p.Path]; ok {
		if (old.dev != b.dev || old.ino != b.ino) || p.Write && old.place == nil {
			return bailey.Conflict.New(p.Path+" is bound twice, as different things", "name it in one input")
		}
		if old.place == nil {
			return nil // keep the tool's own file as the tool needs it
		}
		b.attrs &= old.attrs
	}
	l.binds[p.Path] = b
	return nil
}

// checkedBind refuses a path that no cage may show.
func (l *layout) checkedBind(path string, st *unix.Stat_t) (bind, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return bind{}, bailey.Invalid.Errorf("", "%q is not a canonical absolute path", path)
	}
	for _, own := range []string{tmpDir, homeDir, bailey.FetchedDir, emptyDir, nothing, copyDir, frozenDir, lentDir,
		"/dev", "/proc", "/sys"} {
		if containsPath(path, own) {
			return bind{}, bailey.Denied.New(path+" is not bound: it would cover the cage's own "+own,
				"name a directory below it")
		}
	}
	for _, kernel := range []string{"/dev", "/proc", "/sys"} {
		if containsPath(kernel, path) {
			return bind{}, bailey.Denied.New(path+" is not bound: "+kernel+" belongs to the kernel", "")
		}
	}
	for _, m := range l.masks {
		if containsPath(m, path) {
			return bind{}, bailey.Denied.New(path+" is masked: no cage may show it",
				"keep what the call needs outside "+m)
		}
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return bind{}, bailey.Denied.New(path+" is neither a file nor a directory", "")
	}
	return bind{source: path, target: path, dev: uint64(st.Dev), ino: st.Ino, dir: kind == unix.S_IFDIR,
		layer: "binds-noexec", uid: st.Uid, gid: st.Gid}, nil
}

// coverMasks hides each masked path that a bound directory would show.
func (l *layout) coverMasks() error {
	for _, m := range l.masks {
		above, ok := l.bindAbove(m)
		if !ok || above.source == emptyDir[1:] || above.isRelocated() { // beneath another mask no file is shown
			continue
		}
		real, err := realPath(m)
		if os.IsNotExist(err) || err == nil && real != m {
			continue // the target of the symlink is a mask of its own
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(m, &st)
		}
		if err != nil {
			return layerUnavailable("masks", err)
		}
		b := bind{source: "/dev/null", target: m, layer: "masks", attrs: readOnly | inert}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			b.source, b.dir, l.empty = emptyDir[1:], true, true
		} else {
			b.dev, b.ino = l.binds["/dev/null"].dev, l.binds["/dev/null"].ino
		}
		l.binds[m] = b
		if err := l.pinParents(m, above); err != nil {
			return err
		}
	}
	return nil
}

// pinParents binds the directories between a writable place and a mask onto themselves. A mount point cannot be renamed or
// removed (rename(2), EBUSY), but a directory that contains one can. If that happened, the next cage would put the mask
// on a path that does not exist, and show the secret under another name.
func (l *layout) pinParents(mask string, over bind) error {
	if over.attrs&readOnly != 0 {
		return nil
	}
	for dir := filepath.Dir(mask); dir != over.target; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return layerUnavailable("masks", err)
		}
		l.binds[dir] = bind{source: dir[1:], target: dir, dir: true, layer: "masks", attrs: over.attrs,
			dev: uint64(st.Dev), ino: st.Ino}
	}
	return nil
}
