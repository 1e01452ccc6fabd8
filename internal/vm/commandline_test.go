//go:build linux

package vm

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
)

var update = flag.Bool("update", false, "write the golden files")

// TestCommandLine compares QEMU's arguments with testdata/line. Run it with -update after a change.
func TestCommandLine(t *testing.T) {
	layers := []Layer{{"/images/a.raw", "raw", ""}, {"/templates/t/disk.qcow2", "qcow2", ""}}
	fresh := line{Name: "bailey-NAME", KHz: 2596000, Monitor: 4, Guest: 5, Memory: 6, Kernel: 7, Initrd: 8,
		Layers: []int{9, 10}, Overlay: 11}
	clone := line{Name: "bailey-NAME", KHz: 2596000, Monitor: 4, Guest: 5, Memory: 6, State: 7, Layers: []int{8, 9},
		Overlay: 10}
	spec := func(arch, machine, accel string) Spec {
		return Spec{Arch: arch, Machine: machine, Accel: accel, MemoryMB: 256, CPUs: 2, Kernel: "/k", Initrd: "/i",
			Append: "quiet", Layers: layers}
	}
	for name, s := range map[string]Spec{
		"microvm-amd64-kvm": spec("amd64", MicroVM, KVM), "microvm-amd64-tcg": spec("amd64", MicroVM, Emulated),
		"q35-amd64-kvm": spec("amd64", Q35, KVM), "q35-amd64-tcg": spec("amd64", Q35, Emulated),
		"virt-arm64-kvm": spec("arm64", Virt, KVM), "virt-arm64-tcg": spec("arm64", Virt, Emulated),
	} {
		fresh.Spec, clone.Spec = s, s
		clone.Private = true
		diskless := fresh
		diskless.Spec.Layers, diskless.Layers, diskless.Overlay, diskless.Initrd = nil, nil, 0, 0
		for kind, l := range map[string]line{"": fresh, "-clone": clone, "-diskless": diskless} {
			t.Run(name+kind, func(t *testing.T) {
				got := strings.ReplaceAll(strings.Join(l.allArguments(), " "), " -", "\n-") + "\n"
				file := filepath.Join("testdata", "line", name+kind+".txt")
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil || got != string(want) {
					t.Errorf("%s\nwant %s (%v)", got, want, err)
				}
			})
		}
	}
}

func TestSpecCheck(t *testing.T) {
	good := Spec{Arch: "amd64", Machine: MicroVM, Accel: Emulated, MemoryMB: 128, CPUs: 1, Kernel: "/k"}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(s *Spec){
		"architecture": func(s *Spec) { s.Arch = "mips" },
		"type":         func(s *Spec) { s.Machine = Virt },
		"accelerator":  func(s *Spec) { s.Accel = "xen" },
		"no memory":    func(s *Spec) { s.MemoryMB = 0 },
		"huge memory":  func(s *Spec) { s.MemoryMB = 1 << 30 },
		"processors":   func(s *Spec) { s.CPUs = -1 },
		"kernel":       func(s *Spec) { s.Kernel = "" },
		"command line": func(s *Spec) { s.Append = "a\nb" },
		"disk":         func(s *Spec) { s.DiskBytes = 1 << 20 },
		"format":       func(s *Spec) { s.Layers = []Layer{{"/a", "vmdk", ""}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			change(&s)
			if err := s.Check(); bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "" {
				t.Errorf("%v, want an Invalid with a hint", err)
			}
		})
	}
	if _, err := New(Config{FirstUID: 1000, UIDs: 10}); bailey.KindOf(err) != bailey.Invalid {
		t.Errorf("a range of user ids of accounts: %v", err)
	}
}
