// Command flood is a guest's first process that writes to the port of the agent as fast as it can and never reads.
package main

import (
	"os"
	"syscall"
	"time"
)

func main() {
	syscall.Mount("devtmpfs", "/dev", "devtmpfs", 0, "")
	for {
		if f, err := os.OpenFile("/dev/vport0p1", os.O_WRONLY, 0); err == nil {
			for b := make([]byte, 64<<10); err == nil; {
				_, err = f.Write(b)
			}
		}
		time.Sleep(time.Millisecond)
	}
}
