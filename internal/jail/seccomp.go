package jail

import (
	"runtime"
)

// A profile says for which cage a filter is. Its zero value is the strictest filter of the full cage.
type profile struct {
	Inet bool // TCP and UDP sockets
	Unix bool // Unix sockets
	// Shared is for a cage without its own pid, ipc and user namespaces, where Landlock alone protects files: Landlock
	// covers contents and names, but not modes, owners, times or attributes.
	Shared bool
	// Watches lets the tool watch files. Instances and watches are counted per user on the whole machine, so a call
	// must not have them; the programs of an agent need them.
	Watches bool
	// Helper leaves the calls that a warm helper needs itself. A second program takes them from the tool: see narrow.
	Helper bool
	// NoSignals is for a Shared cage if the Landlock of the kernel has no scope for signals (before ABI 6). It leaves
	// only kill(0, …), which reaches the process group: that group must be the tool's own and the only one of its
	// session. raise and abort of the C library use tgkill: raise returns EPERM, and abort ends by a machine trap
	// instead, as SIGSEGV. A shell cannot end its jobs.
	NoSignals bool
	// Host is for commands that read the state of a host: netlink sockets of routes and of sockets, and with Inet also
	// ICMP echo. The kernel requires CAP_NET_ADMIN for each message that changes something.
	Host bool
}

// An architecture is a table of system calls, as seccomp identifies it (linux/audit.h).
type architecture struct {
	name  string // as in runtime.GOARCH
	audit uint32
	// known are the ranges of numbers, first and last, that had a meaning when the table was written. All other numbers
	// return ENOSYS: a call that is added to the kernel later must be examined before it is allowed.
	known [][2]uint32
	// x32 is the first number of a second table with the same audit value; zero if there is none.
	x32 uint32
}

// newest is the last known number, rseq_slice_yield of Linux 7.0. From 424 on all architectures share their numbers.
const newest = 471

var architectures = [...]architecture{
	{name: "amd64", audit: 0xc000003e, known: [][2]uint32{{0, 336}, {424, newest}}, x32: 1 << 30},
	{name: "arm64", audit: 0xc00000b7, known: [][2]uint32{{0, 243}, {260, 294}, {424, newest}}},
}

// currentArch returns the architecture of this program. If its name is empty, it has no filter.
func currentArch() architecture {
	for _, a := range architectures {
		if a.name == runtime.GOARCH {
			return a
		}
	}
	return architecture{}
}

// Verdicts of a filter (linux/seccomp.h), with the errno in the low bits.
const (
	kill  uint32 = 0x80000000 // the process
	allow uint32 = 0x7fff0000
	errno uint32 = 0x00050000

	eperm   = errno | 1
	eacces  = errno | 13
	enosys  = errno | 38
	enotsup = errno | 95
)

// filterProgram returns the filter of a cage (seccomp(2), classic BPF), or nil if the architecture has no table.
//
// It denies the calls that no tool in a cage needs and those that circumvent other layers: see denied. A call from
// another table than the one of the numbers, for example by int 0x80 or as x32, kills the process.
//
// An instruction is one number with the layout of struct sock_filter on a little-endian machine: the code in the low 16
// bits, the two jumps in 8 bits each, the operand in the upper 32.
func filterProgram(a architecture, p profile) []uint64 {
	if a.audit == 0 {
		return nil
	}
	c := make(code, 0, 512)
	c.addInstruction(opLoad, archAt)
	c.addJump(opEqual, a.audit, 1, 0)
	c.addInstruction(opReturn, kill)
	c.addInstruction(opLoad, numberAt)
	c.addSearch(a.verdictSpans(p))
	return c
}

// narrowProgram returns the program that denies a tool the calls that were left to its helper, and nothing else. The large
// program comes before it and takes long to install; a call adds only this one. If two filters disagree, the kernel
// takes the stricter verdict (seccomp(2)).
func narrowProgram(a architecture) []uint64 {
	if a.audit == 0 {
		return nil
	}
	c := make(code, 0, 2*len(helperCalls)+2)
	c.addInstruction(opLoad, numberAt) // of this architecture's table: the first program kills on all others
	for _, h := range helperCalls {
		c.addJump(opEqual, uint32(h.numberOn(a)), 0, 1)
		c.addInstruction(opReturn, h.verdict)
	}
	c.addInstruction(opReturn, allow)
	return c
}

