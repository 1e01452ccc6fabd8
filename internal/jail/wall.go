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

// The agent jail is the cage of a tool with additions, each of which is a waiver that policy names: trees of programs
// of the host, a project that it may change and run, a home, sockets, terminals. Namespaces, capabilities, system calls
// and the bounds on the whole stay the same.
//
// If [bailey.Wall.Run] is set, the agent may execute the files that it writes: it builds its project and tries it. So
// Landlock's EXECUTE and noexec no longer keep out a program that arrives over its network or with a repository. Such a
// program has the rights of the agent and no others, since it is in the same cage. /tmp stays noexec.

// addAgentSandbox adds to the layout everything that a job's agent jail has beyond the cage of a tool. The places must already be
// in the layout.
func (r *run) addAgentSandbox(l *layout, w *bailey.Wall) error {
	if w == nil {
		return nil
	}
	if r.lesser != "" {
		return bailey.Unavailable.New("no jail: layer mountns: an agent jail needs namespaces",
			"use a host with namespaces: "+r.lesser)
	}
	l.wall = w
	if w.Run {
		for target, b := range l.binds {
			if b.place != nil && b.attrs&readOnly == 0 {
				l.binds[target] = b.withExec()
			}
		}
	}
	if w.Home != nil {
		if err := r.bindKeptDir(l, *w.Home, homeDir, w.Run); err != nil {
			return err
		}
	}
	if w.Fetched != nil {
		if err := r.bindKeptDir(l, *w.Fetched, bailey.FetchedDir, w.Run); err != nil {
			return err
		}
	}
	for _, t := range w.Trees {
		if err := r.hostTree(l, t); err != nil {
			return err
		}
	}
	l.addDevLinks()
	if err := l.coverSockets(r); err != nil {
		return err
	}
	return l.protectPaths(w.Keep)
}

// withExec returns b without noexec. It rests on no layer but the mount namespace.
func (b bind) withExec() bind {
	b.attrs &^= unix.MOUNT_ATTR_NOEXEC
	b.layer = "mountns"
	return b
}

// isWritable tells whether a file that is made beneath b remains outside the cage.
func (b bind) isWritable() bool { return b.attrs&readOnly == 0 && !b.device }

// isRelocated tells whether b shows another path of the host at its target: then no host path has the same meaning there.
func (b bind) isRelocated() bool { return filepath.IsAbs(b.source) && b.source != b.target }

// bindKeptDir mounts a directory that Bailey keeps: instead of the empty HOME, or at [bailey.FetchedDir]. Of everything in a
// cage, only these may lie beneath a mask: Bailey keeps the homes of agents and tools in its own home, which no cage
// may show.
func (r *run) bindKeptDir(l *layout, p bailey.Place, at string, runs bool) error {
	for target, b := range l.binds {
		// if one contains the other, kept files could be changed through it
		if b.place != nil && (containsPath(p.Path, b.source) || containsPath(b.source, p.Path)) {
			return bailey.Conflict.Errorf("use another home",
				"the home %s and %s contain one another", p.Path, b.source)
		}
		if containsPath(at, target) {
			return bailey.Unavailable.Errorf("work without --keep-home, or move the directory",
				"%s is in the place of the jail's home, %s", target, at)
		}
	}
	file, err := duplicateFile(p.File)
	if err != nil {
		return bailey.Internal.Wrap(err, p.Path+" has no open descriptor", "")
	}
	r.places[p.Path] = file
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return bailey.Invalid.Wrap(err, p.Path+" cannot be bound", "")
	}
	masks := l.masks
	l.masks = slices.DeleteFunc(slices.Clone(masks),
		func(m string) bool { return m != p.Path && containsPath(m, p.Path) })
	b, err := l.checkedBind(p.Path, &st)
	l.masks = masks
	switch {
	case err != nil:
		return err
	case !b.dir:
		return bailey.Invalid.New(p.Path+" is not a directory, so it cannot be a home", "")
	case l.maskedBeneath(p.Path) != "":
		return bailey.Denied.New(p.Path+" cannot be a home: it would show "+l.maskedBeneath(p.Path),
			"name a directory that contains nothing masked")
	}
	b.place, b.attrs, b.target = file, inert, at
	if !p.Write {
		b.attrs |= readOnly
	}
	if runs {
		b = b.withExec()
	}
	l.binds[at] = b
	return nil
}

// maskedBeneath returns a masked path beneath a directory, or "".
func (l *layout) maskedBeneath(dir string) string {
	for _, m := range l.masks {
		if _, err := os.Lstat(m); containsPath(dir, m) && err == nil {
			return m
		}
	}
	return ""
}

