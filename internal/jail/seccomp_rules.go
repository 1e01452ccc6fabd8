package jail

// A rule decides one call by its arguments: then if a clause holds, otherwise if none does.
type rule struct {
	call
	when            []clause
	then, otherwise uint32
}

// A clause holds if all its matches do.
type clause []match

// A match holds if an argument, masked, is one of the values. It compares only the low word unless high is set: except
// for pointers, the kernel treats every argument here as an int or an unsigned int (clone's flags too: lower_32_bits in
// kernel/fork.c) and drops the upper word.
type match struct {
	arg  uint32
	mask uint32
	is   []uint32
	high bool
}

// whole masks nothing.
const whole = ^uint32(0)

// argEquals matches an argument as a whole.
func argEquals(n uint32, is ...uint32) match { return match{n, whole, is, false} }

// nullPointer matches a null pointer.
func nullPointer(n uint32) clause { return clause{argEquals(n, 0), {n, whole, []uint32{0}, true}} }

// allowOnly allows a call if a clause holds, except if none does.
func allowOnly(c call, when ...clause) rule   { return rule{c, when, allow, eperm} }
func allowExcept(c call, when ...clause) rule { return rule{c, when, eperm, allow} }

// newNamespaces are all CLONE_NEW* flags (linux/sched.h). The lowest, CLONE_NEWTIME, lies in the byte that clone uses
// for the exit signal, but is part of no signal number.
const newNamespaces = 0x7e020080

// Requests of ioctl that no cage needs. For terminals (asm-generic/ioctls.h): typing into one (CVE-2017-5226), the
// console's way to do the same (CVE-2023-28100), and another line discipline (CVE-2017-2636). For file systems
// (linux/fscrypt.h): the keys of encrypted directories, which belong to the user, inside a cage and outside.
const (
	tiocsti, tioclinux, tiocsetd = 0x5412, 0x541c, 0x5423
	addKey, removeKey            = 0xc0506617, 0xc0406618
)

// Requests that change the metadata of a file through a descriptor open for reading (linux/fs.h, fsverity.h, fscrypt.h,
// msdos_fs.h).
const (
	setFlags, setFlags32     = 0x40086602, 0x40046602
	setVersion, setVersion32 = 0x40087602, 0x40047602
	setExtVersion            = 0x40086604 // specific to ext4, and its form for 32 bits
	setExtVersion32          = 0x40046604
	setXattr                 = 0x401c5820
	enableVerity             = 0x40806685
	setEncryption            = 0x800c6613
	fatAttributes            = 0x40047211

	// All requests of btrfs: with a directory open for reading, they create and remove subvolumes in it. Copying by
	// reference (FICLONE) has its numbers here too; if it is refused, programs copy bytes.
	requestType, btrfs = 0xff00, 0x9400
)

// Requests of btrfs that no cage needs (linux/btrfs.h): a snapshot of a place would show masked files under a name that
// no mask covers.
var subvolumes = []uint32{
	0x50009401, 0x50009417, // SNAP_CREATE, SNAP_CREATE_V2
	0x5000940e, 0x50009418, // SUBVOL_CREATE, SUBVOL_CREATE_V2
	0x5000940f, 0x5000943f, // SNAP_DESTROY, SNAP_DESTROY_V2
}

// newListener is the flag of seccomp(2) by which another process is asked about a call. If two filters ask, the kernel
// asks the listener of the newer one: a tool could itself answer the questions meant for the keeper of a lesser cage.
const newListener = 1 << 3

// The receiver of a descriptor's signals: requests of ioctl (asm-generic/sockios.h), commands of fcntl
// (asm-generic/fcntl.h).
const (
	fioSetOwn, siocSetGroup = 0x8901, 0x8902
	fSetOwn, fSetOwnEx      = 8, 15
	// on a file of the user it stalls every program that opens the file (linux/fcntl.h)
	fSetLease, fSetDeleg = 1024, 1024 + 16
	fSetPipeSize         = 1024 + 7 // its pages are counted per user on the whole machine (pipe(7))
)

// Huge pages belong to the machine, and no limit of a call counts them (linux/mman.h). Segments of huge pages are
// reserved for root by the kernel.
const mapHuge = 0x40000

