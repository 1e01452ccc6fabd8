package jail

import "runtime"

// A profile says which cage a filter is for. Its zero value is the strictest filter of the full cage.
type profile struct {
	Inet bool // sockets of TCP and UDP
	Unix bool // sockets of the machine
	// Shared is for a cage without pid, ipc and user namespaces of its own, where Landlock alone stands
	// before files: it knows contents and names, and neither modes, owners, times nor attributes.
	Shared bool
	// Watches lets the tool watch files. Instances and watches are counted for the user on the whole machine, so a call has none;
	// an agent's programs want them.
	Watches bool
	// Helper leaves what a warm helper needs itself. A second program takes that from the tool: see narrow.
	Helper bool
	// NoSignals is for a Shared cage on a kernel whose Landlock has no scope for signals (before ABI 6).
	// What is left is kill(0, …), which reaches the process group: that must be the tool's own, and no
	// other of its session may be. The C library's raise and abort use tgkill: raise answers EPERM, and
	// abort ends by a machine trap instead, as SIGSEGV. A shell cannot end its jobs.
	NoSignals bool
}

// An architecture is a table of system calls, as seccomp sees it (linux/audit.h).
type architecture struct {
	name  string // as in runtime.GOARCH
	audit uint32
	// known are the numbers that meant something when the table was written, from and to. All others
	// answer ENOSYS: a call invented later is looked at before it is let through.
	known [][2]uint32
	// x32 is where the numbers of a second table behind the same audit value begin; zero: there is none.
	x32 uint32
}

// newest is the last number known, rseq_slice_yield of Linux 7.0. From 424 on all architectures count alike.
const newest = 471

var architectures = [...]architecture{
	{name: "amd64", audit: 0xc000003e, known: [][2]uint32{{0, 336}, {424, newest}}, x32: 1 << 30},
	{name: "arm64", audit: 0xc00000b7, known: [][2]uint32{{0, 243}, {260, 294}, {424, newest}}},
}

// here is the architecture this program runs on; one without a name has no filter.
func here() architecture {
	for _, a := range architectures {
		if a.name == runtime.GOARCH {
			return a
		}
	}
	return architecture{}
}

// Verdicts of a filter (linux/seccomp.h) with the errno in the low bits.
const (
	kill  uint32 = 0x80000000 // the process
	allow uint32 = 0x7fff0000
	errno uint32 = 0x00050000

	eperm   = errno | 1
	eacces  = errno | 13
	enosys  = errno | 38
	enotsup = errno | 95
)

// program is the filter of a cage (seccomp(2), classic BPF), or nothing on an architecture without a table.
//
// A tool loses what it needs for nothing a cage is for, and what reaches around the cage's other layers:
// see denied. Calls of another table than the one the numbers are from, by int 0x80 or as x32, end it.
//
// An instruction is one number, laid out as struct sock_filter is on a little-endian machine: the code in
// the low 16 bits, the two jumps in 8 each, the operand in the upper 32.
func program(a architecture, p profile) []uint64 {
	if a.audit == 0 {
		return nil
	}
	c := make(code, 0, 512)
	c.op(opLoad, archAt)
	c.jump(opEqual, a.audit, 1, 0)
	c.op(opReturn, kill)
	c.op(opLoad, numberAt)
	c.search(a.spans(p))
	return c
}

// narrow is the program that takes from a tool what is left to its helper, and nothing else. The large program
// stands before it, and takes long to install: this one is all that each call adds. Of two answers the kernel
// takes the stricter (seccomp(2)).
func narrow(a architecture) []uint64 {
	if a.audit == 0 {
		return nil
	}
	c := make(code, 0, 2*len(helping)+2)
	c.op(opLoad, numberAt) // of this architecture's table: the first program has ended all others
	for _, h := range helping {
		c.jump(opEqual, uint32(h.on(a)), 0, 1)
		c.op(opReturn, h.verdict)
	}
	c.op(opReturn, allow)
	return c
}

// A span is a run of numbers with one answer, up to where the next begins.
type span struct {
	from uint32
	answer
}

// An answer is a verdict, or the rule that finds one.
type answer struct {
	verdict uint32
	rule    *rule
}

// spans cover every number there is.
func (a architecture) spans(p profile) []span {
	var table [newest + 1]answer
	for i := range table {
		table[i].verdict = enosys
	}
	for _, k := range a.known {
		for n := k[0]; n <= k[1]; n++ {
			table[n].verdict = allow
		}
	}
	for _, g := range p.denied() {
		for _, c := range g.calls {
			if n := c.on(a); n != none {
				table[n].verdict = eperm
			}
		}
	}
	rules := p.rules()
	for i := range rules {
		if n := rules[i].on(a); n != none {
			table[n] = answer{rule: &rules[i]}
		}
	}
	for _, h := range helping {
		if p.Helper {
			table[h.on(a)] = answer{verdict: allow}
		}
	}
	spans := make([]span, 0, 256)
	for n, t := range table {
		if n == 0 || t != table[n-1] {
			spans = append(spans, span{uint32(n), t})
		}
	}
	spans = append(spans, span{newest + 1, answer{verdict: enosys}})
	if a.x32 != 0 {
		spans = append(spans, span{a.x32, answer{verdict: kill}})
	}
	return spans
}
