#include "textflag.h"

// The registers of the walk: R12 the row, R13 the progress. The kernel clobbers AX, CX and R11 alone
// (syscall(2), System V psABI A.2). See child_linux.go for what keeps this safe.

// func walk(args *cloneArgs, size uintptr, table *row, p *progress) int
TEXT ·cloneAndWalk(SB), NOSPLIT|NOFRAME, $0-40
	MOVQ table+16(FP), R12
	MOVQ p+24(FP), R13
	MOVQ args+0(FP), DI
	MOVQ size+8(FP), SI
	MOVQ $435, AX // clone3
	SYSCALL
	TESTQ AX, AX
	JZ   row
	MOVQ AX, ret+32(FP)
	RET

row:
	MOVQ R12, 0(R13)
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	SYSCALL
	MOVQ 56(R12), CX
	CMPQ CX, $2 // again
	JEQ  back
	CMPQ CX, $1 // some
	JEQ  some
	CMPQ AX, $-4095
	JCS  next
	CMPQ CX, $3 // leave
	JNE  fail
	CMPQ AX, $-38 // ENOSYS
	JEQ  next
	CMPQ AX, $-1 // EPERM
	JEQ  next

fail:
	MOVQ AX, 8(R13)

exit:
	MOVQ $231, AX // exit_group
	MOVQ $127, DI
	SYSCALL
	JMP  exit

some:
	TESTQ AX, AX
	JGT  next
	JLT  fail
	MOVQ $-32, AX // EPIPE
	JMP  fail

next:
	ADDQ $64, R12
	JMP  row

back:
	MOVQ 48(R12), R12
	JMP  row
