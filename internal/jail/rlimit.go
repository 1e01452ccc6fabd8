//go:build linux

package jail

import (
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// What a call may use unless its manifest says otherwise.
const (
	defaultTasks = 64
	defaultFiles = 1024
	defaultBytes = 1 << 30 // of one file
	defaultData  = 512 << 20
	stackBytes   = 8 << 20
	tmpBytes     = 256 << 20
	homeBytes    = 64 << 20
)

// bounded are the resources that a plan bounds.
var bounded = [...]int{unix.RLIMIT_CORE, unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE, unix.RLIMIT_DATA, unix.RLIMIT_NPROC, unix.RLIMIT_STACK,
	unix.RLIMIT_MEMLOCK, unix.RLIMIT_RTPRIO, unix.RLIMIT_NICE, unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE}

// ownTasks is added to a call's tasks: RLIMIT_NPROC counts threads per user and user namespace, and
// PID 1's own live there too. Ten were seen under the race detector, five without.
const ownTasks = 16

// ownData is added to a call's memory: PID 1 lives under the same limit, with a heap arena of the Go
// runtime and a stack of 8 MiB for each of its threads where the program was built with cgo.
const ownData = 256 << 20

var rlimitNames = map[int]string{unix.RLIMIT_CORE: "core", unix.RLIMIT_NOFILE: "nofile", unix.RLIMIT_FSIZE: "fsize", unix.RLIMIT_DATA: "data",
	unix.RLIMIT_NPROC: "nproc", unix.RLIMIT_STACK: "stack", unix.RLIMIT_MEMLOCK: "memlock",
	unix.RLIMIT_RTPRIO: "rtprio", unix.RLIMIT_NICE: "nice", unix.RLIMIT_SIGPENDING: "sigpending", unix.RLIMIT_MSGQUEUE: "msgqueue"}

// limits adds one step for each bounded resource. The namespace is fresh, so the task limit is this
// call's alone. A cage cannot raise what the gateway itself is held to (setrlimit(2)).
func (p *plan) limits(l bailey.Limits) {
	p.common(l)
	p.limit(unix.RLIMIT_NPROC, int64(l.Tasks), defaultTasks, ownTasks)
	p.limit(unix.RLIMIT_DATA, l.MemoryBytes, defaultData, ownData)
}

// tasksFor is what the lesser cage's tool may have beside the tasks that its user has already, and those of
// the keepers and stages of calls at once: there the kernel counts all of them. Calls share what they add.
func tasksFor(l bailey.Limits) int {
	if l.Tasks > 0 {
		return l.Tasks
	}
	return defaultTasks
}

// common are the limits that PID 1 does not have to live under, or can.
func (p *plan) common(l bailey.Limits) {
	for _, r := range []struct {
		resource int
		want     int64
		builtin  int64
	}{
		// One byte. No limit bounds a dump that core_pattern pipes to a program of the host's, not even 0; only with 1 does the kernel
		// not start that program (core(5), fs/coredump.c). No dump file is made either: it would need a page at least.
		{unix.RLIMIT_CORE, 0, 1},
		{unix.RLIMIT_NOFILE, int64(l.OpenFiles), defaultFiles},
		{unix.RLIMIT_FSIZE, l.FileBytes, defaultBytes},
		{unix.RLIMIT_STACK, 0, stackBytes},
		{unix.RLIMIT_MEMLOCK, 0, 64 << 10},
		{unix.RLIMIT_RTPRIO, 0, 0},
		{unix.RLIMIT_NICE, 0, 0},
		{unix.RLIMIT_SIGPENDING, 0, 1024}, // both are counted for the user on the whole machine too (setrlimit(2))
		{unix.RLIMIT_MSGQUEUE, 0, 256 << 10},
	} {
		p.limit(r.resource, r.want, r.builtin, 0)
	}
}

// dumped tells whether the memory of a tool that crashes reaches what the host's core_pattern names, whatever its cage sets: a socket is
// given it whatever the limit is (core(5), since Linux 6.16), and a program where this process is held to a limit of 0, which is none.
func dumped(pattern string, most uint64) bool {
	return strings.HasPrefix(pattern, "@") || strings.HasPrefix(pattern, "|") && most == 0
}

// data is the bound on the private writable memory of each process of the tool (setrlimit(2)), which
// PID 1 sets exactly on the tool as soon as that exists; until then its own, wider bound holds.
func (p *plan) data(l bailey.Limits) uint64 {
	want := l.MemoryBytes
	if want <= 0 {
		want = defaultData
	}
	return min(uint64(want), p.ceiling(unix.RLIMIT_DATA))
}

func (p *plan) limit(resource int, want, builtin, extra int64) {
	if want <= 0 {
		want = builtin
	}
	n := uint64(want + extra)
	n = min(n, p.ceiling(resource))
	p.add("rlimits", inside.Rlimit, []uint64{uint64(resource), n, n})
}

// ownCeiling is the hard limit this process is held to.
func ownCeiling(resource int) uint64 {
	var own unix.Rlimit
	if unix.Getrlimit(resource, &own) != nil {
		return 0
	}
	return own.Max
}
