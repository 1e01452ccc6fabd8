//go:build linux

package vmhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/vm"
)

// readMemory returns the memory of the host and what a program can have of it without swapping, in MiB
// (proc_meminfo(5)).
func readMemory() (total, available int, err error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int
		name, value, _ := strings.Cut(lines.Text(), ":")
		if _, err := fmt.Sscanf(value, "%d kB", &kib); err != nil {
			continue
		}
		switch name {
		case "MemTotal":
			total = kib >> 10
		case "MemAvailable":
			available = kib >> 10
		}
	}
	if total == 0 || available == 0 {
		return 0, 0, errors.New("/proc/meminfo does not say how much memory is available")
	}
	return total, available, nil
}

// readDisk returns the size of the file system of the host's directory, and what this user can write.
func (h *Host) readDisk() (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(string(h.Dir), &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: string(h.Dir), Err: err}
	}
	return int64(st.Blocks) * st.Frsize, int64(st.Bavail) * st.Frsize, nil
}

// checkMemory returns an error unless a machine with that memory can fill it now.
func (h *Host) checkMemory(mb int) error {
	_, available, err := readMemory()
	if err != nil {
		return err
	}
	if mb+h.ReserveMB > available {
		return bailey.Unavailable.Errorf("ask for less memory, or stop or destroy a sandbox",
			"the host has %d MB of free memory, of which %d MB are reserved: not enough for a sandbox with %d MB", available,
			h.ReserveMB, mb)
	}
	return nil
}

// claimMemory promises memory to a machine that is about to start, until done is called: the sandbox counts from then
// on. Clones share the memory of their template until they write to it, so what is free now says little.
func (h *Host) claimMemory(mb int) (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkPromisesLocked(mb); err != nil {
		return nil, err
	}
	h.claimed += mb
	return func() {
		h.mu.Lock()
		h.claimed -= mb
		h.mu.Unlock()
	}, nil
}

// checkPromisesLocked returns an error unless all machines, and one more, can fill their memory. It requires h.mu.
func (h *Host) checkPromisesLocked(mb int) error {
	if err := h.checkMemory(mb); err != nil {
		return err
	}
	promised := h.claimed
	for _, b := range h.boxes {
		if r := b.recordNow(); r.State != hostapi.Stopped && r.State != hostapi.Ended {
			promised += r.MemoryMB
		}
	}
	if promised+mb+h.ReserveMB > h.TotalMB {
		return bailey.Unavailable.Errorf("ask for less memory, or stop or destroy a sandbox",
			"sandboxes have %d MB of %d MB of memory, of which %d MB are reserved: not enough for a sandbox with %d MB",
			promised, h.TotalMB, h.ReserveMB, mb)
	}
	return nil
}

// checkDisk returns an error unless so many bytes can be written.
func (h *Host) checkDisk(bytes int64) error {
	_, free, err := h.readDisk()
	if err != nil {
		return err
	}
	if bytes+h.ReserveBytes > free {
		return bailey.Unavailable.Errorf("destroy sandboxes or snapshots, or free space on that file system",
			"the file system of %s has %d MB free, of which %d MB are reserved: %d MB are needed", h.Dir, free>>20,
			h.ReserveBytes>>20, bytes>>20)
	}
	return nil
}

// hostStatus describes the host.
func (h *Host) hostStatus(context.Context, caller, hostapi.None) (hostapi.Status, error) {
	memory, available, err := readMemory()
	if err != nil {
		return hostapi.Status{}, err
	}
	disk, free, err := h.readDisk()
	if err != nil {
		return hostapi.Status{}, err
	}
	s := hostapi.Status{Version: h.Version, PID: os.Getpid(), Dir: string(h.Dir), CPUs: runtime.NumCPU(),
		MemoryMB: memory,
		FreeMB:   max(available-h.ReserveMB, 0), DiskBytes: disk, FreeBytes: max(free-h.ReserveBytes,
			0), PerOwner: h.PerOwner,
		MaxMemoryMB: h.MaxMemoryMB, UptimeSec: int64(time.Since(h.begin).Seconds())}
	s.Accelerator, s.Reason = h.describeAccelerator()
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Sandboxes = len(h.boxes)
	for _, b := range h.boxes {
		if b.machineNow() != nil {
			s.Running++
		}
	}
	for _, t := range h.templates {
		switch t.recordNow().Kind {
		case warm:
			s.Templates++
		case snapshot:
			s.Snapshots++
		}
	}
	return s, nil
}

// showImage describes the machine that a sandbox from an image would be.
func (h *Host) showImage(_ context.Context, _ caller, r hostapi.ImageRequest) (hostapi.ImageInfo, error) {
	i, err := h.FindImage(r.Image)
	if err != nil {
		return hostapi.ImageInfo{}, err
	}
	info := hostapi.ImageInfo{Name: i.Name, Digest: i.Digest, MemoryMB: max(32, i.MemoryMB), Machine: machineType(i.Arch)}
	info.Accelerator, _ = h.describeAccelerator()
	return info, releaseImage(i)
}

// machineType returns the machine of package vm for an architecture.
func machineType(arch string) string {
	if arch == "arm64" {
		return vm.Virt
	}
	return vm.MicroVM
}

const kvm, emulated = "kvm", "emulated"

// describeAccelerator returns how machines run, and why not with KVM.
func (h *Host) describeAccelerator() (accelerator, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.kvm:
		return kvm, ""
	case h.reason != "":
		return emulated, h.reason
	case h.Emulated:
		return emulated, "this host was started with --emulated"
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return emulated, "KVM cannot be used: " + err.Error()
	}
	f.Close()
	return emulated, "KVM is tried when the first sandbox is created"
}

// chooseAccelerator returns KVM if it runs the machine.
func (h *Host) chooseAccelerator(ctx context.Context, s vm.Spec) (string, error) {
	if h.Emulated {
		return vm.Emulated, nil
	}
	reason := ""
	if s.Arch != runtime.GOARCH {
		return vm.Emulated, nil
	}
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		reason = "KVM cannot be used: " + err.Error()
	} else {
		f.Close()
		if err := h.vm.ProbeKVM(ctx, s); err != nil {
			reason = err.Error()
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reason, h.kvm = reason, reason == ""
	if h.kvm {
		return vm.KVM, nil
	}
	return vm.Emulated, nil
}

// nameAccelerator returns the name of package hostapi for one of package vm.
func nameAccelerator(accel string) string {
	if accel == vm.KVM {
		return kvm
	}
	return emulated
}
