// Package battery is what the jail's tests run inside a cage: some two hundred probes that try to get out of it
// or to do harm, each of which the cage has to stop. No program links it.
//
// A probe is held when the kernel refused it with an error that means refusal, or when it saw for itself that
// there is nothing to be had; it is open when it got what it went for; it is odd when it did neither (a wrong
// argument, a crash, a time-out), which the tests count as a failure of the battery: a probe that cannot
// succeed proves nothing. What makes each probe succeed is shown by taking layers away (removal_test.go).
//
// Each probe runs in a process of its own, so that none can spoil the next. Outside a cage the battery
// refuses to run: umount2("/proc") as root really does it.
//
// The traps that well-known sandboxes fell into, by number, and what tries them:
//
//	 1  root outside            kernel/core-pattern, kernel/modprobe, TestHostUIDMustBeUsable
//	 2  the tool as PID 1       TestTimeout, TestCageByItsEffects
//	 3  a shared process group  process/session, process/signal-own-group
//	 4  what leaks into init    data/environment, data/descriptors, data/inherited-directory, data/read-proc-1-environ
//	 5  families of sockets     network/families, network/family-*
//	 6  ways around EXECUTE     exec/memfd, exec/loader-*, network/socket-in-readonly-place
//	 7  what is mounted later   exec/copy-in-tmp, exec/copy-in-home, mount/new-*
//	 8  a masked /proc          TestMaskedProc, mount/new-proc
//	 9  double forks            TestSurvivors, TestNothingSurvives
//	10  flags no filter sees    namespace/clone3-*, kernel/table-*, device/terminal-*, kernel/personality
//	11  a shared network        crossing/*, network/abstract-socket
//	12  what users meet         data/environment, data/secret, resource/*, network/metadata, TestManyStartsLeaveNothing
//	13  a battery let loose     TestBatteryRefusesOutside
//	14  tasks of all cages      resource/tasks, TestConcurrentStarts
//	15  no delegation           resource/memory-of-many, resource/shared-memory, resource/segments
//	16  ids of others           privilege/setuid, TestHostUIDMustBeUsable, TestOwnersAreMapped
//	17  scripts by descriptor   exec/script, exec/descriptor-by-proc
//	18  the loader and noexec   exec/loader-place-readonly, exec/loader-place-writable
//	19  what a repository runs  TestHostile, TestHostileRepositories
//	20  keys and connections    keyring/*, crossing/user-key, network/*
//	21  user namespaces         namespace/*, namespace/user-then-mount, TestNoUserNamespaces
package battery

// Env is the variable in which a Scene comes, as JSON.
const Env = "BAILEY_BATTERY"

// Leak is a variable of the gateway's that no cage may see.
const Leak = "BAILEY_BATTERY_SECRET"

// Fixed names within a place.
const (
	Note   = "note"      // a file with text
	Tool   = "tool"      // a copy of the battery, executable
	True   = "true"      // a copy of the helper, executable
	Lib    = "lib.so"    // a shared library
	Script = "script"    // runs the battery by its first line
	Stream = "stream"    // a listening socket
	Dgram  = "datagrams" // a socket that receives
	Pipe   = "fifo"      // a FIFO with a reader outside
	Link   = "link"      // a symlink to Scene.Secret
	Hidden = "hidden"    // a directory beneath a mask, with the file Inner in it
	Way    = "way"       // a symlink to Hidden
	Holder = "holder"    // a directory that holds another masked directory Hidden
	Inner  = "key"
)

// Scene is what the test set up outside for the probes to go for.
type Scene struct {
	Token  string   // random; the tests look for it afterwards
	Canary string   // a file of the host's with Token in it: whoever can read it is not in a cage
	Weak   []string // layers that this cage lacks on purpose
	Kind   string   // full or landlock
	Proc   bool     // the cage has a /proc
	Only   []string // names of the probes to run; none means all that share a run

	Maskless bool // nothing in the places is masked
	Net      bool // the cage has a network: sockets of its own loopback, and nobody there
	Wall     bool // the cage is an agent's

	Secret string // a file outside that everybody may read
	RO, RW string // places
	Home   string // HOME and the temporary directory in the cage
	Tmp    string

	Victim   int   // a process outside that has the tool's uid
	Pids     []int // of others outside: the gateway, its parent
	HostName string
	FD       int // an open directory of the host's that the gateway forgot to close on exec, or 0

	TCP, TCP6, UDP, Abstract string // addresses where somebody listens, "" where the host has none
	Key                      int    // of a SysV segment, semaphore and queue
	Queue                    string // of POSIX messages
	Shm                      string // a file in /dev/shm
	KeyName                  string // of keys in the gateway's keyrings
	KeyID                    int    // of one of them
	Planted                  int    // SysV key that a sibling cage uses

	Helper, Loader, Libc string // a declared program with its interpreter and a library of its
	Tasks                int    // how many there may be at most, the cage's own included
	Memory               int64  // bytes that all of the tool may use together
}

// Result is one line of output: one of Held, Open and Odd says what was seen.
type Result struct {
	Name string `json:"name"`
	Held string `json:"held,omitempty"`
	Open string `json:"open,omitempty"`
	Odd  string `json:"odd,omitempty"`
}
