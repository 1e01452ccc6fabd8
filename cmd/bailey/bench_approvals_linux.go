package main

import (
	"fmt"
	"os"
)

// footprint is what of this process is in memory, in bytes, and how many descriptors it has open (proc_pid_statm(5)).
func footprint() (bytes, files int) {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		fmt.Sscanf(string(text), "%d %d", new(int), &bytes)
	}
	list, _ := os.ReadDir("/proc/self/fd")
	return bytes * os.Getpagesize(), len(list)
}
