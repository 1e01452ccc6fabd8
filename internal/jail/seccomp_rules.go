package jail

// A rule answers one call by its arguments: then where a clause holds, otherwise where none does.
type rule struct {
	call
	when            []clause
	then, otherwise uint32
}

// A clause holds when all its matches do.
type clause []match

// A match holds when an argument, masked, is one of the values. It looks at the low word alone, unless it is said to be
// about the high one: every argument named here but pointers is an int or an unsigned int to the kernel (clone's flags as
// well: lower_32_bits in kernel/fork.c), which drops the upper word.
type match struct {
	arg  uint32
	mask uint32
	is   []uint32
	high bool
}

// whole masks nothing.
const whole = ^uint32(0)

// arg matches the whole of an argument.
func arg(n uint32, is ...uint32) match { return match{n, whole, is, false} }

// null matches a pointer that leads nowhere.
func null(n uint32) clause { return clause{arg(n, 0), {n, whole, []uint32{0}, true}} }

// only lets a call through where a clause holds, except where none does.
func only(c call, when ...clause) rule   { return rule{c, when, allow, eperm} }
func except(c call, when ...clause) rule { return rule{c, when, eperm, allow} }

// newNamespaces are all CLONE_NEW* flags (linux/sched.h). The lowest, CLONE_NEWTIME, lies where clone
// has the exit signal, and in no signal's number.
const newNamespaces = 0x7e020080

// Requests of ioctl that no cage needs. Of terminals (asm-generic/ioctls.h): to type into one
// (CVE-2017-5226), the console's way to the same (CVE-2023-28100), another line discipline
// (CVE-2017-2636). Of file systems (linux/fscrypt.h): the keys of encrypted directories, which are the
// user's, in a cage and out of it.
const (
	tiocsti, tioclinux, tiocsetd = 0x5412, 0x541c, 0x5423
	addKey, removeKey            = 0xc0506617, 0xc0406618
)

// Requests that change a file's metadata by a descriptor open for reading (linux/fs.h, fsverity.h,
// fscrypt.h, msdos_fs.h).
const (
	setFlags, setFlags32     = 0x40086602, 0x40046602
	setVersion, setVersion32 = 0x40087602, 0x40047602
	setExtVersion            = 0x40086604 // ext4's own, and its form for 32 bits
	setExtVersion32          = 0x40046604
	setXattr                 = 0x401c5820
	enableVerity             = 0x40806685
	setEncryption            = 0x800c6613
	fatAttributes            = 0x40047211

	// All of btrfs: with a directory open for reading, subvolumes are made and removed in it. Copying
	// by reference (FICLONE) has its numbers here too; programs copy bytes where it is refused.
	requestType, btrfs = 0xff00, 0x9400
)

// Requests of btrfs that no cage needs (linux/btrfs.h): a snapshot of a place would show what a mask covers
// under a name that none does.
var subvolumes = []uint32{
	0x50009401, 0x50009417, // SNAP_CREATE, SNAP_CREATE_V2
	0x5000940e, 0x50009418, // SUBVOL_CREATE, SUBVOL_CREATE_V2
	0x5000940f, 0x5000943f, // SNAP_DESTROY, SNAP_DESTROY_V2
}

// newListener is the flag of seccomp(2) that has another process asked about a call. Of two filters that ask, the
// kernel hears the newer: a tool could answer for itself what the keeper of a lesser cage is asked.
const newListener = 1 << 3

// Who gets the signals of a descriptor: requests of ioctl (asm-generic/sockios.h), commands of fcntl
// (asm-generic/fcntl.h).
const (
	fioSetOwn, siocSetGroup = 0x8901, 0x8902
	fSetOwn, fSetOwnEx      = 8, 15
	fSetLease, fSetDeleg    = 1024, 1024 + 16 // on a file of the user's it stalls every program that opens the file (linux/fcntl.h)
	fSetPipeSize            = 1024 + 7        // its pages are counted for the user on the whole machine (pipe(7))
)

// Huge pages belong to the machine, and no limit of a call counts them (linux/mman.h). Segments of them the kernel keeps for root.
const mapHuge = 0x40000

// Programs that a socket runs for each packet (asm-generic/socket.h): what they are translated to is bounded for the whole
// machine (net.core.bpf_jit_limit).
const (
	levelSocket                            = 1
	attachFilter, attachProgram            = 26, 50
	attachReuseportFilter, attachReuseport = 51, 52
)

// No tool may change the limit of core dumps: see [plan.common]. A call that tries to changes nothing and returns
// success, also where it asks for the old limit, which is not written then; in the cage "landlock" it is refused.
const limitCore, unchanged = 4, errno // of 0

// limitsBesideCore are all other resources (asm-generic/resource.h).
func limitsBesideCore() (list []uint32) {
	for n := range uint32(16) {
		if n != limitCore {
			list = append(list, n)
		}
	}
	return list
}

