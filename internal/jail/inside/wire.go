// Package inside is what runs as PID 1 of a cage: it reads a list of steps, applies them one by one,
// starts the tool, and ends with it, which ends everything else in the cage.
//
// It is entered by an init function, the only one in this program, when the process is PID 1 and its
// name is [Name]. It imports nothing but syscall and unsafe, so the Go runtime initialises it before
// the heavy packages of the program it is linked into: 3 ms from clone to tool in place of 8.
//
// Descriptor 3 is a stream socket to the gateway. From it come four bytes of length with the tool's
// streams and donated mounts and files as descriptors (unix(7), SCM_RIGHTS), the steps, and later perhaps [Term];
// its end means that the gateway is gone, and PID 1 follows at once. To it go
// reports of [ReportSize] bytes. Nothing of the tool's reaches PID 1 but wait statuses, and nothing
// secret lies in its environment: what the tool gets comes with the steps.
//
// The thread that applies the steps ends without capabilities and starts the tool from there. Other
// threads of the Go runtime may keep SYS_ADMIN and SETPCAP over this cage's own namespaces; they run
// nothing but the loop below, and PID 1 is undumpable, so the tool cannot trace it.
package inside

// Name is argv[0] of a cage's PID 1. Without namespaces a [Keeper] stands in its place, which ends all that
// descends from it, and a [Stage], which takes the steps upon itself and becomes the tool.
const (
	Name   = "bailey-jail"
	Keeper = "bailey-keeper"
	Stage  = "bailey-stage"
	Warm   = "bailey-warm" // builds its plan's cage again for each call: see warm_linux.go
)

// Socket is the descriptor of the gateway's stream.
const Socket = 3

// MaxDescriptors is how many descriptors come with a letter: what the kernel passes at once (SCM_MAX_FD).
const MaxDescriptors = 253

// MaxBytes bounds an encoded plan. Linux takes at most 6 MiB of arguments and environment.
const MaxBytes = 8 << 20

// Term, sent by the gateway, has SIGTERM sent to all that runs in the cage. End has a keeper end all of it:
// PID 1 is killed instead.
const (
	Term = 'T'
	End  = 'E'
)

// ByPath in a Grant says that no descriptor was donated.
const ByPath = ^uint64(0)

// A step is an operation, its numbers N and its words S. Paths are relative to the cage's root
// unless they begin with a slash: then they are the host's, and mean so until the pivot.
const (
	_           uint8 = iota
	Undump            // PID 1 cannot be traced or read by its own uid
	Signals           // every signal as it is by default
	Private           // nothing mounted here shows outside, nor the reverse
	Tmpfs             // S: target, options; N: mount flags
	Proc              // S: target, options; N: mount flags
	Enter             // S: directory that becomes the base of relative paths
	Dir               // S: path; N: mode
	File              // S: path, content; N: mode
	Link              // S: path, what it says
	Bind              // S: source, target; N: device, inode (0: not compared), attributes
	Donated           // S: "", target; N: which of the donated mounts
	Copy              // S: "", path; N: which of the donated files, mode, size
	Seal              // S: path; N: attributes set on the mount there
	Pivot             // the base becomes the root, the old root goes
	Host              // S: host name
	Rlimit            // N: resource, soft, hard
	Keyring           // an empty session keyring
	Bounding          // the bounding set becomes empty
	Securebits        // N: bits
	NoNewPrivs        // for good
	Caps              // all sets of this thread become empty
	Descriptors       // none above Socket; Socket does not survive exec
	Umask             // N: mask
	Chdir             // S: directory
	Filter            // N: the instructions of a seccomp program
	Narrow            // as Filter, of the calls that a warm helper needs and its tool does not
	Exec              // N: number of arguments, bytes of memory, 1 for a controlling terminal; S: file, arguments, environment
	Ruleset           // N: rights on files, on ports, scopes that a new Landlock ruleset handles
	Rule              // S: path; N: the rights on what lies there and beneath
	Restrict          // the ruleset holds for this thread and all it starts
	Ids               // N: uid, gid; no groups
	Reach             // S: path; N: what access(2) must grant there
	Grant             // S: what; N: which of the donated descriptors or [ByPath], device, inode (0: not compared), rights by the ruleset
	Home              // N: which of the donated descriptors becomes the working directory
	Tasks             // N: how many tasks the uid may have in all, for how many of this call's
	Leash             // this process ends with the keeper
	Once              // the next execve is the last one; the keeper sees to that
	Become            // N: number of arguments, bytes of memory, 1 where a terminal is to be the tool's; S: file, arguments, environment. This process becomes the tool
	Done              // ends the cage without having started anything
	Unshare           // N: namespaces that this thread leaves for new ones of its own
	Lend              // S: "", path; N: which of the donated files, mode, size
	Fresh             // as Tmpfs, of a directory that a warm helper makes anew for each call
	Loopback          // the loopback interface goes up
	Listen            // N: which of the listeners, IPv4 address, port; S: path, "" for an address. The gateway gets the socket
	Terminals         // S: target, options; N: mount flags. A devpts of its own
)

