package jail

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// data is struct seccomp_data (linux/seccomp.h).
type data struct {
	nr, arch uint32
	ip       uint64
	args     [6]uint64
}

func (d data) bytes() (b [64]byte) {
	binary.LittleEndian.PutUint32(b[0:], d.nr)
	binary.LittleEndian.PutUint32(b[4:], d.arch)
	binary.LittleEndian.PutUint64(b[8:], d.ip)
	for i, a := range d.args {
		binary.LittleEndian.PutUint64(b[16+8*i:], a)
	}
	return b
}

// An instruction is struct sock_filter.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

func decode(word uint64) instruction {
	return instruction{uint16(word), uint8(word >> 16), uint8(word >> 24), uint32(word >> 32)}
}

// verify checks a program as the kernel does before it accepts one (bpf_check_classic, seccomp_check_filter), and also
// that all codes are known here and every instruction can be reached.
func verify(words []uint64) error {
	if len(words) == 0 || len(words) > 4096 {
		return fmt.Errorf("%d instructions", len(words))
	}
	reached := make([]bool, len(words))
	reached[0] = true
	reach := func(at int, by uint64) error {
		to := uint64(at) + 1 + by
		if to >= uint64(len(words)) {
			return fmt.Errorf("%d jumps out of %d instructions, to %d", at, len(words), to)
		}
		reached[to] = true
		return nil
	}
	for at, word := range words {
		i := decode(word)
		var err error
		switch {
		case !reached[at]:
			err = fmt.Errorf("%d is never reached", at)
		case i.code == 0x20 && (i.k%4 != 0 || i.k >= 64):
			err = fmt.Errorf("%d loads from %d", at, i.k)
		case i.code == 0x20, i.code == 0x54:
			err = reach(at, 0)
		case i.code == 0x05:
			err = reach(at, uint64(i.k))
		case i.code == 0x15, i.code == 0x35:
			if err = reach(at, uint64(i.jt)); err == nil {
				err = reach(at, uint64(i.jf))
			}
		case i.code != 0x06:
			err = fmt.Errorf("%d has the code %#x", at, i.code)
		}
		if err != nil {
			return err
		}
	}
	if last := decode(words[len(words)-1]).code; last != 0x06 {
		return fmt.Errorf("the end is a %#x", last)
	}
	return nil
}

// interpret runs a verified program and counts the executed instructions.
func interpret(words []uint64, d data) (verdict uint32, passed int) {
	b := d.bytes()
	var a uint32
	for pc := 0; ; pc++ {
		passed++
		i := decode(words[pc])
		holds := i.code == 0x15 && a == i.k || i.code == 0x35 && a >= i.k
		switch i.code {
		case 0x20:
			a = binary.LittleEndian.Uint32(b[i.k:])
		case 0x54:
			a &= i.k
		case 0x05:
			pc += int(i.k)
		case 0x15, 0x35:
			if holds {
				pc += int(i.jt)
			} else {
				pc += int(i.jf)
			}
		case 0x06:
			return i.k, passed
		default:
			panic(fmt.Sprintf("code %#x", i.code))
		}
	}
}

// disassemble prints one instruction per line, with the names of the calls that it distinguishes.
func disassemble(words []uint64, names map[uint32]string) string {
	var b strings.Builder
	for at, word := range words {
		i := decode(word)
		fmt.Fprintf(&b, "%4d  ", at)
		switch i.code {
		case 0x20:
			switch i.k {
			case 0:
				b.WriteString("number")
			case 4:
				b.WriteString("arch")
			default:
				fmt.Fprintf(&b, "arg %d", (i.k-16)/8)
			}
		case 0x54:
			fmt.Fprintf(&b, "and %#x", i.k)
		case 0x05:
			fmt.Fprintf(&b, "go %d", at+1+int(i.k))
		case 0x15:
			fmt.Fprintf(&b, "== %#x: %d else %d", i.k, at+1+int(i.jt), at+1+int(i.jf))
		case 0x35:
			name := names[i.k]
			if name == "" {
				name = "-"
			}
			fmt.Fprintf(&b, ">= %d %s: %d else %d", i.k, name, at+1+int(i.jt), at+1+int(i.jf))
		case 0x06:
			b.WriteString(verdictName(i.k))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func verdictName(v uint32) string {
	switch v {
	case kill:
		return "kill"
	case allow:
		return "allow"
	case eperm:
		return "EPERM"
	case eacces:
		return "EACCES"
	case enosys:
		return "ENOSYS"
	}
	return fmt.Sprintf("%#x", v)
}