// rules are the calls whose arguments decide.
func (p profile) rules() []rule {
	requests := append([]uint32{tiocsti, tioclinux, tiocsetd, addKey, removeKey}, subvolumes...)
	commands := []uint32{fSetLease, fSetDeleg, fSetPipeSize}
	rules := []rule{
		only(call{"clone", 56, 220}, clause{{0, newNamespaces, []uint32{0}, false}}),
		{call: call{"clone3", 435, 435}, otherwise: enosys},          // its flags lie in memory; libc falls back to clone
		only(call{"personality", 135, 92}, clause{arg(0, 0, whole)}), // the one all have, and the question
		{call{"socket", 41, 198}, p.sockets(), allow, eacces},
		{call{"socketpair", 53, 199}, p.pairs(), allow, eacces},
		except(call{"seccomp", 317, 277}, clause{{1, newListener, []uint32{newListener}, false}}),
		{call{"setrlimit", 160, 164}, []clause{{arg(0, limitCore)}}, unchanged, allow},
		except(call{"mmap", 9, 222}, clause{{3, mapHuge, []uint32{mapHuge}, false}}),
		except(call{"setsockopt", 54, 208}, clause{arg(1, levelSocket), arg(2, attachFilter, attachProgram, attachReuseportFilter, attachReuseport)}),
	}
	if p.Shared {
		requests = append(requests, setFlags, setFlags32, setVersion, setVersion32, setExtVersion, setExtVersion32, setXattr, enableVerity, setEncryption, fatAttributes)
		rules = append(rules, oneself()...)
		for _, c := range attributes {
			rules = append(rules, rule{call: c, otherwise: enotsup})
		}
	} else {
		rules = append(rules, rule{call{"prlimit64", 302, 261}, []clause{{arg(1, limitsBesideCore()...)}, null(2)}, allow, unchanged})
	}
	if p.NoSignals {
		requests = append(requests, fioSetOwn, siocSetGroup)
		commands = append(commands, fSetOwn, fSetOwnEx)
		rules = append(rules, only(call{"kill", 62, 129}, clause{arg(0, 0)})) // the tool's own process group
	}
	rules = append(rules, except(call{"fcntl", 72, 25}, clause{arg(1, commands...)}))
	ioctl := except(call{"ioctl", 16, 29}, clause{arg(1, requests...)})
	if p.Shared {
		ioctl.when = append(ioctl.when, clause{{1, requestType, []uint32{btrfs}, false}})
	}
	return append(append(rules, ioctl), p.modes()...)
}

// oneself are the calls that set something of any process, left for the caller: a pid of zero. A thread
// cannot name even itself by number, for the filter does not know its number.
func oneself() []rule {
	self := clause{arg(0, 0)}
	return []rule{
		only(call{"prlimit64", 302, 261}, clause{self[0], arg(1, limitsBesideCore()...)}, append(clause{self[0]}, null(2)...)),
		only(call{"sched_setaffinity", 203, 122}, self),
		only(call{"sched_setscheduler", 144, 119}, self),
		only(call{"sched_setparam", 142, 118}, self),
		only(call{"sched_setattr", 314, 274}, self),
		only(call{"setpriority", 141, 140}, clause{arg(0, 0), arg(1, 0)}), // PRIO_PROCESS
		only(call{"ioprio_set", 251, 30}, clause{arg(0, 1), arg(1, 0)}),   // IOPRIO_WHO_PROCESS
	}
}

// Of sockets (linux/socket.h, net.h, in.h). A type's upper bits are flags.
const (
	afUnix, afInet, afInet6   = 1, 2, 10
	stream, datagram, packets = 1, 2, 5
	typeBits                  = 0xf
	tcp, udp                  = 6, 17
)

func kind(of ...uint32) match { return match{1, typeBits, of, false} }

// sockets are those a tool may make: none by itself, for a network namespace stops neither a connection
// to a socket file in a place nor AF_VSOCK. The protocol is named too: MPTCP and SCTP are streams as
// well, past Landlock's rules on TCP, and ICMP comes as datagrams.
func (p profile) sockets() (when []clause) {
	if p.Inet {
		when = append(when, clause{arg(0, afInet, afInet6), kind(stream), arg(2, 0, tcp)}, clause{arg(0, afInet, afInet6), kind(datagram), arg(2, 0, udp)})
	}
	if p.Unix {
		when = append(when, clause{arg(0, afUnix), kind(stream, datagram, packets)})
	}
	return when
}

// pairs are of the connected kinds: one of datagrams could be turned to any socket file by its path.
func (p profile) pairs() []clause {
	if p.Unix {
		return []clause{{arg(0, afUnix), kind(stream, datagram, packets)}}
	}
	return []clause{{arg(0, afUnix), kind(stream, packets)}}
}
