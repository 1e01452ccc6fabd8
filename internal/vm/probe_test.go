//go:build linux

package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

// TestProbeKVM probes this host. On most machines of developers and of continuous integration KVM is missing; the answer
// must say why, and is kept.
func TestProbeKVM(t *testing.T) {
	s := testSpec(t)
	h := testHost(t, Config{})
	err := h.ProbeKVM(t.Context(), s)
	if err != nil && (bailey.KindOf(err) != bailey.Unavailable || bailey.HintOf(err) == "") {
		t.Errorf("%v, want an Unavailable with a hint", err)
	}
	t.Logf("KVM: %v", err)
	again := h.ProbeKVM(t.Context(), s)
	if !errors.Is(again, err) {
		t.Errorf("the second answer is %v", again)
	}
}

// TestProbeFails probes with a program that is not QEMU, and cancels a probe.
func TestProbeFails(t *testing.T) {
	s := testSpec(t)
	h := testHost(t, Config{Programs: map[string]string{"amd64": "/bin/false"}})
	err := h.bootKVM(t.Context(), s)
	if err == nil || !strings.HasPrefix(err.Error(), "KVM does not run on this host: ") ||
		!strings.Contains(err.Error(), "QEMU ended") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.ProbeKVM(ctx, s); err == nil || len(h.probed) > 0 {
		t.Errorf("a cancelled probe: %v is kept as %v", err, h.probed)
	}
}

func TestModulePVM(t *testing.T) {
	modules := t.TempDir()
	if err := refuseModule(modules); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(modules, "kvm_pvm"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := refuseModule(modules); bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(err.Error(), "kvm_pvm") {
		t.Error(err)
	}
}
