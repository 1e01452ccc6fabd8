// Package vm runs virtual machines in QEMU, each with a directory, a user id and a process of its own. It starts them,
// pauses them, keeps them as templates, clones templates and removes them. Machines exist on Linux only.
//
// # A machine
//
// A machine is a directory of mode 0700 with machine.json (the [Spec] and what identifies the process), the qcow2 overlay
// of its disk, and two sockets: qmp.sock for QEMU's monitor and guest.sock for the virtio-serial port named "bailey" in
// the guest. QEMU cannot open any of them by path: it inherits descriptors, and the directory belongs to another user
// unless the host has no range of user ids. The image below the overlay is opened for reading only.
//
// QEMU does not end with its owner. A new owner adopts it with [Host.Open]. The lock of the directory (flock(2)) tells
// who owns a machine. The process is identified by a random name in its arguments, its user id and its start time, and
// held by a pidfd. Each process that may belong to a machine, even one that has not yet executed QEMU, holds the lock of
// the file "alive" in the directory, so [Host.Remove] knows when all of them have ended.
//
// # A template
//
// A template is a directory with the state of the devices, the memory and the overlay of a machine at one moment. To
// clone it, its memory is read once into a sealed memfd (memfd_create(2)), and compared with the digest in template.json.
// Every clone maps that memfd privately, so clones share what they do not write, and even a QEMU that a guest has taken
// over cannot change the memory of the others. The clone continues where the machine was paused, with the same random
// state, clock, identity and addresses: Config.Renew must replace those before anything else runs in it.
package vm