// Programs that a socket runs for each packet (asm-generic/socket.h): their compiled form is bounded for the whole
// machine (net.core.bpf_jit_limit).
const (
	levelSocket                            = 1
	attachFilter, attachProgram            = 26, 50
	attachReuseportFilter, attachReuseport = 51, 52
)

// No tool may change the limit of core dumps: see [plan.addCommonLimits]. A call that tries changes nothing and returns success,
// even if it asks for the old limit, which is not written then. In the cage "landlock" prlimit64 is refused instead.
const limitCore, unchanged = 4, errno // errno 0: success

// limitsBesideCore returns all other resources (asm-generic/resource.h).
func limitsBesideCore() (list []uint32) {
	for n := range uint32(16) {
		if n != limitCore {
			list = append(list, n)
		}
	}
	return list
}

// argumentRules returns the rules of the calls whose arguments decide.
func (p profile) argumentRules() []rule {
	requests := append([]uint32{tiocsti, tioclinux, tiocsetd, addKey, removeKey}, subvolumes...)
	commands := []uint32{fSetLease, fSetDeleg, fSetPipeSize}
	rules := []rule{
		allowOnly(call{"clone", 56, 220}, clause{{0, newNamespaces, []uint32{0}, false}}),
		{call: call{"clone3", 435, 435}, otherwise: enosys},                     // its flags are in memory; libc falls back to clone
		allowOnly(call{"personality", 135, 92}, clause{argEquals(0, 0, whole)}), // the default, and the query
		{call{"socket", 41, 198}, p.socketClauses(), allow, eacces},
		{call{"socketpair", 53, 199}, p.socketpairClauses(), allow, eacces},
		allowExcept(call{"seccomp", 317, 277}, clause{{1, newListener, []uint32{newListener}, false}}),
		{call{"setrlimit", 160, 164}, []clause{{argEquals(0, limitCore)}}, unchanged, allow},
		allowExcept(call{"mmap", 9, 222}, clause{{3, mapHuge, []uint32{mapHuge}, false}}),
		allowExcept(call{"setsockopt", 54, 208},
			clause{argEquals(1, levelSocket),
				argEquals(2, attachFilter, attachProgram, attachReuseportFilter, attachReuseport)}),
	}
	if p.Shared {
		requests = append(requests, setFlags, setFlags32, setVersion, setVersion32, setExtVersion, setExtVersion32,
			setXattr, enableVerity, setEncryption, fatAttributes)
		rules = append(rules, selfOnlyRules()...)
		for _, c := range attributes {
			rules = append(rules, rule{call: c, otherwise: enotsup})
		}
	} else {
		rules = append(rules, rule{call{"prlimit64", 302, 261}, []clause{{argEquals(1, limitsBesideCore()...)}, nullPointer(2)}, allow, unchanged})
	}
	if p.NoSignals {
		requests = append(requests, fioSetOwn, siocSetGroup)
		commands = append(commands, fSetOwn, fSetOwnEx)
		rules = append(rules, allowOnly(call{"kill", 62, 129}, clause{argEquals(0, 0)})) // the tool's own process group
	}
	rules = append(rules, allowExcept(call{"fcntl", 72, 25}, clause{argEquals(1, commands...)}))
	ioctl := allowExcept(call{"ioctl", 16, 29}, clause{argEquals(1, requests...)})
	if p.Shared {
		ioctl.when = append(ioctl.when, clause{{1, requestType, []uint32{btrfs}, false}})
	}
	return append(append(rules, ioctl), p.fileModeRules()...)
}

// selfOnlyRules returns rules for calls that can change any process; they allow only the caller, a pid of zero. A thread
// cannot name even itself by number, since the filter does not know its number.
func selfOnlyRules() []rule {
	self := clause{argEquals(0, 0)}
	return []rule{
		allowOnly(call{"prlimit64", 302, 261}, clause{self[0], argEquals(1, limitsBesideCore()...)},
			append(clause{self[0]}, nullPointer(2)...)),
		allowOnly(call{"sched_setaffinity", 203, 122}, self),
		allowOnly(call{"sched_setscheduler", 144, 119}, self),
		allowOnly(call{"sched_setparam", 142, 118}, self),
		allowOnly(call{"sched_setattr", 314, 274}, self),
		allowOnly(call{"setpriority", 141, 140}, clause{argEquals(0, 0), argEquals(1, 0)}), // PRIO_PROCESS
		allowOnly(call{"ioprio_set", 251, 30}, clause{argEquals(0, 1), argEquals(1, 0)}),   // IOPRIO_WHO_PROCESS
	}
}

