// Package vmhost is the host of sandboxes: it owns many machines of package vm, gives them to owners for a limited
// time,
// and serves the operations of package hostapi on a Unix socket. Sandboxes exist on Linux only.
//
// # Files
//
// The directory of a host has mode 0700. The lock of host.lock (flock(2)) says which process owns it.
//
//	sandboxes/ID/record.json   a sandbox: see boxRecord
//	sandboxes/ID/machine-N/    its machine, see package vm; N grows whenever the sandbox gets another machine
//	templates/ID/record.json   a template: see templateRecord
//	templates/ID/vm/           its memory, devices and disk, see package vm
//
// A record is written before the effect that it announces, and names what counts afterwards. A new host reads the
// records
// and removes all that none of them names. A sandbox counts once its machine has a new identity, so a host that is
// killed while it creates a sandbox leaves nothing; QEMU outlives the host, and the next one adopts it.
//
// # Templates
//
// Every sandbox is a clone of a template. The first sandbox of an image with a number of processors and a size of
// memory
// boots, and its machine becomes the warm template of the later ones. Snapshots, the saved state of a stopped sandbox
// and
// the common origin of branches are templates, too. A template is removed when no sandbox, no snapshot and no template
// needs it.
//
// # The guest
//
// Before a clone serves its first command, its agent has a new seed, clock, machine id, host name, host keys and
// network
// addresses (guestclient.Config.MustRenew). The agent recognises its host by a marker, which the sandbox has for its
// whole
// life, so that a new host can begin a session after a crash. A guest is hostile: see package guestclient.
package vmhost
