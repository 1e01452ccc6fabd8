//go:build linux

package jail

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

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

// addCopySteps makes PID 1 write the copied files into a small tmpfs that then turns read-only. It returns the path of each
// copy by its target. The gateway passes sealed memory, which no process can change.
func (l *layout) addCopySteps(p *plan) map[string]string {
	targets := slices.DeleteFunc(slices.Sorted(maps.Keys(l.binds)),
		func(t string) bool { return l.binds[t].copy == nil })
	lies := map[string]string{}
	if len(targets) == 0 {
		return lies
	}
	const page = 64 << 10 // no architecture has larger pages
	size := int64(page)
	for _, t := range targets {
		size += (l.binds[t].copy.id.size + page - 1) / page * page
	}
	flags := uint64(unix.MS_NOSUID | unix.MS_NODEV)
	p.addStep("root-readonly", inside.Tmpfs, []uint64{flags}, copyDir[1:],
		fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", size, len(targets)+16))
	for i, t := range targets {
		b, mode := l.binds[t], uint64(0o555)
		if b.attrs&unix.MOUNT_ATTR_NOEXEC != 0 {
			mode = 0o444
		}
		lies[t] = fmt.Sprintf("%s/%d", copyDir[1:], i)
		p.addStep("root-readonly", inside.Copy, []uint64{0, mode, uint64(b.copy.id.size)}, b.source, lies[t],
			b.copy.digest)
	}
	p.addStep("root-readonly", inside.Seal, []uint64{readOnly | flags}, copyDir[1:])
	return lies
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
