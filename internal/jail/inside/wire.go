// Package inside runs as PID 1 of a cage: it reads a list of steps, applies them one by one, starts the tool, and ends
// with it, which ends every other process in the cage.
//
// An init function, the only one in this program, enters it if the process is PID 1 and its name is [Name]; the other
// roles have other names, such as [Keeper]. The package must import only syscall and unsafe, so that the Go runtime
// initialises it before the heavy packages of the program: 3 ms from clone to tool instead of 8.
//
// Descriptor 3 is a stream socket to the gateway. From it come four bytes of length with the tool's streams and donated
// mounts and files as descriptors (unix(7), SCM_RIGHTS), the steps, and later perhaps [Term]. If the stream ends, the
// gateway is gone, and PID 1 must end at once. PID 1 writes reports of [ReportSize] bytes to it. From the tool PID 1
// receives only wait statuses, and its own environment contains no secret: the environment of the tool comes with the
// steps.
//
// The thread that applies the steps ends without capabilities and starts the tool. Other threads of the Go runtime may
// keep PID 1's capabilities, such as SYS_ADMIN and SETPCAP, over this cage's own namespaces; they run only obey, and
// PID 1 is undumpable, so the tool cannot trace it.
package inside

// Name is argv[0] of a cage's PID 1. If there are no namespaces, a [Keeper] replaces it, which ends all its
// descendants, and a [Stage], which applies the steps to itself and becomes the tool.
const (
	Name   = "bailey-jail"
	Keeper = "bailey-keeper"
	Stage  = "bailey-stage"
	Warm   = "bailey-warm" // builds the cage of its plan for each call: see warm_linux.go
)

// Socket is the descriptor of the gateway's stream.
const Socket = 3

// MaxDescriptors is the number of descriptors that a start request may carry: the kernel's limit for one message
// (SCM_MAX_FD).
const MaxDescriptors = 253

// MaxBytes bounds an encoded plan. Linux takes at most 6 MiB of arguments and environment.
const MaxBytes = 8 << 20

// Term, sent by the gateway, makes PID 1 or the keeper send SIGTERM to every process in the cage. End makes a keeper
// end all of them; PID 1 is killed instead.
const (
	Term = 'T'
	End  = 'E'
)

// ByPath in a Grant says that no descriptor was donated.
const ByPath = ^uint64(0)

// A step is an operation, its numbers N and its strings S. A path is relative to the root of the cage unless it begins
// with a slash: then it is a path of the host until the pivot.
const (
	_           uint8 = iota
	Undump            // PID 1 cannot be traced or read by its own uid
	Signals           // every signal gets its default action or is ignored
	Private           // mounts made here are not visible outside, nor the reverse
	Tmpfs             // S: target, options; N: mount flags
	Proc              // S: target, options; N: mount flags
	Enter             // S: directory that becomes the base of relative paths
	Dir               // S: path; N: mode
	File              // S: path, content; N: mode
	Link              // S: path, target
	Bind              // S: source, target; N: device, inode (0: not compared), attributes
	Donated           // S: "", target; N: index of the donated mount
	Copy              // S: "", path; N: index of the donated file, mode, size
	Seal              // S: path; N: attributes set on the mount there
	Pivot             // the base becomes the root, the old root is detached
	Host              // S: host name
	Rlimit            // N: resource, soft, hard
	Keyring           // an empty session keyring
	Bounding          // the bounding set becomes empty
	Securebits        // N: bits
	NoNewPrivs        // permanently
	Caps              // all sets of this thread become empty
	Descriptors       // none above Socket; Socket does not survive exec
	Umask             // N: mask
	Chdir             // S: directory
	Filter            // N: the instructions of a seccomp program
	Narrow            // as Filter, for the calls that a warm helper needs but its tool does not
	Exec              // N: number of arguments, bytes of memory, 1 for a controlling terminal; S: file, arguments, environment
	Ruleset           // N: rights on files, on ports, scopes that a new Landlock ruleset handles
	Rule              // S: path; N: the rights on it and everything beneath
	Restrict          // the ruleset applies to this thread and all processes it starts
	Ids               // N: uid, gid; no groups
	Reach             // S: path; N: what access(2) must grant there
	// S: path; N: index of the donated descriptor or [ByPath], device, inode (0: not compared), rights by the ruleset
	Grant
	Home  // N: index of the donated descriptor that becomes the working directory
	Tasks // N: limit on all tasks of the uid, tasks of this call in that
	Leash // this process ends with the keeper
	Once  // the next execve must be the last; the keeper enforces that
	// This process becomes the tool. N: number of arguments, bytes of memory, 1 for a controlling terminal; S: file,
	// arguments, environment
	Become
	Done      // ends the cage without having started a tool
	Unshare   // N: namespaces of which this thread gets new ones
	Lend      // S: "", path; N: index of the donated file, mode, size
	Fresh     // as Tmpfs, for a directory that a warm helper makes anew for each call
	Loopback  // brings the loopback interface up
	Listen    // N: index of the listener, IPv4 address, port; S: path, "" for an address. The gateway gets the socket
	Terminals // S: target, options; N: mount flags. A new devpts
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

	Socketed = 'N' // index of the listener; its socket comes with the report

	Listening = 'L' // from a stage to its keeper, with a descriptor of seccomp(2)

	Ready  = 'R' // from a helper: the steps that are done once are done; the address of its mailbox
	Parked = 'P' // from a helper: a tool's process is about to wait for its message
	Unused = 'U' // from a helper: that process ended without executing the tool
	Gone   = 'G' // from a helper: no process of the call is left
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

// Decode reads the output of Encode. It refuses input that is too short, too long or inconsistent with its counts.
func Decode(b []byte) ([]Step, bool) {
	r := planReader{b: b}
	steps := make([]Step, r.readCount(9)) // an empty step has nine bytes
	for i := range steps {
		s := &steps[i]
		s.Op = uint8(r.readUint(1))
		s.N = make([]uint64, r.readCount(8))
		for k := range s.N {
			s.N[k] = r.readUint(8)
		}
		s.S = make([]string, r.readCount(4))
		for k := range s.S {
			s.S[k] = string(r.takeBytes(r.readCount(1)))
		}
	}
	return steps, !r.bad && len(r.b) == 0
}

func put32(b []byte, n uint32) []byte {
	return append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

type planReader struct {
	b   []byte
	bad bool
}

// takeBytes returns the next n bytes, or nil if the input was too short.
func (r *planReader) takeBytes(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	t := r.b[:n]
	r.b = r.b[n:]
	return t
}

// readUint reads n little-endian bytes.
func (r *planReader) readUint(n int) uint64 {
	var v uint64
	for i, c := range r.takeBytes(n) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

// readCount reads how many items of at least size bytes follow. It returns 0 if they cannot fit.
func (r *planReader) readCount(size int) int {
	n := r.readUint(4)
	if n > uint64(len(r.b)/size) {
		r.bad = true
		return 0
	}
	return int(n)
}
