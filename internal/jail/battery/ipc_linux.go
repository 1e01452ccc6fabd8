package battery

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ipcProbes are attempts on resources that processes share by a name or number instead of a file. Locks and leases on files
// in a place are legitimate, and so are files in a place that two calls may write.
func ipcProbes() []Probe {
	return []Probe{
		{Name: "ipc/shared-memory", try: func(s *Scene) verdict { return attachSegment(s.Key) }},
		{Name: "ipc/semaphore", try: func(s *Scene) verdict { return trySyscall("a semaphore", unix.SYS_SEMGET, uintptr(s.Key), 0, 0) }},
		{Name: "ipc/message-queue", try: func(s *Scene) verdict { return trySyscall("a queue", unix.SYS_MSGGET, uintptr(s.Key), 0) }},
		{Name: "ipc/list-segments", try: listSegments},
		{Name: "ipc/posix-queue", try: func(s *Scene) verdict {
			return trySyscall("a queue", unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(cString(s.Queue))),
				unix.O_RDONLY|unix.O_NONBLOCK, 0, 0)
		}},
		{Name: "ipc/shared-file", try: func(s *Scene) verdict { return tryRead(s.Shm) }},
		{Name: "ipc/watch", try: tryInotifyWatch},
		{Name: "ipc/watch-mounts", try: watchMounts},
		{Name: "ipc/sysvipc-list", try: func(s *Scene) verdict {
			if v := tryRead("/proc/sysvipc/shm"); v.open == "" {
				return v
			}
			return attachSegment(s.Key)
		}},
	}
}

func attachSegment(key int) verdict {
	id, err := doSyscall(unix.SYS_SHMGET, uintptr(key), 0, 0)
	if err != nil {
		return errorVerdict(err, "")
	}
	_, err = doSyscall(unix.SYS_SHMAT, id, 0, unix.SHM_RDONLY)
	return errorVerdict(err, "a segment of shared memory")
}

// listSegments queries each slot of the namespace's table.
func listSegments(*Scene) verdict {
	const statAny = 15 // SHM_STAT_ANY
	for slot := range 128 {
		var b [256]byte
		if id, err := doSyscall(unix.SYS_SHMCTL, uintptr(slot), statAny, uintptr(unsafe.Pointer(&b))); err == nil {
			return openVerdict("segment %d", id)
		}
	}
	return heldVerdict("none in 128 slots")
}

// tryInotifyWatch asks for notifications about files of the host.
func tryInotifyWatch(s *Scene) verdict {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return errorVerdict(err, "")
	}
	var all verdictSeries
	for _, path := range []string{s.Secret, s.Canary, "/etc/shadow", "/root", "/proc/1"} {
		_, err := unix.InotifyAddWatch(fd, path, unix.IN_ALL_EVENTS)
		all.addVerdict(path, errorVerdict(err, "watched"))
	}
	return all.overallVerdict()
}

func watchMounts(s *Scene) verdict {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, unix.O_RDONLY)
	if err != nil {
		return errorVerdict(err, "")
	}
	return errorVerdict(unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_OPEN, unix.AT_FDCWD,
		s.RO), "the filesystem beneath the place", syscall.EINVAL)
}

// keyringProbes are attempts on the keys of the gateway's user (trap 20). If the kernel denies access or does not find the
// key, the answer is a refusal in both cases.
func keyringProbes() []Probe {
	ring := func(name string, id int) Probe {
		return Probe{Name: "keyring/" + name, try: func(s *Scene) verdict { return searchKeyring(id, s.KeyName) }}
	}
	by := func(name string, operation uintptr) Probe {
		return Probe{Name: "keyring/" + name, try: func(s *Scene) verdict {
			if s.KeyID == 0 {
				return heldVerdict("the host has no keyrings")
			}
			var b [64]byte
			return trySyscall("the key, by its number", unix.SYS_KEYCTL, operation, uintptr(s.KeyID),
				uintptr(unsafe.Pointer(&b)), 64)
		}}
	}
	return []Probe{
		ring("thread", unix.KEY_SPEC_THREAD_KEYRING),
		ring("process", unix.KEY_SPEC_PROCESS_KEYRING),
		ring("session", unix.KEY_SPEC_SESSION_KEYRING),
		ring("user", unix.KEY_SPEC_USER_KEYRING),
		ring("user-session", unix.KEY_SPEC_USER_SESSION_KEYRING),
		by("describe", unix.KEYCTL_DESCRIBE),
		by("read", unix.KEYCTL_READ),
		by("revoke", unix.KEYCTL_REVOKE),
		{Name: "keyring/join-by-name", try: func(s *Scene) verdict {
			if _, err := unix.KeyctlJoinSessionKeyring(s.KeyName); err != nil {
				return errorVerdict(err, "")
			}
			return searchKeyring(unix.KEY_SPEC_SESSION_KEYRING, s.KeyName)
		}},
		{Name: "keyring/request", try: func(s *Scene) verdict {
			_, err := unix.RequestKey("user", s.KeyName, "", 0)
			return errorVerdict(err, "the key")
		}},
	}
}

func searchKeyring(ring int, name string) verdict {
	if name == "" {
		return heldVerdict("the host has no keyrings")
	}
	id, err := unix.KeyctlSearch(ring, "user", name, 0)
	return errorVerdict(err, "key "+formatInt(id))
}
