// Package guestagent is the agent in a sandbox, program bailey-guest. It serves the protocol of package guestwire on a
// virtio-serial port: it runs programs, reads and writes files, and renews the identity of a clone.
//
// The agent starts in one of three ways. As /init of an initramfs it is pid 1: it loads /modules/*, mounts the root
// that the kernel's command line names (bailey.root, bailey.fstype) and moves there. If bailey.init names a program, it
// starts itself as a service and becomes that program; otherwise it stays pid 1. As a service it needs no arguments
// but --port.
//
// `bailey-guest inventory` prints what the system has as JSON (package sandboxdiff), and ends. `bailey-guest unpack
// PATH...` unpacks an archive from its standard input below /, and makes the paths read-only.
//
// One host talks to it at a time. Commands end with the session that started them, so that nothing runs on behalf of a
// host that is gone; background jobs do not. Everything that runs in a sandbox may harm the agent: the host trusts none
// of its answers.
package guestagent
