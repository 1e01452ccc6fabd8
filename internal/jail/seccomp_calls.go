package jail

// A call is a system call with its number on each architecture.
type call struct {
	name         string
	amd64, arm64 uint16
}

// none marks a call that an architecture does not have.
const none = 1<<16 - 1

func (c call) numberOn(a architecture) uint16 {
	if a.name == "arm64" {
		return c.arm64
	}
	return c.amd64
}

// A group is a set of calls that are denied for one reason.
type group struct {
	why   string
	calls []call
}

// deniedGroups returns the groups of calls that return EPERM whatever their arguments.
func (p profile) deniedGroups() []group {
	groups := alwaysDenied[:len(alwaysDenied):len(alwaysDenied)]
	if p.Shared {
		groups = append(groups, shared...)
	}
	if p.Shared || !p.Watches {
		groups = append(groups, watching)
	}
	if p.NoSignals {
		groups = append(groups, signalling)
	}
	return groups
}

// alwaysDenied is denied in every cage. Numbers: arch/x86/entry/syscalls/syscall_64.tbl, scripts/syscall.tbl.
var alwaysDenied = []group{
	{"tracing", []call{ // of other processes: a tracer can act as the traced process
		{"ptrace", 101, 117}, {"kcmp", 312, 272},
	}},
	{"foreign memory", []call{ // and descriptors of other processes; where their pages are
		{"process_vm_readv", 310, 270}, {"process_vm_writev", 311, 271}, {"process_madvise", 440, 440},
		{"process_mrelease", 448, 448}, {"pidfd_getfd", 438, 438}, {"get_robust_list", 274, 100},
		{"migrate_pages", 256, 238}, {"move_pages", 279, 239},
	}},
	{"keyring", []call{ // the kernel's keyrings belong to a uid, and outlive a call
		{"add_key", 248, 217}, {"request_key", 249, 218}, {"keyctl", 250, 219},
	}},
	{"mounts", []call{ // the file tree of a tool is set up before it starts
		{"mount", 165, 40}, {"umount2", 166, 39}, {"mount_setattr", 442, 442}, {"move_mount", 429, 429},
		{"open_tree", 428, 428}, {"open_tree_attr", 467, 467}, {"fsopen", 430, 430}, {"fsconfig", 431, 431},
		{"fsmount", 432, 432}, {"fspick", 433, 433}, {"pivot_root", 155, 41}, {"chroot", 161, 51},
	}},
	{"namespaces", []call{ // in its own namespace a tool has every capability, and reaches all kernel code behind them
		{"unshare", 272, 97}, {"setns", 308, 268}, {"listns", 470, 470},
	}},
	{"anonymous executables", []call{ // files without a name, outside of every noexec mount
		{"memfd_create", 319, 279}, {"memfd_secret", 447, 447},
	}},
	{"handles", []call{ // open files whatever the mounts and directories
		{"name_to_handle_at", 303, 264}, {"open_by_handle_at", 304, 265},
	}},
	{"modules", []call{
		{"init_module", 175, 105}, {"finit_module", 313, 273}, {"delete_module", 176, 106},
	}},
	{"kexec", []call{
		{"kexec_load", 246, 104}, {"kexec_file_load", 320, 294}, {"reboot", 169, 142},
	}},
	{"clocks", []call{ // of the host
		{"clock_settime", 227, 112}, {"settimeofday", 164, 170}, {"adjtimex", 159, 171}, {"clock_adjtime", 305, 266},
	}},
	{"observation", []call{ // of the kernel and of all processes
		{"perf_event_open", 298, 241}, {"bpf", 321, 280}, {"fanotify_init", 300, 262}, {"fanotify_mark", 301, 263},
		{"lookup_dcookie", 212, 18}, {"syslog", 103, 116}, {"acct", 163, 89},
	}},
	{"stalling", []call{ // of the kernel in the middle of a copy, long enough to win a race
		{"userfaultfd", 323, 282},
	}},
	{"io_uring", []call{ // makes sockets and opens files without passing the filter
		{"io_uring_setup", 425, 425}, {"io_uring_enter", 426, 426}, {"io_uring_register", 427, 427},
	}},
	{"asynchronous io", []call{ // the old interface: its use is counted for the whole machine (aio-max-nr)
		{"io_setup", 206, 0}, {"io_destroy", 207, 1}, {"io_submit", 209, 2}, {"io_cancel", 210, 3},
		{"io_getevents", 208, 4}, {"io_pgetevents", 333, 292},
	}},
	{"mount tables", []call{ // by number, without /proc
		{"statmount", 457, 457}, {"listmount", 458, 458},
	}},
	{"pages of others", []call{ // in a pipe or out of order; exploited repeatedly in the past
		{"vmsplice", 278, 75}, {"remap_file_pages", 216, 234},
	}},
	{"machine", []call{ // ports, segments, terminals, names, swap and quotas
		{"iopl", 172, none}, {"ioperm", 173, none}, {"modify_ldt", 154, none}, {"vhangup", 153, 58},
		{"sethostname", 170, 161}, {"setdomainname", 171, 162}, {"swapon", 167, 224}, {"swapoff", 168, 225},
		{"quotactl", 179, 60}, {"quotactl_fd", 443, 443},
	}},
	{"obsolete", []call{ // kept by the kernel for programs that no longer exist, or removed from it
		{"uselib", 134, none}, {"ustat", 136, none}, {"sysfs", 139, none}, {"_sysctl", 156, none},
		{"create_module", 174, none}, {"get_kernel_syms", 177, none}, {"query_module", 178, none},
		{"nfsservctl", 180, 42}, {"getpmsg", 181, none}, {"putpmsg", 182, none}, {"afs_syscall", 183, none},
		{"tuxcall", 184, none}, {"security", 185, none}, {"epoll_ctl_old", 214, none},
		{"epoll_wait_old", 215, none}, {"vserver", 236, none},
	}},
}