// hostTree shows a file or directory of the host, read-only; programs in it can be executed.
func (r *run) hostTree(l *layout, t bailey.Tree) error {
	if !filepath.IsAbs(t.Path) {
		return bailey.Invalid.Errorf("", "tree %q is not an absolute path", t.Path)
	}
	real, links, err := resolveLinks(filepath.Clean(t.Path))
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(real, &st)
	}
	if err != nil {
		return bailey.Unavailable.Wrap(err, t.Path+" cannot be shown to the agent", "leave out paths that do not exist")
	}
	at := real
	if t.At != "" {
		at, links = t.At, nil
	}
	b, err := l.checkedBind(real, &st)
	if err == nil {
		err = l.checkTreePath(real, at)
	}
	if err != nil {
		return err
	}
	b.target, b.attrs, b.layer, b.tree = at, readOnly|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "root-readonly", true
	if r.jail.root && isUnreachable(real) {
		if b.place, err = r.openChecked(real, b); err != nil {
			return err
		}
	}
	l.addSymlinks(links)
	if over, ok := l.bindAbove(at); ok && over.isWritable() && (at != real || over.isRelocated()) {
		return bailey.Denied.Errorf("",
			"%s is not shown at %s: that is in %s, which is writable", t.Path, at, over.target)
	} else if ok && over.isWritable() {
		if err := l.pinParents(at, over); err != nil {
			return err
		}
	}
	if old, ok := l.binds[at]; ok {
		same := old.dev == b.dev && old.ino == b.ino && old.place == nil
		if old.copy != nil || same && old.run {
			return nil // it is already there, as a program
		}
		if same {
			l.binds[at] = b // replaces a bind that could only be read
			return l.coverBeneath(real, at)
		}
		return bailey.Conflict.New(at+" is in the jail twice, with different contents", "leave one of them out")
	}
	l.binds[at] = b
	return l.coverBeneath(real, at)
}

// binDir is for programs that the owner of the cage gives the agent beside those of the host.
const binDir = netDir + "/bin"

// checkTreePath refuses a tree that would cover the cage's own files, and a tree of sockets.
func (l *layout) checkTreePath(real, at string) error {
	if filepath.Clean(at) != at || !filepath.IsAbs(at) {
		return bailey.Invalid.Errorf("", "%q is not a canonical absolute path", at)
	}
	for _, kernel := range []string{"/dev", "/proc", "/sys", "/run", "/var/run"} {
		if containsPath(kernel, at) && !containsPath(binDir, at) || containsPath(at, kernel) ||
			containsPath(kernel, real) {
			return bailey.Denied.Errorf("", "%s is not shown at %s: %s is not for trees", real, at, kernel)
		}
	}
	own := slices.Concat([]string{tmpDir, homeDir, emptyDir, nothing, copyDir, frozenDir, lentDir, base, netDir},
		slices.Sorted(maps.Keys(l.files)))
	for _, o := range own {
		if containsPath(at, o) {
			return bailey.Denied.Errorf("name directories below it",
				"%s is not shown at %s: it would cover the jail's own %s", real, at, o)
		}
	}
	return nil
}

// coverBeneath refuses a tree with masked paths if it is shown at another path. If it is shown at its own path, cover
// hides them.
func (l *layout) coverBeneath(real, at string) error {
	if real == at {
		return nil
	}
	if m := l.maskedBeneath(real); m != "" {
		return bailey.Denied.Errorf("show it at its own path, or show only the needed part",
			"%s is not shown at %s: %s in it is masked", real, at, m)
	}
	return nil
}

// isUnreachable tells whether path is out of reach for the user that a root gateway gives its cages.
func isUnreachable(path string) bool {
	for p := path; ; p = filepath.Dir(p) {
		var st unix.Stat_t
		if unix.Lstat(p, &st) != nil || st.Mode&0o001 == 0 && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return true
		}
		if p == "/" {
			return false
		}
	}
}

// openUnreachable opens the files of the host that the user of a root gateway's cages cannot reach, such as programs in
// /root.
func (r *run) openUnreachable(l *layout) (err error) {
	for target, b := range l.binds {
		if !r.jail.root || b.device || b.place != nil || b.copy != nil || b.frozen != nil || b.source != target ||
			b.layer != "root-readonly" && b.layer != "binds-noexec" || !isUnreachable(b.source) {
			continue
		}
		if b.place, err = r.openChecked(b.source, b); err != nil {
			return err
		}
		l.binds[target] = b
	}
	return nil
}

