//go:build linux

package jail

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// layerError records which layer is missing.
type layerError struct {
	layer string
	err   error
}

func (e *layerError) Error() string { return e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

// layerUnavailable returns an error that names the missing layer, the reason, and the remedy.
func layerUnavailable(layer string, err error) error {
	return bailey.Unavailable.Wrap(&layerError{layer, err}, "no jail: layer "+layer+" could not be set up",
		cmp.Or(bailey.HintOf(err), layerHint(layer, err)))
}

// stepError turns a report of PID 1 into an error with the step, its layer and the remedy.
func stepError(s step, errno unix.Errno) error {
	what := fmt.Errorf("%s: %w", s.formatLine(), errno)
	changed := errno == unix.ESTALE || errno == unix.ENOENT || errno == unix.ELOOP || errno == unix.ENOTDIR
	switch {
	case s.Op == inside.Exec || s.Op == inside.Become:
		return bailey.Unavailable.Wrap(errno, s.S[0]+" could not be started in its jail",
			"check that it is a program for this machine and that its libraries are installed")
	case changed && (s.Op == inside.Bind || s.Op == inside.Donated || s.Op == inside.Chdir || s.Op == inside.Grant):
		return bailey.Conflict.Wrap(errno, s.S[0]+" has changed since it was checked",
			"call again: it was moved or replaced after the check")
	case s.Op == inside.Copy:
		return bailey.Unavailable.Wrap(errno, s.S[0]+" could not be copied into its jail",
			"free memory; or install the program and its directories as root, to need no copy")
	case errno == unix.EACCES && (s.Op == inside.Bind || s.Op == inside.Reach || s.Op == inside.Grant):
		return bailey.Unavailable.Wrap(errno, "the jail's user cannot access "+s.S[0],
			"make the program and its directories readable by everyone, or start bailey as the user who owns the files: a gateway started as root runs tools without root's rights")
	}
	return layerUnavailable(s.layer, what)
}

// layerHint knows the restrictions that distributions and containers put on namespaces.
func layerHint(layer string, err error) string {
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
	switch {
	case layer == layerCgroup:
		return "run bailey gateway stop, and the next call creates new control groups: they were removed or changed since the gateway started"
	case layer == layerWatcher:
		return "mount /proc without hidepid, on a kernel with CONFIG_PROC_CHILDREN: the gateway must see its jails in /proc"
	case errors.Is(err, unix.ENOSYS):
		return "use Linux 5.12 or newer, and a container whose seccomp profile allows the call: the kernel lacks a system call that the jail needs"
	case errors.Is(err, unix.ENOSPC) && layer == "userns", readSysctl("user/max_user_namespaces") == "0":
		return "raise the limit of user namespaces: sysctl -w user.max_user_namespaces=15000"
	case layer == "exec-once" && errors.Is(err, unix.EBUSY):
		return "switch off the system call interception of the container's runtime: it prevents the tool from having its own listener"
	case layer == "ids":
		return "start bailey as an ordinary user: a gateway started as root needs CAP_SETUID and CAP_SETGID to give its tools another uid"
	case layer == "seccomp" && errors.Is(err, unix.EBADMSG):
		return "use x86-64 or arm64: there is no table of system calls for this machine"
	case layer == "seccomp":
		return "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER)"
	case errors.Is(err, unix.EAGAIN):
		return "raise the limit of processes: see ulimit -u and the pids cgroup"
	case layer == "proc-private" && denied:
		return "start the container with --security-opt systempaths=unconfined (podman: unmask=ALL), because its /proc is masked; or use a capability that needs no /proc"
	case denied && readSysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "install the supplied profile docs/apparmor/bailey, because AppArmor denies user namespaces to ordinary programs; or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	case denied && readSysctl("kernel/unprivileged_userns_clone") == "0":
		return "allow user namespaces for ordinary users: sysctl -w kernel.unprivileged_userns_clone=1"
	case denied:
		return "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined, because containers deny user namespaces and mounts by default; or run bailey on the host. If the gateway is root, everyone must be able to execute bailey's file"
	case errors.Is(err, unix.EINVAL) && layer == "userns":
		return "use a kernel with the namespaces that a jail needs (CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS)"
	}
	return "see docs/operations.md for what a jail needs of a host"
}

// noCgroupError says why cages are watched and have no control group, and the remedy.
func noCgroupError(why error) error {
	const alone = "systemd-run --user --scope -p Delegate=yes bailey gateway, or a unit with Delegate=yes"
	hint := "see docs/operations.md for what control groups need of a host"
	switch {
	case errors.Is(why, errReadOnly), errors.Is(why, unix.EROFS):
		hint = "run bailey on the host, or in a container with a writable /sys/fs/cgroup: control groups are read-only, as in most containers"
	case errors.Is(why, unix.EBUSY):
		hint = "run bailey gateway stop, and start the gateway in its own control group, which it now shares with other processes: " + alone
	case errors.Is(why, unix.EACCES), errors.Is(why, unix.EPERM):
		hint = "run bailey gateway stop, and start the gateway in its own control group, which it lacks: " + alone
	case errors.Is(why, unix.ENODEV):
		hint = "set Delegate=cpu memory pids in a drop-in of user@.service: the gateway's group has too few controllers"
	}
	return bailey.Unavailable.Wrap(why, "no control groups for layer cgroup: a watcher bounds memory and tasks", hint)
}

// readSysctl returns a kernel setting, or "" if it does not exist.
func readSysctl(name string) string {
	text, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
