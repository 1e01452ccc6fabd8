package jail

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