// openChecked returns a descriptor of the file that was checked.
func (r *run) openChecked(path string, b bind) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, path+" cannot be shown to the agent", "")
	}
	file := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Dev) != b.dev || st.Ino != b.ino {
		file.Close()
		return nil, changedError(path, err)
	}
	if old := r.places[path]; old != nil {
		file.Close()
		return old, nil
	}
	r.places[path] = file
	return file, nil
}

// protectPaths protects paths that must not change. Each is bound read-only onto itself, and neither it nor a directory on the
// way to it can be renamed or removed, since each is a mount point (rename(2)). This holds in this cage only: if a
// process outside replaces a kept file, as git does with its configuration, the mount goes away with the old file. A
// path that does not exist cannot be kept either. So the creator of the cage must look for new and changed files when
// the cage has ended.
func (l *layout) protectPaths(paths []string) error {
	for _, path := range slices.Sorted(slices.Values(paths)) {
		over, ok := l.bindAbove(path)
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || !ok || over.isRelocated() {
			return bailey.Invalid.Errorf("", "%q is in no place, so it cannot be kept unchanged", path)
		}
		if !over.isWritable() || slices.ContainsFunc(l.masks, func(m string) bool { return containsPath(m, path) }) {
			continue // it cannot change, or is not shown
		}
		if _, is := l.binds[path]; is {
			if b := l.binds[path]; b.isWritable() {
				return bailey.Conflict.New(path+" cannot be both writable and kept unchanged", "")
			}
			continue
		}
		st, err := l.statKept(path)
		if err != nil {
			return err
		}
		if err := onlyName(path, st); err != nil {
			return err
		}
		attrs := over.attrs | readOnly
		for at := path; ok && over.isWritable(); { // a place may lie in another
			if err := l.pinParents(at, over); err != nil {
				return err
			}
			at = over.target
			over, ok = l.bindAbove(at)
		}
		l.binds[path] = bind{source: path[1:], target: path, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, layer: "kept",
			attrs: attrs, dev: uint64(st.Dev), ino: st.Ino}
	}
	return nil
}

// statKept returns the status of a path in a place. Every component above it must be a directory, and the path itself must
// be a file or a directory: no mount protects a symbolic link.
func (l *layout) statKept(path string) (*unix.Stat_t, error) {
	real, links, err := resolveLinks(path)
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(path, &st)
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case err != nil:
		return nil, bailey.Unavailable.Wrap(err, path+" cannot be kept unchanged", "leave out paths that do not exist")
	case real != path:
		return nil, bailey.Denied.Errorf("replace it by the target of the link",
			"%s cannot be kept unchanged: %s is a symbolic link", path, links[0].path)
	case kind != unix.S_IFDIR && kind != unix.S_IFREG:
		return nil, bailey.Denied.New(path+" is neither a file nor a directory, and cannot be kept unchanged", "")
	}
	return &st, nil
}

// addDevLinks adds the names that shells and runtimes look for, such as /dev/fd and /dev/shm. They lead to files of the
// cage itself.
func (l *layout) addDevLinks() {
	if l.wall.Pty {
		l.links["/dev/ptmx"] = "pts/ptmx"
	}
	if l.proc {
		for name, target := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
			l.links["/dev/"+name] = "/proc/self/" + target
		}
	}
	l.links["/dev/shm"] = tmpDir
	if !l.hasEntryBeneath(varTmp) {
		l.links[varTmp] = tmpDir
	}
	l.files["/etc/passwd"] = strings.Replace(l.files["/etc/passwd"], ":/\n", ":/bin/sh\n", 1)
}

// varTmp is where programs put data that is too large for memory. A cage has no space beyond its memory.
const varTmp = "/var/tmp"

// hasEntryBeneath tells whether the cage shows an entry at dir or beneath it.
func (l *layout) hasEntryBeneath(dir string) bool {
	in := func(path string) bool { return containsPath(dir, path) }
	return slices.ContainsFunc(slices.Collect(maps.Keys(l.binds)), in) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(l.links)), in)
}

// ptsDir is the directory of the cage's own terminals.
const ptsDir = "/dev/pts"

// addPtyStep mounts a new devpts, which has only the terminals that are made in it.
func (l *layout) addPtyStep(p *plan) {
	if l.wall != nil && l.wall.Pty {
		p.addStep("dev-private", inside.Terminals, []uint64{unix.MS_NOSUID | unix.MS_NOEXEC}, ptsDir[1:],
			"newinstance,ptmxmode=0666,mode=0600,max=256")
	}
}

