//go:build linux

package jail

import "golang.org/x/sys/unix"

// sockets is a seccomp program (seccomp(2), classic BPF) under which a tool can make no socket of any
// family: a network namespace stops neither a connection to a socket file in a place nor AF_VSOCK. Of
// socketpair(2) the connected kinds stay, streams and packets in sequence: a datagram pair could be turned
// to any socket file by its path. Foreign system call tables end the tool: their numbers mean something else.
//
// An instruction is one number, laid out as struct sock_filter is on a little-endian machine: the code in
// the low 16 bits, the two jumps in 8 each, the operand in the upper 32.
func sockets(arch, socket, socketpair, ioUring uint32) []uint64 {
	const (
		load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		eq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ge   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret  = unix.BPF_RET | unix.BPF_K

		and = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K

		nrAt, archAt, familyAt, typeAt = 0, 4, 16, 24 // offsets in struct seccomp_data, low words
		x32                            = 1 << 30
		typeMask                       = 0xf // without SOCK_NONBLOCK and SOCK_CLOEXEC
	)
	op := func(code uint16, k uint32, jt, jf uint8) uint64 {
		return uint64(code) | uint64(jt)<<16 | uint64(jf)<<24 | uint64(k)<<32
	}
	return []uint64{
		op(load, archAt, 0, 0),
		op(eq, arch, 0, 13), // else: end
		op(load, nrAt, 0, 0),
		op(ge, x32, 11, 0), // end
		op(eq, socket, 9, 0),
		op(eq, ioUring, 8, 0),    // it makes sockets too
		op(eq, socketpair, 0, 6), // else: allow
		op(load, familyAt, 0, 0),
		op(eq, unix.AF_UNIX, 0, 5), // else: refuse
		op(load, typeAt, 0, 0),
		op(and, typeMask, 0, 0),
		op(eq, unix.SOCK_STREAM, 1, 0),
		op(eq, unix.SOCK_SEQPACKET, 0, 1), // else: refuse
		op(ret, unix.SECCOMP_RET_ALLOW, 0, 0),
		op(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.EACCES), 0, 0),
		op(ret, unix.SECCOMP_RET_KILL_PROCESS, 0, 0),
	}
}
