package terminal

import "syscall"

const (
	getTermios   = syscall.TIOCGETA
	flushTermios = syscall.TIOCSETAF // once the output has left; drops pending input (tty(4))
)