// helperCalls lists the calls that a warm helper makes for each call of a tool, or that its child makes before it becomes
// the tool, with the verdict for the tool.
var helperCalls = []struct {
	call
	verdict uint32
}{
	{call{"mount", 165, 40}, eperm}, {call{"unshare", 272, 97}, eperm}, {call{"setns", 308, 268}, eperm},
	{call{"keyctl", 250, 219}, eperm}, {call{"clone3", 435, 435}, enosys}, {call{"openat2", 437, 437}, enosys},
}

// shared is also denied if the tool runs among the user's other processes: see [profile].
var shared = []group{
	{"metadata", []call{ // no Landlock right covers it
		{"chmod", 90, none}, {"fchmod", 91, 52}, {"fchmodat", 268, 53}, {"fchmodat2", 452, 452},
		{"chown", 92, none}, {"lchown", 94, none}, {"fchown", 93, 55}, {"fchownat", 260, 54},
		{"utime", 132, none}, {"utimes", 235, none}, {"futimesat", 261, none}, {"utimensat", 280, 88},
		{"setxattr", 188, 5}, {"lsetxattr", 189, 6}, {"fsetxattr", 190, 7}, {"setxattrat", 463, 463},
		{"removexattr", 197, 14}, {"lremovexattr", 198, 15}, {"fremovexattr", 199, 16},
		{"removexattrat", 466, 466}, {"file_setattr", 469, 469},
	}},
	{"ipc", []call{ // of System V and POSIX: by key or name, without files
		{"shmget", 29, 194}, {"shmat", 30, 196}, {"shmctl", 31, 195}, {"shmdt", 67, 197},
		{"semget", 64, 190}, {"semop", 65, 193}, {"semctl", 66, 191}, {"semtimedop", 220, 192},
		{"msgget", 68, 186}, {"msgsnd", 69, 189}, {"msgrcv", 70, 188}, {"msgctl", 71, 187},
		{"mq_open", 240, 180}, {"mq_unlink", 241, 181}, {"mq_timedsend", 242, 182},
		{"mq_timedreceive", 243, 183}, {"mq_notify", 244, 184}, {"mq_getsetattr", 245, 185},
	}},
	{"processes", []call{ // of others, by descriptor
		{"pidfd_open", 434, 434}, {"pidfd_send_signal", 424, 424},
	}},
}

// watching is denied in the cage of a call, since its instances would be missing to the user's other programs
// (fs.inotify.max_user_instances), and in each cage of kind landlock, since it shows which files of the user appear,
// disappear and are used.
var watching = group{"watching", []call{
	{"inotify_init", 253, none}, {"inotify_init1", 294, 26}, {"inotify_add_watch", 254, 27},
	{"inotify_rm_watch", 255, 28},
}}

// attributes lists the calls that read extended attributes, which no Landlock right covers. A cage of kind landlock
// answers that files have none.
var attributes = []call{
	{"getxattr", 191, 8}, {"lgetxattr", 192, 9}, {"fgetxattr", 193, 10}, {"getxattrat", 464, 464},
	{"listxattr", 194, 11}, {"llistxattr", 195, 12}, {"flistxattr", 196, 13}, {"listxattrat", 465, 465},
}

// signalling lists the calls that send a signal to a given process, except kill(2), which has a rule.
var signalling = group{"signals", []call{
	{"tkill", 200, 130}, {"tgkill", 234, 131}, {"rt_sigqueueinfo", 129, 138}, {"rt_tgsigqueueinfo", 297, 240},
	{"pidfd_send_signal", 424, 424},
}}
