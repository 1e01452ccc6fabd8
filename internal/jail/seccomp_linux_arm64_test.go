package jail

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNumbersHere(t *testing.T) {
	sameNumbers(t, map[string]uint32{
		"acct": unix.SYS_ACCT, "add_key": unix.SYS_ADD_KEY, "adjtimex": unix.SYS_ADJTIMEX, "bpf": unix.SYS_BPF, "chroot": unix.SYS_CHROOT,
		"clock_adjtime": unix.SYS_CLOCK_ADJTIME, "clock_settime": unix.SYS_CLOCK_SETTIME, "clone": unix.SYS_CLONE,
		"clone3": unix.SYS_CLONE3, "delete_module": unix.SYS_DELETE_MODULE, "fanotify_init": unix.SYS_FANOTIFY_INIT,
		"fanotify_mark": unix.SYS_FANOTIFY_MARK, "fchmod": unix.SYS_FCHMOD, "fchmodat": unix.SYS_FCHMODAT,
		"fchmodat2": unix.SYS_FCHMODAT2, "fchown": unix.SYS_FCHOWN, "fchownat": unix.SYS_FCHOWNAT, "fcntl": unix.SYS_FCNTL,
		"file_setattr": unix.SYS_FILE_SETATTR, "finit_module": unix.SYS_FINIT_MODULE, "fremovexattr": unix.SYS_FREMOVEXATTR,
		"fsconfig": unix.SYS_FSCONFIG, "fsetxattr": unix.SYS_FSETXATTR, "fsmount": unix.SYS_FSMOUNT, "fsopen": unix.SYS_FSOPEN,
		"fspick": unix.SYS_FSPICK, "get_robust_list": unix.SYS_GET_ROBUST_LIST, "init_module": unix.SYS_INIT_MODULE,
		"io_uring_enter": unix.SYS_IO_URING_ENTER, "io_uring_register": unix.SYS_IO_URING_REGISTER,
		"io_uring_setup": unix.SYS_IO_URING_SETUP, "ioctl": unix.SYS_IOCTL, "ioprio_set": unix.SYS_IOPRIO_SET, "kcmp": unix.SYS_KCMP,
		"kexec_file_load": unix.SYS_KEXEC_FILE_LOAD, "kexec_load": unix.SYS_KEXEC_LOAD, "keyctl": unix.SYS_KEYCTL, "kill": unix.SYS_KILL,
		"listns": unix.SYS_LISTNS, "lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE, "lremovexattr": unix.SYS_LREMOVEXATTR,
		"lsetxattr": unix.SYS_LSETXATTR, "memfd_create": unix.SYS_MEMFD_CREATE, "memfd_secret": unix.SYS_MEMFD_SECRET,
		"migrate_pages": unix.SYS_MIGRATE_PAGES, "mount": unix.SYS_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
		"move_mount": unix.SYS_MOVE_MOUNT, "move_pages": unix.SYS_MOVE_PAGES, "mq_getsetattr": unix.SYS_MQ_GETSETATTR,
		"mq_notify": unix.SYS_MQ_NOTIFY, "mq_open": unix.SYS_MQ_OPEN, "mq_timedreceive": unix.SYS_MQ_TIMEDRECEIVE,
		"mq_timedsend": unix.SYS_MQ_TIMEDSEND, "mq_unlink": unix.SYS_MQ_UNLINK, "msgctl": unix.SYS_MSGCTL, "msgget": unix.SYS_MSGGET,
		"msgrcv": unix.SYS_MSGRCV, "msgsnd": unix.SYS_MSGSND, "name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT,
		"nfsservctl": unix.SYS_NFSSERVCTL, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "open_tree": unix.SYS_OPEN_TREE,
		"open_tree_attr": unix.SYS_OPEN_TREE_ATTR, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "personality": unix.SYS_PERSONALITY,
		"pidfd_getfd": unix.SYS_PIDFD_GETFD, "inotify_init1": unix.SYS_INOTIFY_INIT1, "inotify_add_watch": unix.SYS_INOTIFY_ADD_WATCH, "inotify_rm_watch": unix.SYS_INOTIFY_RM_WATCH,
		"pidfd_open": unix.SYS_PIDFD_OPEN, "pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL,
		"pivot_root": unix.SYS_PIVOT_ROOT, "prlimit64": unix.SYS_PRLIMIT64, "process_madvise": unix.SYS_PROCESS_MADVISE,
		"process_mrelease": unix.SYS_PROCESS_MRELEASE, "process_vm_readv": unix.SYS_PROCESS_VM_READV,
		"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV, "ptrace": unix.SYS_PTRACE, "quotactl": unix.SYS_QUOTACTL,
		"quotactl_fd": unix.SYS_QUOTACTL_FD, "reboot": unix.SYS_REBOOT, "removexattr": unix.SYS_REMOVEXATTR,
		"removexattrat": unix.SYS_REMOVEXATTRAT, "request_key": unix.SYS_REQUEST_KEY, "rt_sigqueueinfo": unix.SYS_RT_SIGQUEUEINFO,
		"rt_tgsigqueueinfo": unix.SYS_RT_TGSIGQUEUEINFO, "sched_setaffinity": unix.SYS_SCHED_SETAFFINITY,
		"sched_setattr": unix.SYS_SCHED_SETATTR, "sched_setparam": unix.SYS_SCHED_SETPARAM,
		"seccomp": unix.SYS_SECCOMP, "sched_setscheduler": unix.SYS_SCHED_SETSCHEDULER, "semctl": unix.SYS_SEMCTL, "semget": unix.SYS_SEMGET, "semop": unix.SYS_SEMOP,
		"semtimedop": unix.SYS_SEMTIMEDOP, "setdomainname": unix.SYS_SETDOMAINNAME, "sethostname": unix.SYS_SETHOSTNAME,
		"setns": unix.SYS_SETNS, "setpriority": unix.SYS_SETPRIORITY, "settimeofday": unix.SYS_SETTIMEOFDAY,
		"setxattr": unix.SYS_SETXATTR, "setxattrat": unix.SYS_SETXATTRAT, "shmat": unix.SYS_SHMAT, "shmctl": unix.SYS_SHMCTL,
		"shmdt": unix.SYS_SHMDT, "shmget": unix.SYS_SHMGET, "socket": unix.SYS_SOCKET, "socketpair": unix.SYS_SOCKETPAIR,
		"swapoff": unix.SYS_SWAPOFF, "swapon": unix.SYS_SWAPON, "syslog": unix.SYS_SYSLOG, "tgkill": unix.SYS_TGKILL,
		"tkill": unix.SYS_TKILL, "umount2": unix.SYS_UMOUNT2, "unshare": unix.SYS_UNSHARE, "userfaultfd": unix.SYS_USERFAULTFD,
		"utimensat": unix.SYS_UTIMENSAT, "vhangup": unix.SYS_VHANGUP,
		"io_setup": unix.SYS_IO_SETUP, "io_destroy": unix.SYS_IO_DESTROY, "io_submit": unix.SYS_IO_SUBMIT, "io_cancel": unix.SYS_IO_CANCEL,
		"io_getevents": unix.SYS_IO_GETEVENTS, "io_pgetevents": unix.SYS_IO_PGETEVENTS, "statmount": unix.SYS_STATMOUNT, "listmount": unix.SYS_LISTMOUNT,
		"vmsplice": unix.SYS_VMSPLICE, "remap_file_pages": unix.SYS_REMAP_FILE_PAGES, "setrlimit": unix.SYS_SETRLIMIT,
		"openat": unix.SYS_OPENAT, "openat2": unix.SYS_OPENAT2, "mknodat": unix.SYS_MKNODAT,
		"getxattr": unix.SYS_GETXATTR, "lgetxattr": unix.SYS_LGETXATTR, "fgetxattr": unix.SYS_FGETXATTR, "listxattr": unix.SYS_LISTXATTR, "llistxattr": unix.SYS_LLISTXATTR, "flistxattr": unix.SYS_FLISTXATTR, "getxattrat": unix.SYS_GETXATTRAT, "listxattrat": unix.SYS_LISTXATTRAT, "mmap": unix.SYS_MMAP, "setsockopt": unix.SYS_SETSOCKOPT,
	})
}
