#include "textflag.h"

// The registers of the walk: R19 the row, R20 the progress. The kernel changes R0 alone
// (syscall(2)). See child_linux.go for what keeps this safe.

// func walk(args *cloneArgs, size uintptr, table *row, p *progress) int
TEXT ·cloneAndWalk(SB), NOSPLIT|NOFRAME, $0-40
	MOVD table+16(FP), R19
	MOVD p+24(FP), R20
	MOVD args+0(FP), R0
	MOVD size+8(FP), R1
	MOVD $435, R8 // clone3
	SVC
	CBZ  R0, row
	MOVD R0, ret+32(FP)
	RET

row:
	MOVD R19, 0(R20)
	MOVD 0(R19), R8
	MOVD 8(R19), R0
	MOVD 16(R19), R1
	MOVD 24(R19), R2
	MOVD 32(R19), R3
	MOVD 40(R19), R4
	MOVD 48(R19), R5
	SVC
	MOVD 56(R19), R9
	CMP  $2, R9 // again
	BEQ  back
	CMP  $1, R9 // some
	BEQ  some
	CMN  $4095, R0
	BCC  next
	CMP  $3, R9 // leave
	BNE  fail
	CMN  $38, R0 // ENOSYS
	BEQ  next
	CMN  $1, R0 // EPERM
	BEQ  next

fail:
	MOVD R0, 8(R20)

exit:
	MOVD $94, R8 // exit_group
	MOVD $127, R0
	SVC
	B    exit

some:
	CMP  $0, R0
	BGT  next
	BLT  fail
	MOVD $-32, R0 // EPIPE
	B    fail

next:
	ADD  $64, R19
	B    row

back:
	MOVD 48(R19), R19
	B    row
