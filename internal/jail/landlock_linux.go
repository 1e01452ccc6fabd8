package jail

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"bailey/internal/jail/inside"
)

// landlockABI returns the Landlock ABI of the kernel, or 0 without Landlock (landlock(7)).
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// absentLandlock names Landlock if the kernel does not have it. lacks names the gaps that its ABI, or the position of the
// places, leaves.
func absentLandlock(abi int) []string {
	if abi == 0 {
		return []string{"landlock"}
	}
	return nil
}

func (l *layout) landlockGaps(abi int) []string {
	if abi == 0 {
		return l.waivedParts(abi) // Landlock as a whole is absent
	}
	_, names := supportedRuleset(abi)
	names = append(names, l.waivedParts(abi)...)
	for target, b := range l.binds {
		own := containsPath(tmpDir, target) || containsPath(homeDir, target)
		if own && b.place != nil && b.attrs&readOnly != 0 {
			return append(names, pipesBeneath)
		}
	}
	return names
}

// pipesBeneath is the gap if a read-only place lies beneath the cage's own /tmp or home: Landlock's rights hold for
// everything that is mounted beneath, and a read-only mount does not prevent writing to a FIFO.
const pipesBeneath = "landlock write-file on pipes in a place beneath " + tmpDir + " or " + homeDir

// addLandlockSteps adds the Landlock steps. The whole root of the cage may be read, since it contains only declared files. Only
// the pinned programs may be executed, and no file that was mapped, copied or found. Only the cage's own directories,
// the places that the call writes, and three devices may be written. Connections are refused, unless the cage has a
// network.
func (l *layout) addLandlockSteps(p *plan, abi int) {
	if abi == 0 {
		return
	}
	handled, _ := supportedRuleset(abi)
	if l.canUseInet() {
		handled.ports = 0 // only the namespace's own sockets can be reached, so the namespace is the boundary
	}
	if l.canUseUnix() && abi >= resolveEdition {
		handled.files |= mayResolveUnix
	}
	p.addStep("landlock", inside.Ruleset, []uint64{handled.files, handled.ports, handled.scoped})
	allow := func(path string, rights uint64) {
		if rights &= handled.files; rights != 0 { // a rule without rights fails with ENOMSG
			p.addStep("landlock", inside.Rule, []uint64{rights}, path)
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
	p.addStep("landlock", inside.Restrict, nil)
}
