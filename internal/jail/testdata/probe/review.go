package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

func init() {
	// leaveflood ends with children behind that write without end; with 0 it only ends.
	verbs["leaveflood"] = func(a []string) {
		if len(a) > 0 && a[0] == "0" {
			return
		}
		for range 6 {
			spawn(os.Stdout, "flood", "1000000000000")
		}
		time.Sleep(300 * time.Millisecond)
	}
	// packets writes in packet mode (pipe(2), O_DIRECT; fcntl(2), F_SETFL).
	verbs["packets"] = func([]string) {
		_, _, e := syscall.Syscall(syscall.SYS_FCNTL, 1, syscall.F_SETFL, syscall.O_DIRECT)
		if e != 0 {
			fmt.Println(e)
		}
		for i := range 12 {
			fmt.Println("line", i)
		}
	}
}
