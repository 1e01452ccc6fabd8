//go:build linux

package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	extraMemory = 512 << 20 // bytes that QEMU may have beside the guest's memory
	maxThreads  = 64        // of QEMU, beside one for each processor
	maxFiles    = 256
	// KiB of addresses that QEMU may have beside the guest's memory; it uses most of them without memory behind.
	extraAddresses = 4 << 20
)

// limitSettings are the limits of a machine's control group by file name. Version 1 and 2 name them differently; a file
// that does not exist belongs to another controller.
func limitSettings(s Spec) map[string]string {
	memory := strconv.Itoa(s.MemoryMB<<20 + extraMemory)
	return map[string]string{
		"memory.max": memory, "memory.limit_in_bytes": memory, "memory.swap.max": "0",
		"pids.max": strconv.Itoa(maxThreads + s.CPUs),
		"cpu.max":  fmt.Sprintf("%d 100000", 100000*(s.CPUs+1)),
	}
}

// makeGroups creates the control groups of a machine, and returns the names of the limits that are in force.
func makeGroups(groups []string, s Spec) (limited []string, err error) {
	for _, dir := range groups {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, wrapStep(err, "cannot create the control group of the machine")
		}
		for file, value := range limitSettings(s) {
			name := filepath.Join(dir, file)
			if _, err := os.Stat(name); err != nil {
				continue
			}
			if err := os.WriteFile(name, []byte(value), 0); err != nil {
				return nil, wrapStep(err, "cannot limit the machine")
			}
			limited = append(limited, file)
		}
	}
	return limited, nil
}

// joinGroups moves a process, which has not yet run its guest, into its control groups.
func joinGroups(groups []string, pid int) error {
	for _, dir := range groups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return wrapStep(err, "cannot limit the machine")
		}
	}
	return nil
}

// removeGroups removes control groups whose processes have ended.
func removeGroups(groups []string) error {
	var errs []error
	for _, dir := range groups {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: dir, Err: err})
		}
	}
	return errors.Join(errs...)
}

// limitedCommand returns a command that bounds what a QEMU that its guest has taken over can do, with or without control
// groups, and executes program. The shell sets the limits, because after the start only CAP_SYS_RESOURCE could.
func limitedCommand(s Spec, disk int64, program string, arguments []string) []string {
	// There are no cores, which would contain the guest's memory. An overlay is at most as large as its disk, with a
	// table entry of 8 bytes for each cluster of 64 KiB.
	limits := fmt.Sprintf(`ulimit -c 0 && ulimit -n %d && ulimit -v %d && ulimit -f %d && exec "$@"`, maxFiles,
		s.MemoryMB<<10+extraAddresses, (disk+disk/1024+64<<20)/512)
	return append([]string{"/bin/sh", "-c", limits, "sh", program}, arguments...)
}