// For sockets (linux/socket.h, net.h, in.h). The upper bits of a type are flags.
const (
	afUnix, afInet, afInet6, afNetlink = 1, 2, 10, 16
	stream, datagram, raw, packets     = 1, 2, 3, 5
	typeBits                           = 0xf
	icmp, tcp, udp, icmp6              = 1, 6, 17, 58
	netlinkRoute, netlinkSocketDiag    = 0, 4 // linux/netlink.h
)

func socketType(of ...uint32) match { return match{1, typeBits, of, false} }

// socketClauses returns the clauses of the sockets that a tool may make. By default there are none, since a network namespace
// stops neither a connection to a socket file in a place nor AF_VSOCK. The protocol must match too: MPTCP and SCTP are
// streams as well, but outside Landlock's rules on TCP, and ICMP uses datagrams.
func (p profile) socketClauses() (when []clause) {
	if p.Inet {
		when = append(when, clause{argEquals(0, afInet, afInet6), socketType(stream), argEquals(2, 0, tcp)},
			clause{argEquals(0, afInet, afInet6), socketType(datagram), argEquals(2, 0, udp)})
	}
	if p.Unix {
		when = append(when, clause{argEquals(0, afUnix), socketType(stream, datagram, packets)})
	}
	if p.Host {
		when = append(when, clause{argEquals(0, afNetlink), socketType(datagram, raw), argEquals(2, netlinkRoute, netlinkSocketDiag)})
	}
	if p.Host && p.Inet {
		when = append(when, clause{argEquals(0, afInet, afInet6), socketType(datagram), argEquals(2, icmp, icmp6)})
	}
	return when
}

// socketpairClauses returns the clauses of socket pairs. Unless Unix is set, only connected types are allowed: a datagram socket
// could be connected to any socket file by its path.
func (p profile) socketpairClauses() []clause {
	if p.Unix {
		return []clause{{argEquals(0, afUnix), socketType(stream, datagram, packets)}}
	}
	return []clause{{argEquals(0, afUnix), socketType(stream, packets)}}
}

// Bits of a mode and of open's flags (linux/stat.h, asm-generic/fcntl.h; the same on both architectures).
const (
	setID      = 0o6000          // set-user-id, set-group-id
	makesAFile = 0x40 | 0x400000 // O_CREAT, __O_TMPFILE: without them the mode is not read
)

// fileModeRules returns the rules of the calls that set the mode of a file. A file that a tool makes in a place belongs to the
// owner of the place, so with these bits it would run as that user for every user on the host, where no mount is
// nosuid; if the gateway is root, the owner may be root. The set-group-id bit of directories is lost too, since the
// filter cannot tell the difference. openat2 has its mode in memory; programs can do without it, as on older kernels.
func (p profile) fileModeRules() []rule {
	plain := func(n uint32) clause { return clause{{n, setID, []uint32{0}, false}} }
	opens := func(n uint32) clause { return clause{{n, makesAFile, []uint32{0}, false}} }
	rules := []rule{
		allowOnly(call{"open", 2, none}, opens(1), plain(2)),
		allowOnly(call{"openat", 257, 56}, opens(2), plain(3)),
		{call: call{"openat2", 437, 437}, otherwise: enosys},
		allowOnly(call{"creat", 85, none}, plain(1)),
		allowOnly(call{"mknod", 133, none}, plain(1)),
		allowOnly(call{"mknodat", 259, 33}, plain(2)),
	}
	if p.Shared {
		return rules // it may not change any mode
	}
	return append(rules,
		allowOnly(call{"chmod", 90, none}, plain(1)),
		allowOnly(call{"fchmod", 91, 52}, plain(1)),
		allowOnly(call{"fchmodat", 268, 53}, plain(2)),
		allowOnly(call{"fchmodat2", 452, 452}, plain(2)))
}
