package inside

import (
	"syscall"
	"unsafe"
)

// rulesetFD is the Landlock ruleset under construction (landlock(7)).
var rulesetFD uintptr

// createRuleset passes struct landlock_ruleset_attr. An older kernel accepts the longer form if the fields that it does
// not know are zero.
func createRuleset(n []uint64) (e syscall.Errno) {
	attr := [3]uint64{n[0], n[1], n[2]}
	rulesetFD, e = call6(sysCreateRuleset, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0, 0, 0)
	return e
}

// addRule grants rights on path and everything beneath.
func addRule(path string, rights uint64) syscall.Errno {
	fd, e := openPath(path)
	if e != 0 {
		return e
	}
	e = addRuleForFD(fd, rights)
	syscall.Close(int(fd))
	return e
}

func addRuleForFD(fd uintptr, rights uint64) syscall.Errno {
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	attr := struct {      // struct landlock_path_beneath_attr is packed: the padding after fd is not read
		rights uint64
		fd     int32
	}{rights, int32(fd)}
	_, e := call6(sysAddRule, rulesetFD, pathBeneath, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return e
}

// restrictSelf is permanent, for this thread and all processes it starts.
func restrictSelf() syscall.Errno {
	e := rawSyscall(sysRestrictSelf, rulesetFD, 0, 0)
	syscall.Close(int(rulesetFD))
	return e
}
