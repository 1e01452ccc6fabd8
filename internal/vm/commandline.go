//go:build linux

package vm

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// A line is what QEMU's arguments depend on. Its numbers are descriptors that QEMU inherits; 0 means none.
type line struct {
	Spec
	Name                   string // random: identifies the process
	KHz                    uint64 // of the time stamp counter, if the guest must be told
	Monitor, Guest         int    // sockets that listen
	Memory, Kernel, Initrd int
	Layers                 []int // of Spec.Layers, for reading
	Overlay                int   // the machine's own layer
	State                  int   // the state that the machine begins with
}

// allArguments returns QEMU's arguments. The machine is created paused.
func (l line) allArguments() []string {
	argv := []string{"-name", l.Name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-S",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"}
	argv = append(argv, l.machineArguments()...)
	argv = append(argv,
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d,server=on,wait=off", l.Monitor),
		"-mon", "chardev=monitor,mode=control",
		"-device", l.deviceName("virtio-serial")+",max_ports=2",
		"-chardev", fmt.Sprintf("socket,id=guest,fd=%d,server=on,wait=off", l.Guest),
		"-device", "virtserialport,chardev=guest,name="+Port)
	argv = append(argv, l.diskArguments()...)
	if l.Kernel != 0 {
		argv = append(argv, "-kernel", descriptorPath(l.Kernel), "-append", l.kernelLine())
	}
	if l.Initrd != 0 {
		argv = append(argv, "-initrd", descriptorPath(l.Initrd))
	}
	if l.State != 0 {
		argv = append(argv, "-incoming", "defer") // until the monitor has set the capability
	}
	return argv
}

// descriptorPath opens a file that QEMU inherits once more, with the access that the file's mode gives to QEMU's user.
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func (l line) machineArguments() []string {
	// Timers and the clock are on, because a kernel that runs emulated waits for them; without ACPI it has no disks.
	machine := map[string]string{
		MicroVM: "microvm,pit=on,pic=on,acpi=on,rtc=on,isa-serial=off,x-option-roms=off",
		Q35:     "q35,vmport=off,smbus=off,sata=off,i8042=off,hpet=off",
		Virt:    "virt,gic-version=3",
	}[l.Machine]
	cpu, accel := "host", "kvm"
	if l.Accel == Emulated {
		// A small buffer for translated code: it is most of the memory that an idle machine has for itself.
		cpu, accel = "max", "tcg,tb-size=32"
		if l.Arch == "arm64" {
			cpu = "max,pauth-impdef=on" // the specified form is slow to emulate
		}
	}
	share := "on"
	if l.Private {
		share = "off"
	}
	return []string{"-machine", machine + ",memory-backend=ram", "-accel", accel, "-cpu", cpu,
		"-smp", strconv.Itoa(l.CPUs), "-m", strconv.Itoa(l.MemoryMB),
		"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=%s,share=%s", l.MemoryMB,
			descriptorPath(l.Memory), share)}
}

// deviceName returns the name of a virtio device on the machine's bus.
func (l line) deviceName(kind string) string {
	if l.Machine == Q35 {
		return kind + "-pci"
	}
	return kind + "-device"
}

// diskArguments build the disk from the lowest layer to the overlay. Each file is a descriptor in a set of its own,
// which QEMU duplicates. There are no locks: the owner of the machine's directory is the only one who starts QEMU.
func (l line) diskArguments() []string {
	if l.Overlay == 0 {
		return nil
	}
	var argv []string
	add := func(node string, fd int, format, below string, written bool) {
		argv = append(argv, "-add-fd", fmt.Sprintf("fd=%d,set=%d", fd, fd))
		file := map[string]any{"driver": "file", "node-name": node + "-file", "locking": "off", "read-only": !written,
			"filename": path.Join("/dev/fdset", strconv.Itoa(fd))}
		image := map[string]any{"driver": format, "node-name": node, "file": node + "-file", "read-only": !written}
		if below != "" {
			image["backing"] = below
		} else if format == "qcow2" {
			image["backing"] = nil // whatever the image says
		}
		if written {
			image["discard"] = "unmap"
		}
		for _, v := range []any{file, image} {
			text, _ := json.Marshal(v) // maps of texts and booleans, with sorted keys
			argv = append(argv, "-blockdev", string(text))
		}
	}
	below := ""
	for i, fd := range l.Layers {
		node := "layer" + strconv.Itoa(i)
		add(node, fd, l.Spec.Layers[i].Format, below, false)
		below = node
	}
	add("disk", l.Overlay, "qcow2", below, true)
	return append(argv, "-device", l.deviceName("virtio-blk")+",drive=disk,werror=enospc")
}

func (l line) kernelLine() string {
	words := []string{"reboot=t", "panic=-1"}
	if l.Arch == "amd64" && l.Accel == Emulated && l.KHz != 0 { // otherwise the kernel measures it, for a second
		words = append(words, "tsc_early_khz="+strconv.FormatUint(l.KHz, 10), "tsc=reliable")
	}
	if l.Append != "" {
		words = append(words, l.Append)
	}
	return strings.Join(words, " ")
}