// tmpfsSizes returns the size and mount options of the cage's own /tmp and HOME. In an agent jail they are together as large
// as its memory. A control group counts their content against that memory; a watcher does not.
func (l *layout) tmpfsSizes(limits bailey.Limits) (tmp, home tmpfs) {
	flags := uint64(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	tmp, home = tmpfs{flags, tmpBytes, 65536}, tmpfs{flags, homeBytes, 16384}
	if l.wall == nil {
		return tmp, home
	}
	size := max(limits.MemoryBytes/2, tmpBytes)
	tmp, home = tmpfs{flags, size, 1 << 20}, tmpfs{flags, size, 1 << 20}
	if l.wall.Run {
		home.flags &^= unix.MS_NOEXEC
	}
	return tmp, home
}

// tmpfs holds the mount options of a tmpfs.
type tmpfs struct {
	flags  uint64
	size   int64
	inodes int
}

func (t tmpfs) optionString(mode uint32) string {
	return fmt.Sprintf("mode=%04o,size=%d,nr_inodes=%d", mode, t.size, t.inodes)
}

// allowMore adds the rules of sockets that are served outside, and of an agent jail: which files it may execute, where
// it may have sockets, its terminals. If a path has two rules, both apply.
func (l *layout) allowMore(allow func(path string, rights uint64)) {
	if l.canUseUnix() && l.socketDir() {
		allow(netDir, mayResolveUnix)
	}
	if l.wall == nil {
		return
	}
	for _, target := range slices.Sorted(maps.Keys(l.binds)) {
		switch b := l.binds[target]; {
		case b.tree && b.dir:
			allow(target, mayExecute|mayRead)
		case b.tree, l.wall.Run && b.place != nil && b.isWritable() && !b.dir:
			allow(target, mayExecute|mayReadFile)
		case l.wall.Run && b.place != nil && b.isWritable():
			allow(target, mayExecute)
		}
	}
	if l.wall.Run {
		allow(homeDir, mayExecute)
	}
	if l.wall.Unix {
		allow(tmpDir, mayMakeSock|mayResolveUnix)
		allow(homeDir, mayMakeSock)
	}
	if l.wall.Pty {
		allow(ptsDir, mayReadFile|mayWriteFile|mayIoctlDev)
		if _, ok := l.binds["/dev/tty"]; ok {
			allow("/dev/tty", mayIoctlDev)
		}
	}
}

// socketDir tells whether the cage has a directory of sockets that are served outside.
func (l *layout) socketDir() bool {
	return l.net != nil && slices.ContainsFunc(l.net.Listen, func(s bailey.Listen) bool { return s.Network == "unix" })
}

// canUseUnix tells whether Unix sockets may be made: in an agent jail that permits them, and by a tool that talks to a
// daemon.
func (l *layout) canUseUnix() bool {
	if l.wall != nil {
		return l.wall.Unix
	}
	return l.net != nil && l.net.API != nil
}

// canUseInet tells whether TCP and UDP sockets may be made: a tool that talks to a daemon does not need them.
func (l *layout) canUseInet() bool { return l.net != nil && l.net.API == nil }

// waivedParts returns the parts of layers that an agent jail leaves out, for the receipt.
func (l *layout) waivedParts(abi int) (lacks []string) {
	switch w := l.wall; {
	case w == nil:
		return nil
	case w.Run:
		lacks = append(lacks, "noexec in what the agent writes, but "+tmpDir)
	}
	if l.wall.Unix && abi < resolveEdition {
		lacks = append(lacks, "landlock resolve-unix")
	}
	if len(l.wall.Keep) > 0 {
		lacks = append(lacks, "kept: files that the host puts others in the place of")
	}
	if l.crowded != "" {
		lacks = append(lacks, "masks: sockets in "+l.crowded)
	}
	return lacks
}

// withSearchPath returns env with the search path of the agent jail instead of the constant one.
func withSearchPath(env []string, w *bailey.Wall) ([]string, error) {
	if w == nil || w.Path == "" {
		return env, nil
	}
	for _, dir := range strings.Split(w.Path, ":") {
		if !filepath.IsAbs(dir) || strings.Contains(dir, "\x00") {
			return nil, bailey.Invalid.Errorf("leave it out: its meaning depends on the current directory",
				"%q in the search path is not an absolute directory", dir)
		}
	}
	return append(cageRules.without(env, "PATH"), "PATH="+w.Path), nil
}
