//go:build linux

package jail

import (
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// Limits of a call if its manifest does not set others.
const (
	defaultTasks = 64
	defaultFiles = 1024
	defaultBytes = 1 << 30 // of one file
	defaultData  = 512 << 20
	stackBytes   = 8 << 20
	tmpBytes     = 256 << 20
	homeBytes    = 64 << 20
)

// boundedResources lists the resources that a plan bounds.
var boundedResources = [...]int{unix.RLIMIT_CORE, unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE, unix.RLIMIT_DATA,
	unix.RLIMIT_NPROC, unix.RLIMIT_STACK,
	unix.RLIMIT_MEMLOCK, unix.RLIMIT_RTPRIO, unix.RLIMIT_NICE, unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE}

// ownTasks is added to the tasks of a call: RLIMIT_NPROC counts threads per user and user namespace, and PID 1's own
// threads are counted there too. Ten were seen under the race detector, five without.
const ownTasks = 16

// ownData is added to the memory of a call: PID 1 runs under the same limit, with a heap arena of the Go runtime and,
// if the program was built with cgo, a stack of 8 MiB for each thread.
const ownData = 256 << 20

var rlimitNames = map[int]string{unix.RLIMIT_CORE: "core", unix.RLIMIT_NOFILE: "nofile", unix.RLIMIT_FSIZE: "fsize",
	unix.RLIMIT_DATA:  "data",
	unix.RLIMIT_NPROC: "nproc", unix.RLIMIT_STACK: "stack", unix.RLIMIT_MEMLOCK: "memlock",
	unix.RLIMIT_RTPRIO: "rtprio", unix.RLIMIT_NICE: "nice", unix.RLIMIT_SIGPENDING: "sigpending", unix.RLIMIT_MSGQUEUE: "msgqueue"}

// addAllLimits adds one step for each bounded resource. The user namespace is new, so the task limit counts this call alone.
// A cage cannot exceed the limits of the gateway itself (setrlimit(2)).
func (p *plan) addAllLimits(l bailey.Limits) {
	p.addCommonLimits(l)
	p.addLimit(unix.RLIMIT_NPROC, int64(l.Tasks), defaultTasks, ownTasks)
	p.addLimit(unix.RLIMIT_DATA, l.MemoryBytes, defaultData, ownData)
}

// tasksFor returns how many tasks the tool of a lesser cage may add to those that its user already has and to those of
// the keepers and stages of concurrent calls: the kernel counts all of them together there. Concurrent calls share what
// is added.
func tasksFor(l bailey.Limits) int {
	if l.Tasks > 0 {
		return l.Tasks
	}
	return defaultTasks
}

// addCommonLimits adds the limits under which PID 1 itself can run.
func (p *plan) addCommonLimits(l bailey.Limits) {
	for _, r := range []struct {
		resource int
		want     int64
		builtin  int64
	}{
		// One byte. No limit, not even 0, bounds a dump that core_pattern pipes to a program of the host; only a limit
		// of 1 keeps the kernel from starting that program (core(5), fs/coredump.c). No dump file is made either: it
		// would need at least a page.
		{unix.RLIMIT_CORE, 0, 1},
		{unix.RLIMIT_NOFILE, int64(l.OpenFiles), defaultFiles},
		{unix.RLIMIT_FSIZE, l.FileBytes, defaultBytes},
		{unix.RLIMIT_STACK, 0, stackBytes},
		{unix.RLIMIT_MEMLOCK, 0, 64 << 10},
		{unix.RLIMIT_RTPRIO, 0, 0},
		{unix.RLIMIT_NICE, 0, 0},
		// this and the next are also counted per user on the whole machine (setrlimit(2))
		{unix.RLIMIT_SIGPENDING, 0, 1024},
		{unix.RLIMIT_MSGQUEUE, 0, 256 << 10},
	} {
		p.addLimit(r.resource, r.want, r.builtin, 0)
	}
}

// isDumpExposed tells whether the memory of a crashing tool reaches the target of the host's core_pattern whatever its cage
// sets. A socket gets the dump whatever the limit is (core(5), since Linux 6.16). A program gets it if the hard limit
// of this process is 0, since 0 does not stop that dump.
func isDumpExposed(pattern string, most uint64) bool {
	return strings.HasPrefix(pattern, "@") || strings.HasPrefix(pattern, "|") && most == 0
}

// dataLimit returns the bound on the private writable memory of each process of the tool (setrlimit(2)). PID 1 sets it
// exactly on the tool as soon as the tool exists; until then PID 1's own, wider bound applies.
func (p *plan) dataLimit(l bailey.Limits) uint64 {
	want := l.MemoryBytes
	if want <= 0 {
		want = defaultData
	}
	return min(uint64(want), p.ceiling(unix.RLIMIT_DATA))
}

func (p *plan) addLimit(resource int, want, builtin, extra int64) {
	if want <= 0 {
		want = builtin
	}
	n := uint64(want + extra)
	n = min(n, p.ceiling(resource))
	p.addStep("rlimits", inside.Rlimit, []uint64{uint64(resource), n, n})
}

// ownCeiling returns the hard limit of this process.
func ownCeiling(resource int) uint64 {
	var own unix.Rlimit
	if unix.Getrlimit(resource, &own) != nil {
		return 0
	}
	return own.Max
}
