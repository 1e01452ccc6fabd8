package jail

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
