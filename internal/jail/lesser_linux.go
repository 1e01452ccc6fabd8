package jail

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// The lesser cage, of kind landlock, is for hosts that give no namespaces: Ubuntu's AppArmor rule, Docker's
// default filter. The tool lives among the host's processes and files. Landlock stands before the files, TCP
// and signals, seccomp before sockets and what Landlock does not know, and a keeper in place of PID 1 ends
// what is left of the call.

// leastEdition of Landlock is the first that knows truncation: before it any file of the user's could be
// emptied by its path, and one that is only read by opening it. What later editions brought, TCP and
// signals, seccomp denies too.
const leastEdition = 3

// choose tells why calls get the lesser cage, "" where they get the full one. It is found out once, by
// building a full cage around nothing.
func (j *Jail) choose(ctx context.Context) (lesser string, err error) {
	j.choosing.Lock()
	defer j.choosing.Unlock()
	if j.chosen {
		return j.lesser, nil
	}
	err = j.Probe(ctx)
	if err != nil && !denied(err) {
		return "", err
	}
	if err != nil {
		if j.landlock < leastEdition {
			return "", &bailey.Error{Kind: bailey.Unavailable, Message: "no cage: neither namespaces nor enough of Landlock can be had here", Err: err,
				Hint: bailey.HintOf(err) + "; or, for the cage landlock, use Linux 6.2 or newer with landlock in the lsm= list of its command line"}
		}
		j.lesser = strings.Join(strings.Fields(err.Error()+"; "+bailey.HintOf(err)), " ")
	}
	j.chosen = true
	return j.lesser, nil
}

