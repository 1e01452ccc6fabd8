package inside

// A warm helper builds once the parts of a cage that no tool can change, and all others anew for each call. It serves
// the calls of one plan, one at a time, and is PID 1 of its own namespace, so that every process it started ends with
// it.
//
// From the gateway it gets, on [Socket]: a start request, which is the [DigestSize] bytes of its plan's digest and the
// plan's steps; then for each call one byte, [Arm], with two descriptors, the leash and the mailbox. It answers the
// start request with [Ready] and the digest. It answers each Arm with [Parked] before there is a tool, then reports the
// end of the tool with [Exited], [Failed] or [Unused], and the end of all processes that the tool has left with [Gone].
// After Failed it ends.
//
// Between Parked and its end a call does not involve the helper. The tool's process waits at its mailbox, a
// SOCK_SEQPACKET socket, for one message, the bytes of [Mail] with the tool's three streams, and executes its program.
// PID 1 of the call's namespace waits at the leash: if a byte arrives, it sends SIGTERM to all other processes there;
// the end of the leash ends the call. So if the gateway ends, the call ends too.

// Arm, sent by the gateway, makes a helper build a cage and prepare a tool in it.
const Arm = 'A'

// DigestSize is the size of a plan's digest, which helper and gateway exchange before the first call.
const DigestSize = 32

// A mailbox has this layout, from the address in Ready: two arrays of addresses, each ended by a zero, and the strings
// at these addresses, each ended by a NUL.
const (
	MailSize = 64 << 10
	maxWords = 512 // in each array, with the zero
	argvAt   = 0
	envAt    = argvAt + 8*maxWords
	wordsAt  = envAt + 8*maxWords
)

// Mail returns the message for a mailbox at base: the arguments and the environment of the program. It returns false if
// they do not fit, or contain a NUL.
func Mail(base uint64, argv, env []string) ([]byte, bool) {
	if len(argv) == 0 || len(argv) >= maxWords || len(env) >= maxWords {
		return nil, false
	}
	b := make([]byte, wordsAt, wordsAt+4<<10)
	for _, list := range [...]struct {
		at    int
		words []string
	}{{argvAt, argv}, {envAt, env}} {
		for i, w := range list.words {
			if len(w) >= MailSize-len(b) {
				return nil, false
			}
			for _, c := range []byte(w) {
				if c == 0 {
					return nil, false
				}
			}
			put64(b[list.at+8*i:], base+uint64(len(b)))
			b = append(append(b, w...), 0)
		}
	}
	return b, true
}

func put64(b []byte, n uint64) {
	for i := range 8 {
		b[i] = byte(n >> (8 * i))
	}
}

// When a helper carries out a step.
const (
	never    = iota // not at all: it is for other kinds of cages
	standing        // once, before the first call
	fresh           // for each call, by the helper, in the call's own namespaces
	last            // for each call, by the tool's process
	needless        // not at all: its purpose is met otherwise
)

// stepTimes holds the time of each operation. Operations that are not listed have never.
var stepTimes = [64]uint8{
	Undump: standing, Private: standing, Tmpfs: standing, Enter: standing, Dir: standing, File: standing,
	Link: standing,
	Bind: standing, Donated: standing, Copy: standing, Seal: standing, Pivot: standing, Host: standing,
	Rlimit:   standing,
	Bounding: standing, Securebits: standing, NoNewPrivs: standing, Filter: standing, Umask: standing,

	Fresh: fresh, Chdir: fresh, Ruleset: fresh, Rule: fresh,

	Unshare: last, Keyring: last, Caps: last, Restrict: last, Narrow: last, Exec: last,

	Signals:     needless, // the helper resets ignored signals to default, and its children start without handlers
	Descriptors: needless, // each child closes by range the descriptors it inherited
}

// Warmable tells whether a helper can serve a plan.
func Warmable(steps []Step) bool {
	for i, s := range steps {
		if int(s.Op) >= len(stepTimes) || stepTimes[s.Op] == never || (s.Op == Exec) != (i == len(steps)-1) ||
			s.Op == Exec && len(s.N) > 2 && s.N[2] != 0 {
			return false
		}
	}
	return len(steps) > 0
}
