package inside

import (
	"syscall"
	"unsafe"
)

// rules is the Landlock ruleset in the making (landlock(7)).
var rules uintptr

// createRuleset hands over struct landlock_ruleset_attr. An older kernel takes the longer form as long as
// what it does not know is zero.
func createRuleset(n []uint64) (e syscall.Errno) {
	attr := [3]uint64{n[0], n[1], n[2]}
	rules, e = call6(sysCreateRuleset, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0, 0, 0)
	return e
}

// addRule gives rights on what lies at path and beneath.
func addRule(path string, rights uint64) syscall.Errno {
	fd, e := open(path)
	if e != 0 {
		return e
	}
	e = allow(fd, rights)
	syscall.Close(int(fd))
	return e
}

func allow(fd uintptr, rights uint64) syscall.Errno {
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	attr := struct {      // struct landlock_path_beneath_attr is packed: the padding after fd is not read
		rights uint64
		fd     int32
	}{rights, int32(fd)}
	_, e := call6(sysAddRule, rules, pathBeneath, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return e
}

// restrictSelf is for good, for this thread and what it starts.
func restrictSelf() syscall.Errno {
	e := call(sysRestrictSelf, rules, 0, 0)
	syscall.Close(int(rules))
	return e
}
