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

// The lesser cage, of kind landlock, is for hosts that deny namespaces, for example by Ubuntu's AppArmor rule or
// Docker's default filter. The tool runs among the host's processes and files. Landlock restricts files, TCP and
// signals, seccomp restricts sockets and operations that Landlock does not cover, and a keeper in place of PID 1 ends
// the remaining processes of the call.

// leastEdition is the first ABI of Landlock that controls truncation: with an older one the tool could empty any file
// of the user by its path, and a file that it may only read by opening it. Seccomp also denies the additions of later
// ABIs, TCP and signals.
const leastEdition = 3

// chooseCage returns why calls get the lesser cage, or "" if they get the full one. It finds this out once, by building a
// full cage without a tool.
func (j *Jail) chooseCage(ctx context.Context) (lesser string, err error) {
	j.choosing.Lock()
	defer j.choosing.Unlock()
	if j.chosen {
		return j.lesser, nil
	}
	err = j.Probe(ctx)
	if err != nil && !isHostDenial(err) {
		return "", err
	}
	if err != nil {
		if j.landlock < leastEdition {
			return "", bailey.Unavailable.Wrap(err, "no jail: neither namespaces nor a sufficient Landlock is available here",
				bailey.HintOf(err)+
					"; or, for the jail landlock, use Linux 6.2 or newer with landlock in the lsm= list of its command line")
		}
		j.lesser = strings.Join(strings.Fields(err.Error()+"; "+bailey.HintOf(err)), " ")
	}
	j.chosen = true
	return j.lesser, nil
}

// isHostDenial reports whether a cage failed because this host denies a namespace or a mount, and not for lack of a resource
// that may become available again.
func isHostDenial(err error) bool {
	var l *layerError
	if !errors.As(err, &l) || !slices.Contains(append(cloneLayers, "root-readonly", "tmp-private", "dev-private", "binds-noexec"), l.layer) {
		return false
	}
	if errors.Is(err, unix.ENOSPC) { // used up for now, or not allowed at all (user_namespaces(7))
		return readSysctl("user/max_user_namespaces") == "0"
	}
	for _, e := range []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// supervisorLayers are the layers that a keeper sets up itself, before the first step.
var supervisorLayers = []string{"session", "init-guarded", "subreaper"}

// composeLesser orders the steps of a stage. Files are opened before the rights to reach them are dropped, Landlock
// follows no_new_privs, and the system call filters come last.
func composeLesser(l *layout, h host, limits bailey.Limits, dir string, once bool) *plan {
	p := &plan{lesser: true, ceiling: h.ceiling}
	p.addStep("", inside.Umask, []uint64{0o022})
	p.addCommonLimits(limits)
	handled, _ := supportedRuleset(h.landlock)
	p.addStep("landlock", inside.Ruleset, []uint64{handled.files, handled.ports, handled.scoped})
	reach := l.addGrants(p, handled)
	p.addStep("tmp-private", inside.Grant, []uint64{0, 0, 0, mayOwn & handled.files}, nestName)
	if dir == homeDir || dir == tmpDir {
		p.addStep("", inside.Home, []uint64{0})
	} else {
		p.addStep("", inside.Chdir, nil, dir)
	}
	if h.donate {
		p.addStep("caps-none", inside.Bounding, nil)
		p.addStep("caps-none", inside.Securebits, []uint64{securebits})
		p.addStep("ids", inside.Ids, []uint64{uint64(h.uid), uint64(h.uid)})
	}
	p.addStep("keyring", inside.Keyring, nil)
	p.addStep("caps-none", inside.Caps, nil)
	if h.donate {
		p.steps = append(p.steps, reach...) // after the capabilities that would reach further are gone
	}
	p.addStep("no-new-privs", inside.NoNewPrivs, nil)
	p.addStep("landlock", inside.Restrict, nil)
	p.addStep("subreaper", inside.Leash, nil)
	p.addStep("fds-closed", inside.Descriptors, nil)
	// late, because this program needs threads too
	p.addStep("rlimits", inside.Tasks, []uint64{0, uint64(tasksFor(limits))})
	if once {
		p.addStep("exec-once", inside.Once, execFilter(currentArch()))
	}
	p.addStep("seccomp", inside.Filter,
		filterProgram(currentArch(), profile{Shared: true, NoSignals: !handled.scopesSignals()}))
	return p
}

// nestName stands for the call's private directory, whose real name is not known before the call.
const nestName = "home"

// addGrants adds the rights on each file. It returns steps that check that file modes also let the cage's user reach the
// places.
func (l *layout) addGrants(p *plan, r ruleset) (reach []step) {
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
		p.addStep("landlock", inside.Grant, []uint64{from, b.dev, b.ino, rights & r.files}, target)
	}
	return reach
}

// checkEnforceable refuses a layout that Landlock cannot enforce: it grants rights on a tree and cannot take any away beneath.
func (l *layout) checkEnforceable(j *Jail) error {
	if l.proc {
		return bailey.Unavailable.New("no jail: layer proc-private: without namespaces the call cannot have its own /proc",
			"use a capability that needs no /proc, or a host with namespaces: "+j.lesser)
	}
	for _, m := range l.masks {
		over, ok := l.bindAbove(m)
		if info, err := os.Lstat(m); !ok || os.IsNotExist(err) || err == nil && info.Mode()&os.ModeSymlink != 0 {
			continue // the target of a symlink is a mask of its own
		}
		return bailey.Denied.New(m+" is masked, is in "+over.target+" and cannot be hidden without namespaces",
			"keep "+m+" out of the workspace, or use a host with namespaces: "+j.lesser)
	}
	if len(l.lent) > 0 {
		return bailey.Unavailable.New("no jail: layer tmp-private: without mounts no file can be lent in memory: "+
			l.lent[0],
			"use a host with namespaces: "+j.lesser)
	}
	for target, b := range l.binds {
		if b.frozen != nil {
			return bailey.Denied.New(target+
				" cannot be kept as a person was shown it: without mounts no copy can replace it",
				"use a host with namespaces: "+j.lesser)
		}
		if b.copy != nil {
			return bailey.Denied.New(target+
				" is not run: users other than root can write it, and without mounts no copy can replace it",
				"install the program and its directories as root, or use a host with namespaces: "+j.lesser)
		}
		if b.dir && (containsPath(target, j.nests) || containsPath(j.nests, target)) {
			return bailey.Denied.New(target+" is not shown: it contains the private directories of calls",
				"name a directory below it, or set TMPDIR of the gateway to one elsewhere")
		}
	}
	return nil
}

// lacksLesser returns the gaps that the kernel's Landlock ABI, or a call's helpers, leave.
func lacksLesser(abi int, once bool) []string {
	_, names := supportedRuleset(abi)
	if !once {
		names = append(names, loaderOpen)
	}
	return names
}

// loaderOpen is the gap if a tool may execute helpers: no mount is noexec, so a dynamic loader, which is pinned as
// their interpreter, executes any file that it can read.
const loaderOpen = "exec-once: a dynamic loader executes files that the call may read"

// execFilter asks the keeper about execve and execveat, and nothing else. The other filter ends a process that uses
// another system call table.
func execFilter(a architecture) []uint64 {
	const ask = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	if a.audit == 0 {
		return nil
	}
	var c code
	c.addInstruction(opLoad, numberAt)
	c.addJump(opEqual, uint32(call{"execve", 59, 221}.numberOn(a)), 1, 0)
	c.addJump(opEqual, uint32(call{"execveat", 322, 281}.numberOn(a)), 0, 1)
	c.addInstruction(opReturn, ask)
	c.addInstruction(opReturn, allow)
	return c
}