// Step is one operation with its arguments.
type Step struct {
	Op uint8
	N  []uint64
	S  []string
}

// ReportSize is the size of a report: its kind, then two little-endian 32-bit numbers.
const ReportSize = 9

// Kinds of report.
const (
	Failed  = 'F' // the number of the step, the errno; PID 1 ends
	Started = 'S' // the tool runs unless Failed follows, or Done was reached
	Exited  = 'X' // the tool's wait status, and from a helper the processor time it took, in µs; PID 1 ends

	Socketed = 'N' // which listener; with it comes its socket

	Listening = 'L' // a stage's to its keeper: with it comes a descriptor of seccomp(2)

	Ready  = 'R' // a helper's: it has built what stands; the address of its mailbox
	Parked = 'P' // a helper's: a tool is about to be executed, and waits for what with
	Unused = 'U' // a helper's: that tool ended without having been executed
	Gone   = 'G' // a helper's: nothing of the call is left
)

// Encode appends the wire form of steps to b, without the length in front.
func Encode(b []byte, steps []Step) []byte {
	b = put32(b, uint32(len(steps)))
	for _, s := range steps {
		b = append(b, s.Op)
		b = put32(b, uint32(len(s.N)))
		for _, n := range s.N {
			b = put32(put32(b, uint32(n)), uint32(n>>32))
		}
		b = put32(b, uint32(len(s.S)))
		for _, w := range s.S {
			b = append(put32(b, uint32(len(w))), w...)
		}
	}
	return b
}

// Decode reads what Encode wrote. It refuses anything short, long or larger than it says.
func Decode(b []byte) ([]Step, bool) {
	r := reader{b: b}
	steps := make([]Step, r.count(9)) // an empty step has nine bytes
	for i := range steps {
		s := &steps[i]
		s.Op = uint8(r.number(1))
		s.N = make([]uint64, r.count(8))
		for k := range s.N {
			s.N[k] = r.number(8)
		}
		s.S = make([]string, r.count(4))
		for k := range s.S {
			s.S[k] = string(r.take(r.count(1)))
		}
	}
	return steps, !r.bad && len(r.b) == 0
}

func put32(b []byte, n uint32) []byte {
	return append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

type reader struct {
	b   []byte
	bad bool
}

// take returns the next n bytes, nothing once the input has proved short.
func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	t := r.b[:n]
	r.b = r.b[n:]
	return t
}

// number reads n little-endian bytes.
func (r *reader) number(n int) uint64 {
	var v uint64
	for i, c := range r.take(n) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

// count reads how many items of at least size bytes follow, none when they cannot fit.
func (r *reader) count(size int) int {
	n := r.number(4)
	if n > uint64(len(r.b)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}
