//go:build linux

package jail

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
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
			return bailey.Conflict.New(p.Path+" is bound twice, to different contents", "name it in one input")
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
			return bind{}, bailey.Denied.New(path+" is not bound: it would cover the jail's own "+own,
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
			return bind{}, bailey.Denied.New(path+" is masked: a jail must not show it",
				"keep the files of the call outside "+m)
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

// emitSteps turns the tree into steps. Names are made first, parents before children, then mounts. If donate is true, the
// gateway makes the mounts of the places itself, since PID 1 could not open them.
func (l *layout) emitSteps(p *plan, donate bool, limits bailey.Limits) {
	p.addStep("root-readonly", inside.Tmpfs, []uint64{unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC}, base,
		"mode=0755,size=1m,nr_inodes=4096")
	p.addStep("root-readonly", inside.Enter, nil, base)
	for _, d := range []string{tmpDir, filepath.Dir(homeDir), homeDir} {
		p.addStep("tmp-private", inside.Dir, []uint64{0o755}, d[1:])
	}
	tmp, home := l.tmpfsSizes(limits)
	p.addStep("tmp-private", inside.Fresh, []uint64{tmp.flags}, tmpDir[1:], tmp.optionString(0o1777))
	p.addStep("tmp-private", inside.Fresh, []uint64{home.flags}, homeDir[1:], home.optionString(0o700))
	l.addNameSteps(p)
	l.addPtyStep(p)
	if l.proc {
		p.addStep("proc-private", inside.Proc,
			[]uint64{unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC}, "proc", "hidepid=2")
	}
	l.addLentFiles(p)
	l.addTrustFile(p)
	copies := l.addCopySteps(p)
	l.addFrozenSteps(p, copies)
	for _, target := range slices.Sorted(maps.Keys(l.binds)) {
		b := l.binds[target]
		if b.place != nil && len(l.lent) > 0 {
			// A symlink to a lent file would make the tool read it under a name that the call permits.
			b.attrs |= unix.MOUNT_ATTR_NOSYMFOLLOW
		}
		if from, ok := copies[target]; ok {
			p.addStep(b.layer, inside.Bind, []uint64{0, 0, b.attrs}, from, target[1:])
			continue
		}
		if b.place != nil && donate {
			p.addStep(b.layer, inside.Donated, []uint64{0, b.dev, b.ino, b.attrs, uint64(b.uid), uint64(b.gid)},
				b.source, target[1:])
			continue
		}
		p.addStep(b.layer, inside.Bind, []uint64{b.dev, b.ino, b.attrs}, b.source, target[1:])
	}
	l.addListenSteps(p)
	p.addStep("root-readonly", inside.Seal, []uint64{readOnly | inert}, ".")
}

// addCopySteps makes PID 1 write the copied files into a small tmpfs. It returns the path of each copy by its target. The
// gateway passes sealed memory, which no process can change.
func (l *layout) addCopySteps(p *plan) map[string]string {
	targets := slices.DeleteFunc(slices.Sorted(maps.Keys(l.binds)),
		func(t string) bool { return l.binds[t].copy == nil })
	lies := map[string]string{}
	p.addFilled("root-readonly", copyDir, unix.MS_NOSUID|unix.MS_NODEV, targets, lies, func(t string) step {
		b, mode := l.binds[t], uint64(0o555)
		if b.attrs&unix.MOUNT_ATTR_NOEXEC != 0 {
			mode = 0o444
		}
		return step{Step: inside.Step{N: []uint64{0, mode, uint64(b.copy.id.size)}, S: []string{b.source, "", b.copy.digest}}}
	})
	return lies
}

// addFilled makes PID 1 fill a tmpfs with a file for each target, as fileOf says, which then turns read-only. It stores
// in lies, by target, the path of each file. flags of a mount equal the bits of its attributes.
func (p *plan) addFilled(layer, dir string, flags uint64, targets []string, lies map[string]string,
	fileOf func(target string) step) {
	if len(targets) == 0 {
		return
	}
	const page = 64 << 10 // no architecture has larger pages
	size := uint64(page)
	files := make([]step, len(targets))
	for i, t := range targets {
		lies[t] = fmt.Sprintf("%s/%d", dir[1:], i)
		files[i] = fileOf(t)
		files[i].Op, files[i].layer, files[i].S[1] = inside.Copy, layer, lies[t]
		size += (files[i].N[2] + page - 1) / page * page
	}
	p.addStep(layer, inside.Tmpfs, []uint64{flags}, dir[1:],
		fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", size, len(targets)+16))
	p.steps = append(p.steps, files...)
	p.addStep(layer, inside.Seal, []uint64{readOnly | flags}, dir[1:])
}

// addNameSteps makes the directories, mount points, symlinks and files that no bind provides.
func (l *layout) addNameSteps(p *plan) {
	nodes := map[string]step{}
	made := map[string]bool{"/": true, tmpDir: true, homeDir: true, filepath.Dir(homeDir): true}
	put := func(path string, op uint8, n []uint64, words ...string) {
		if _, inBind := l.bindAbove(path); inBind || made[path] || l.proc && path != "/proc" &&
			containsPath("/proc", path) {
			return
		}
		for d := filepath.Dir(path); !made[d]; d = filepath.Dir(d) {
			made[d] = true
			nodes[d] = step{inside.Step{Op: inside.Dir, N: []uint64{0o755}, S: []string{d[1:]}}, "root-readonly"}
		}
		made[path] = true
		nodes[path] = step{inside.Step{Op: op, N: n, S: append([]string{path[1:]}, words...)}, "root-readonly"}
	}
	for path, target := range l.links {
		put(path, inside.Link, nil, target)
	}
	for path, b := range l.binds {
		if b.dir {
			put(path, inside.Dir, []uint64{0o755})
		} else {
			put(path, inside.File, []uint64{0o444}, "")
		}
	}
	for path, content := range l.files {
		put(path, inside.File, []uint64{0o444}, content)
	}
	if l.proc {
		put("/proc", inside.Dir, []uint64{0o555})
	}
	if l.wall != nil && l.wall.Pty {
		put(ptsDir, inside.Dir, []uint64{0o755})
	}
	if l.empty {
		put(emptyDir, inside.Dir, []uint64{0o555})
	}
	if len(l.lent) > 0 {
		put(lentDir, inside.Dir, []uint64{0o755})
	}
	if l.socketDir() {
		put(netDir, inside.Dir, []uint64{0o755})
	}
	if l.net != nil && l.net.Trust {
		put(filepath.Dir(bailey.TrustFile), inside.Dir, []uint64{0o755})
	}
	if len(l.frozenTargets()) > 0 {
		put(frozenDir, inside.Dir, []uint64{0o555})
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(l.binds)), func(b bind) bool { return b.copy != nil }) {
		put(copyDir, inside.Dir, []uint64{0o555})
	}
	for _, path := range slices.Sorted(maps.Keys(nodes)) {
		p.steps = append(p.steps, nodes[path])
	}
}