// A span is a range of numbers with one answer, up to the start of the next span.
type span struct {
	from uint32
	answer
}

// An answer is a verdict, or the rule that finds one.
type answer struct {
	verdict uint32
	rule    *rule
}

// verdictSpans returns spans that cover all possible numbers.
func (a architecture) verdictSpans(p profile) []span {
	var table [newest + 1]answer
	for i := range table {
		table[i].verdict = enosys
	}
	for _, k := range a.known {
		for n := k[0]; n <= k[1]; n++ {
			table[n].verdict = allow
		}
	}
	for _, g := range p.deniedGroups() {
		for _, c := range g.calls {
			if n := c.numberOn(a); n != none {
				table[n].verdict = eperm
			}
		}
	}
	rules := p.argumentRules()
	for i := range rules {
		if n := rules[i].numberOn(a); n != none {
			table[n] = answer{rule: &rules[i]}
		}
	}
	for _, h := range helperCalls {
		if p.Helper {
			table[h.numberOn(a)] = answer{verdict: allow}
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

// Codes of classic BPF (linux/bpf_common.h) that the filter uses.
const (
	opLoad   = 0x20 // BPF_LD|BPF_W|BPF_ABS: the word at offset k of struct seccomp_data
	opMask   = 0x54 // BPF_ALU|BPF_AND|BPF_K
	opJump   = 0x05 // BPF_JMP|BPF_JA: by k
	opEqual  = 0x15 // BPF_JMP|BPF_JEQ|BPF_K
	opLeast  = 0x35 // BPF_JMP|BPF_JGE|BPF_K
	opReturn = 0x06 // BPF_RET|BPF_K
)

// Offsets in struct seccomp_data (linux/seccomp.h). An argument has 8 bytes, the low word first.
const (
	numberAt, archAt, argsAt = 0, 4, 16
	argSize                  = 8
)

// code is a program under construction. Jumps go forward and count from the next instruction.
type code []uint64

func (c *code) addInstruction(op uint16, k uint32) { c.addJump(op, k, 0, 0) }

func (c *code) addJump(op uint16, k uint32, yes, no uint8) {
	*c = append(*c, uint64(op)|uint64(yes)<<16|uint64(no)<<24|uint64(k)<<32)
}

// addSearch halves the spans until one is left. No jump enters or leaves a half, and each half ends in verdicts, so if a
// jump proves too far for its eight bits it can still be replaced by a long one.
func (c *code) addSearch(spans []span) {
	if len(spans) == 1 {
		c.addAnswer(spans[0].answer)
		return
	}
	half := len(spans) / 2
	at := len(*c)
	c.addInstruction(opLeast, spans[half].from)
	c.addSearch(spans[:half])
	if far := uint64(len(*c) - at - 1); far <= 0xff {
		(*c)[at] |= far << 16
	} else {
		*c = append(*c, 0)
		copy((*c)[at+2:], (*c)[at+1:])
		(*c)[at] |= 1 << 24 // else: skip the long jump
		(*c)[at+1] = opJump | far<<32
	}
	c.addSearch(spans[half:])
}

func (c *code) addAnswer(a answer) {
	if a.rule == nil {
		c.addInstruction(opReturn, a.verdict)
		return
	}
	for _, when := range a.rule.when {
		c.addClause(when, a.rule.then)
	}
	c.addInstruction(opReturn, a.rule.otherwise)
}

// addClause returns the verdict then, or continues with the code after the clause. It has far fewer than 255 instructions.
func (c *code) addClause(all clause, then uint32) {
	var lasts [6]int // for each match, its last comparison: if that fails, the match does not hold
	for i, m := range all {
		at := argsAt + argSize*m.arg
		if m.high {
			at += argSize / 2
		}
		c.addInstruction(opLoad, at)
		if m.mask != whole {
			c.addInstruction(opMask, m.mask)
		}
		for k, value := range m.is {
			c.addJump(opEqual, value, uint8(len(m.is)-1-k), 0)
		}
		lasts[i] = len(*c) - 1
	}
	c.addInstruction(opReturn, then)
	for _, at := range lasts[:len(all)] {
		(*c)[at] |= uint64(len(*c)-at-1) << 24
	}
}
