//go:build linux

package vm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"bailey"
)

const probeTime = 30 * time.Second // a guest of KVM boots in one

// ProbeKVM returns nil if KVM runs the given machine. That /dev/kvm can be opened proves nothing, so the machine is
// started in a temporary directory, until Config.Ready accepts it. The answer for a kernel is kept.
func (h *Host) ProbeKVM(ctx context.Context, s Spec) error {
	h.mu.Lock()
	known, ok := h.probed[s.Kernel]
	h.mu.Unlock()
	if ok {
		return known
	}
	err := refuseModule("/sys/module")
	if err == nil {
		err = h.bootKVM(ctx, s)
	}
	if ctx.Err() == nil {
		h.mu.Lock()
		h.probed[s.Kernel] = err
		h.mu.Unlock()
	}
	return err
}

// refuseModule refuses an implementation of KVM that opens /dev/kvm and cannot run an ordinary kernel.
func refuseModule(modules string) error {
	_, err := os.Stat(filepath.Join(modules, "kvm_pvm"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return bailey.Unavailable.Wrap(err, "the KVM of this host is kvm_pvm, which runs only kernels that were built for it",
		"run machines emulated, or use a host with hardware virtualization")
}

func (h *Host) bootKVM(ctx context.Context, s Spec) error {
	dir, err := os.MkdirTemp("", "bailey-probe-")
	if err != nil {
		return explainDisk(err, os.TempDir())
	}
	defer os.Remove(dir)
	s.Accel = KVM
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, bailey.Unavailable.Errorf("run machines emulated",
		"a guest of KVM did not start within %s", probeTime))
	defer cancel()
	m, err := h.Start(ctx, filepath.Join(dir, "machine"), s)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "KVM does not run on this host", "")
	}
	return m.Destroy(context.WithoutCancel(ctx))
}