// denied tells whether a cage failed for a namespace or a mount that this host does not give, and not for
// want of something that may come back.
func denied(err error) bool {
	var l *layerError
	if !errors.As(err, &l) || !slices.Contains(append(cloneLayers, "root-readonly", "tmp-private", "dev-private", "binds-noexec"), l.layer) {
		return false
	}
	if errors.Is(err, unix.ENOSPC) { // used up for now, or none allowed at all (user_namespaces(7))
		return sysctl("user/max_user_namespaces") == "0"
	}
	for _, e := range []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// keeperLayers are what a keeper sets up itself, before the first step.
var keeperLayers = []string{"session", "init-guarded", "subreaper"}

// composeLesser orders the steps of a stage. Files are opened before the rights to reach them go, Landlock
// comes when no new privileges can, and what closes the ways out last.
func composeLesser(l *layout, h host, limits bailey.Limits, dir string, once bool) *plan {
	p := &plan{lesser: true, ceiling: h.ceiling}
	p.add("", inside.Umask, []uint64{0o022})
	p.common(limits)
	handled, _ := handled(h.landlock)
	p.add("landlock", inside.Ruleset, []uint64{handled.files, handled.ports, handled.scoped})
	reach := l.grant(p, handled)
	p.add("tmp-private", inside.Grant, []uint64{0, 0, 0, mayOwn & handled.files}, nestName)
	if dir == homeDir || dir == tmpDir {
		p.add("", inside.Home, []uint64{0})
	} else {
		p.add("", inside.Chdir, nil, dir)
	}
	if h.donate {
		p.add("caps-none", inside.Bounding, nil)
		p.add("caps-none", inside.Securebits, []uint64{securebits})
		p.add("ids", inside.Ids, []uint64{uint64(h.uid), uint64(h.uid)})
	}
	p.add("keyring", inside.Keyring, nil)
	p.add("caps-none", inside.Caps, nil)
	if h.donate {
		p.steps = append(p.steps, reach...) // now that no capability reaches further
	}
	p.add("no-new-privs", inside.NoNewPrivs, nil)
	p.add("landlock", inside.Restrict, nil)
	p.add("subreaper", inside.Leash, nil)
	p.add("fds-closed", inside.Descriptors, nil)
	p.add("rlimits", inside.Tasks, []uint64{0, uint64(tasksFor(limits))}) // late: this program needs threads too
	if once {
		p.add("exec-once", inside.Once, execFilter(here()))
	}
	p.add("seccomp", inside.Filter, program(here(), profile{Shared: true, NoSignals: !handled.scopesSignals()}))
	return p
}

// nestName stands for the call's private directory, whose own name is not known before the call.
const nestName = "home"

// grant gives each file its rights, and returns what the cage's user must be able to reach by modes too.
func (l *layout) grant(p *plan, r ruleset) (reach []step) {
	for _, target := range slices.Sorted(maps.Keys(l.binds)) {
		b := l.binds[target]
		rights, mode := mayReadFile, uint64(unix.R_OK)
		if b.dir {
			rights, mode = mayRead, mode|unix.X_OK
		}
		write := b.place != nil && b.attrs&readOnly == 0
		switch {
		case b.run:
			rights |= mayExecute
		case b.device && target != "/dev/random" && target != "/dev/urandom":
			rights |= mayWriteFile
		case write && b.dir:
			rights |= mayChange
		case write:
			rights |= mayWriteFile | mayTruncate
		}
		from := inside.ByPath
		if b.place != nil {
			if write {
				mode |= unix.W_OK
			}
			from = 0
			reach = append(reach, step{inside.Step{Op: inside.Reach, N: []uint64{mode}, S: []string{target}}, "ids"})
		}
		p.add("landlock", inside.Grant, []uint64{from, b.dev, b.ino, rights & r.files}, target)
	}
	return reach
}

// fits refuses what Landlock cannot do: it gives rights on a tree and takes none away beneath.
func (l *layout) fits(j *Jail) error {
	if l.proc {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "no cage: layer proc-private: without namespaces there is no /proc of the call's own",
			Hint: "use a capability that needs no /proc, or a host with namespaces: " + j.lesser}
	}
	for _, m := range l.masks {
		over, ok := l.covered(m)
		if info, err := os.Lstat(m); !ok || os.IsNotExist(err) || err == nil && info.Mode()&os.ModeSymlink != 0 {
			continue // where a symlink leads is a mask of its own
		}
		return &bailey.Error{Kind: bailey.Denied, Message: m + " is masked, lies in " + over.target + " and cannot be hidden without namespaces",
			Hint: "keep " + m + " out of the workspace, or use a host with namespaces: " + j.lesser}
	}
	if len(l.lent) > 0 {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "no cage: layer tmp-private: without mounts no file can be lent in memory: " + l.lent[0],
			Hint: "use a host with namespaces: " + j.lesser}
	}
	for target, b := range l.binds {
		if b.frozen != nil {
			return &bailey.Error{Kind: bailey.Denied, Message: target + " cannot be kept as a person was shown it: without mounts no copy can take its place",
				Hint: "use a host with namespaces: " + j.lesser}
		}
		if b.copy != nil {
			return &bailey.Error{Kind: bailey.Denied, Message: target + " is not run: others than root can write it, and without mounts no copy can take its place",
				Hint: "install the program as root, its directories too, or use a host with namespaces: " + j.lesser}
		}
		if b.dir && (above(target, j.nests) || above(j.nests, target)) {
			return &bailey.Error{Kind: bailey.Denied, Message: target + " is not shown: it holds the private directories of calls",
				Hint: "name a directory below it, or set TMPDIR to one elsewhere for the gateway"}
		}
	}
	return nil
}

// lacksLesser names what the kernel's edition of Landlock, or a call's helpers, leave open.
func lacksLesser(abi int, once bool) []string {
	_, names := handled(abi)
	if !once {
		names = append(names, loaderOpen)
	}
	return names
}

// loaderOpen is what is left open where a tool may execute helpers: no mount is noexec, so a dynamic loader,
// which is pinned as their interpreter, executes what it can read.
const loaderOpen = "exec-once: a dynamic loader executes files that the call may read"

// execFilter asks the keeper about execve and execveat, and nothing else. What comes by another system call
// table the other filter ends.
func execFilter(a architecture) []uint64 {
	const ask = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	if a.audit == 0 {
		return nil
	}
	var c code
	c.op(opLoad, numberAt)
	c.jump(opEqual, uint32(call{"execve", 59, 221}.on(a)), 1, 0)
	c.jump(opEqual, uint32(call{"execveat", 322, 281}.on(a)), 0, 1)
	c.op(opReturn, ask)
	c.op(opReturn, allow)
	return c
}
