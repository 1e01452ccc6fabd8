package jail

// Bits of a mode and of open's flags (linux/stat.h, asm-generic/fcntl.h; the same on both architectures).
const (
	setID      = 0o6000          // set-user-id, set-group-id
	makesAFile = 0x40 | 0x400000 // O_CREAT, __O_TMPFILE: without them a mode is not read
)

// modes are the calls that give a file its mode. What a tool makes in a place belongs to the place's owner, so
// with these bits it would run as that user for anybody on the host, who sees no nosuid mount; for a gateway
// that is root that may be root. The set-group-id bit of directories goes with it: the filter sees no
// difference. Of openat2 the mode lies in memory; programs know kernels without it.
func (p profile) modes() []rule {
	plain := func(n uint32) clause { return clause{{n, setID, []uint32{0}, false}} }
	opens := func(n uint32) clause { return clause{{n, makesAFile, []uint32{0}, false}} }
	rules := []rule{
		only(call{"open", 2, none}, opens(1), plain(2)),
		only(call{"openat", 257, 56}, opens(2), plain(3)),
		{call: call{"openat2", 437, 437}, otherwise: enosys},
		only(call{"creat", 85, none}, plain(1)),
		only(call{"mknod", 133, none}, plain(1)),
		only(call{"mknodat", 259, 33}, plain(2)),
	}
	if p.Shared {
		return rules // it changes no mode at all
	}
	return append(rules,
		only(call{"chmod", 90, none}, plain(1)),
		only(call{"fchmod", 91, 52}, plain(1)),
		only(call{"fchmodat", 268, 53}, plain(2)),
		only(call{"fchmodat2", 452, 452}, plain(2)))
}
