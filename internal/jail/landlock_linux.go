package jail

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"bailey/internal/jail/inside"
)

// landlockABI asks the kernel for its edition of Landlock, 0 where there is none (landlock(7)).
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// absent names Landlock where there is none, lacks what the edition at hand, or the lie of the places, leaves open.
func absent(abi int) []string {
	if abi == 0 {
		return []string{"landlock"}
	}
	return nil
}

func (l *layout) lacks(abi int) []string {
	if abi == 0 {
		return l.waived(abi) // all of it is absent
	}
	_, names := handled(abi)
	names = append(names, l.waived(abi)...)
	for target, b := range l.binds {
		own := above(tmpDir, target) || above(homeDir, target)
		if own && b.place != nil && b.attrs&readOnly != 0 {
			return append(names, pipesBeneath)
		}
	}
	return names
}

// pipesBeneath is what is left open where a place that is only read lies beneath the cage's own /tmp or home:
// Landlock's rights hold for all that is mounted beneath, and a read-only mount does not keep a FIFO from
// being written.
const pipesBeneath = "landlock write-file on pipes in a place beneath " + tmpDir + " or " + homeDir

// confine adds the Landlock steps. All of the cage's root may be read: it holds nothing but what was
// declared. Executed are the pinned programs and nothing else, be it mapped, copied or found; written are
// the cage's own directories, the places the call writes, and three devices. Nothing is connected to, but in a cage
// with a network.
func (l *layout) confine(p *plan, abi int) {
	if abi == 0 {
		return
	}
	handled, _ := handled(abi)
	if l.inet() {
		handled.ports = 0 // what there is to connect to is the namespace's own, and that is the wall
	}
	if l.unix() && abi >= resolveEdition {
		handled.files |= mayResolveUnix
	}
	p.add("landlock", inside.Ruleset, []uint64{handled.files, handled.ports, handled.scoped})
	allow := func(path string, rights uint64) {
		if rights &= handled.files; rights != 0 { // a rule for nothing is ENOMSG
			p.add("landlock", inside.Rule, []uint64{rights}, path)
		}
	}
	allow("/", mayRead)
	allow(tmpDir, mayOwn)
	allow(homeDir, mayOwn)
	for _, target := range slices.Sorted(maps.Keys(l.binds)) {
		switch b := l.binds[target]; {
		case b.run:
			allow(target, mayExecute|mayReadFile)
		case b.device && target != "/dev/random" && target != "/dev/urandom":
			allow(target, mayReadFile|mayWriteFile)
		case b.place != nil && b.attrs&readOnly == 0 && b.dir:
			allow(target, mayRead|mayChange)
		case b.place != nil && b.attrs&readOnly == 0:
			allow(target, mayReadFile|mayWriteFile|mayTruncate)
		}
	}
	l.allowMore(allow)
	p.add("landlock", inside.Restrict, nil)
}
