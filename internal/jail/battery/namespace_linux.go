package battery

import (
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespaceKinds are the kinds of namespaces (namespaces(7)).
var namespaceKinds = []struct {
	name string
	flag uintptr
}{
	{"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET},
	{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	{"time", unix.CLONE_NEWTIME},
}

// namespaceProbes are attempts to get rights in a new namespace, in another process's namespace, or in general.
func namespaceProbes() []Probe {
	var list []Probe
	for _, k := range namespaceKinds {
		list = append(list,
			Probe{Name: "namespace/unshare-" + k.name, try: func(*Scene) verdict {
				return errorVerdict(runWithAttr(&syscall.SysProcAttr{Unshareflags: k.flag}), "unshared")
			}},
			Probe{Name: "namespace/clone3-" + k.name, try: func(*Scene) verdict { return clone3(uint64(k.flag)) }},
			Probe{Name: "namespace/enter-" + k.name, try: func(*Scene) verdict { return tryEnterNamespace("/proc/1/ns/" + k.name) }})
		if k.flag != unix.CLONE_NEWTIME { // its bit is among those that clone(2) uses for the signal
			list = append(list, Probe{Name: "namespace/clone-" + k.name, try: func(*Scene) verdict {
				return errorVerdict(runWithAttr(&syscall.SysProcAttr{Cloneflags: k.flag}), "cloned")
			}})
		}
	}
	set := func(name string, trap uintptr, a ...uintptr) Probe {
		return Probe{Name: "privilege/" + name, try: func(*Scene) verdict { // an id that is not mapped returns EINVAL
			_, err := doSyscall(trap, a...)
			return errorVerdict(err, "the id was taken", syscall.EINVAL)
		}}
	}
	return append(list,
		Probe{Name: "namespace/user-then-mount", try: userThenMount},
		Probe{Name: "privilege/none", try: checkNoCapabilities, here: true},
		Probe{Name: "privilege/capset", try: tryCapset},
		Probe{Name: "privilege/ambient", try: func(*Scene) verdict {
			return trySyscall("an ambient capability", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE,
				unix.CAP_NET_RAW, 0, 0)
		}},
		Probe{Name: "privilege/securebits", try: func(*Scene) verdict {
			return trySyscall("the securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0)
		}},
		Probe{Name: "privilege/keep-capabilities",
			Full: "an ordinary user locks no securebit, and has no capability to keep", try: func(*Scene) verdict {
				return trySyscall("capabilities are kept", unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1)
			}},
		Probe{Name: "privilege/new-privileges", try: newPrivileges, here: true},
		set("setuid", unix.SYS_SETUID, 0),
		set("setresuid", unix.SYS_SETRESUID, 0, 0, 0),
		set("setgid", unix.SYS_SETGID, 0),
		set("setresgid", unix.SYS_SETRESGID, 0, 0, 0),
		set("setgroups", unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(new(uint32)))),
		Probe{Name: "privilege/setfsuid", try: trySetfsuid},
		Probe{Name: "privilege/chroot", try: func(s *Scene) verdict { return errorVerdict(unix.Chroot(s.Tmp), "a root of its own") }},
		Probe{Name: "privilege/pivot", try: func(s *Scene) verdict { return errorVerdict(unix.PivotRoot(s.Tmp, s.Tmp), "another root") }},
		Probe{Name: "privilege/id-maps", try: idMaps},
	)
}

// runWithAttr runs this program with attributes that the kernel must grant.
func runWithAttr(attr *syscall.SysProcAttr) error {
	cmd := exec.Command(os.Args[0], "noop")
	cmd.SysProcAttr = attr
	return cmd.Run()
}

// clone3 passes its flags in memory, where no filter sees them (trap 10). The child ends at once.
func clone3(flags uint64) verdict {
	args := [11]uint64{0: flags, 4: uint64(syscall.SIGCHLD)} // struct clone_args
	pid, _, e := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if e == 0 && pid == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if e != 0 {
		return errorVerdict(e, "")
	}
	syscall.Wait4(int(pid), nil, 0, nil)
	return openVerdict("cloned")
}

// tryEnterNamespace joins the namespace of file, for example that of PID 1.
func tryEnterNamespace(file string) verdict {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errorVerdict(err, "")
	}
	return errorVerdict(unix.Setns(fd, 0), "entered")
}

// userThenMount becomes root of a new user namespace and mounts there: the Go runtime makes every mount of a new mount
// namespace private, which is itself a mount (trap 21: if the host refuses it, it may be refused only here).
func userThenMount(*Scene) verdict {
	one := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	return errorVerdict(runWithAttr(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Unshareflags: unix.CLONE_NEWNS,
		UidMappings: one(os.Getuid()), GidMappings: one(os.Getgid())}), "root of a namespace, and it mounts")
}

// checkNoCapabilities expects no capability in any set, so none can be ambient either. An ordinary user without namespaces may keep a
// bounding set, which bounds rights that can no longer be gained.
func checkNoCapabilities(s *Scene) verdict {
	if sets := capabilitySets(); sets != [6]uint32{} {
		return openVerdict("capabilities %x", sets)
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if s.Kind == "full" && callPrctl(unix.PR_CAPBSET_READ, uintptr(c)) == 1 {
			return openVerdict("capability %d is in the bounding set", c)
		}
	}
	return heldVerdict("all sets are empty")
}

func tryCapset(*Scene) verdict {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	want := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
	return errorVerdict(unix.Capset(&head, &want[0]), "the capability to administer")
}

// newPrivileges tries to allow new privileges again, which must fail (prctl(2)).
func newPrivileges(*Scene) verdict {
	_, err := doSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0)
	if callPrctl(unix.PR_GET_NO_NEW_PRIVS, 0) != 1 {
		return openVerdict("a set-id program would gain by its owner")
	}
	return errorVerdict(err, "it went away", syscall.EINVAL)
}

// trySetfsuid returns the previous id, whether it succeeds or not.
func trySetfsuid(*Scene) verdict {
	doSyscall(unix.SYS_SETFSUID, 0)
	if id, _ := doSyscall(unix.SYS_SETFSUID, ^uintptr(0)); id == 0 {
		return openVerdict("files are root's to this thread")
	}
	return heldVerdict("still its own")
}

func idMaps(*Scene) verdict {
	var s verdictSeries
	for _, f := range []string{"uid_map", "gid_map", "setgroups", "projid_map"} {
		s.addVerdict(f, errorVerdict(openWithFlags(unix.O_WRONLY)("/proc/self/"+f), "can be written"))
	}
	return s.overallVerdict()
}

// waitForSignals gives sent signals time to arrive.
func waitForSignals() { time.Sleep(50 * time.Millisecond) }
