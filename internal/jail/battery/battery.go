// Package battery contains the probes that the jail's tests run inside a cage: some two hundred attempts to escape or
// to do harm, each of which the cage must stop. No program links it.
//
// A probe is held if the kernel refused it with an error that means refusal, or if the probe itself saw that its target
// is not available. It is open if it reached its target. It is odd in all other cases (a wrong argument, a crash, a
// time-out), which the tests count as a failure of the battery: a probe that cannot succeed proves nothing.
// removal_test.go takes layers away and so shows what makes each probe succeed.
//
// Each probe runs in its own process, so that none can disturb the next. Outside a cage the battery refuses to run:
// umount2("/proc") as root would take effect.
//
// Known pitfalls of sandboxes, called traps here, by number, and the probes and tests that try them:
//
//	 1  root outside            kernel/core-pattern, kernel/modprobe, TestHostUIDMustBeUsable
//	 2  the tool as PID 1       TestTimeout, TestCageByItsEffects
//	 3  a shared process group  process/session, process/signal-own-group
//	 4  leaks into init         data/environment, data/descriptors, data/inherited-directory, data/read-proc-1-environ
//	 5  families of sockets     network/families, network/family-*
//	 6  ways around EXECUTE     exec/memfd, exec/loader-*, network/socket-in-readonly-place
//	 7  later mounts            exec/copy-in-tmp, exec/copy-in-home, mount/new-*
//	 8  a masked /proc          TestMaskedProc, mount/new-proc
//	 9  double forks            TestSurvivors, TestNothingSurvives
//	10  flags no filter sees    namespace/clone3-*, kernel/table-*, device/terminal-*, kernel/personality
//	11  a shared network        crossing/*, network/abstract-socket
//	12  problems of users       data/environment, data/secret, resource/*, network/metadata, TestManyStartsLeaveNothing
//	13  battery outside a cage  TestBatteryRefusesOutside
//	14  tasks of all cages      resource/tasks, TestConcurrentStarts
//	15  no delegation           resource/memory-of-many, resource/shared-memory, resource/segments
//	16  ids of others           privilege/setuid, TestHostUIDMustBeUsable, TestOwnersAreMapped
//	17  scripts by descriptor   exec/script, exec/descriptor-by-proc
//	18  the loader and noexec   exec/loader-place-readonly, exec/loader-place-writable
//	19  code of repositories    TestHostile, TestHostileRepositories
//	20  keys and connections    keyring/*, crossing/user-key, network/*
//	21  user namespaces         namespace/*, namespace/user-then-mount, TestNoUserNamespaces
package battery

// Env is the variable that contains a Scene, as JSON.
const Env = "BAILEY_BATTERY"

// Leak is a variable of the gateway that no cage may see.
const Leak = "BAILEY_BATTERY_SECRET"

// Fixed names in a place.
const (
	Note   = "note"      // a file with text
	Tool   = "tool"      // a copy of the battery, executable
	True   = "true"      // a copy of the helper, executable
	Lib    = "lib.so"    // a shared library
	Script = "script"    // its first line runs the battery
	Stream = "stream"    // a listening socket
	Dgram  = "datagrams" // a socket that receives
	Pipe   = "fifo"      // a FIFO with a reader outside
	Link   = "link"      // a symlink to Scene.Secret
	Hidden = "hidden"    // a masked directory that contains the file Inner
	Way    = "way"       // a symlink to Hidden
	Holder = "holder"    // a directory that contains another masked directory Hidden
	Inner  = "key"
)

// Scene is the set-up outside the cage, with the targets of the probes.
type Scene struct {
	Token  string   // random; the tests search for it afterwards
	Canary string   // a file of the host with Token in it: a process that can read it is not in a cage
	Weak   []string // layers that this cage lacks on purpose
	Lent   []string // variables of lent credentials, which the cage sets
	Kind   string   // full or landlock
	Proc   bool     // the cage has a /proc
	Only   []string // names of the probes to run; empty means all that share a run

	Maskless bool // no path in the places is masked
	Net      bool // the cage has a network: its own loopback, without a peer
	Wall     bool // the cage is an agent jail

	Secret string // a file outside that every user may read
	RO, RW string // places
	Home   string // HOME and the temporary directory in the cage
	Tmp    string

	Victim   int   // a process outside with the tool's uid
	Pids     []int // other processes outside: the gateway, its parent
	HostName string
	FD       int // an open directory of the host that the gateway forgot to close on exec, or 0

	TCP, TCP6, UDP, Abstract string // addresses with a listener, "" if the host has none
	Key                      int    // of a SysV segment, semaphore and queue
	Queue                    string // of POSIX messages
	Shm                      string // a file in /dev/shm
	KeyName                  string // of keys in the gateway's keyrings
	KeyID                    int    // of one of these keys
	Planted                  int    // SysV key that another cage uses

	Helper, Loader, Libc string // a declared program, its interpreter and one of its libraries
	Tasks                int    // maximum number, including the cage's own
	Memory               int64  // bytes that the tool as a whole may use
}

// Result is one line of output: one of Held, Open and Odd describes the outcome.
type Result struct {
	Name string `json:"name"`
	Held string `json:"held,omitempty"`
	Open string `json:"open,omitempty"`
	Odd  string `json:"odd,omitempty"`
}
