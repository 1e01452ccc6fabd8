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
	return bailey.Unavailable.Wrap(&layerError{layer, err}, "no cage: layer "+layer+" could not be set up",
		cmp.Or(bailey.HintOf(err), layerHint(layer, err)))
}

// stepError turns a report of PID 1 into an error with the step, its layer and the remedy.
func stepError(s step, errno unix.Errno) error {
	what := fmt.Errorf("%s: %w", s.formatLine(), errno)
	changed := errno == unix.ESTALE || errno == unix.ENOENT || errno == unix.ELOOP || errno == unix.ENOTDIR
	switch {
	case s.Op == inside.Exec || s.Op == inside.Become:
		return bailey.Unavailable.Wrap(errno, s.S[0]+" could not be started in its cage",
			"check that it is a program for this machine, complete with its libraries")
	case changed && (s.Op == inside.Bind || s.Op == inside.Donated || s.Op == inside.Chdir || s.Op == inside.Grant):
		return bailey.Conflict.Wrap(errno, s.S[0]+" is no longer what was checked",
			"it was moved or replaced after the check; call again")
	case s.Op == inside.Copy:
		return bailey.Unavailable.Wrap(errno, s.S[0]+" could not be copied into its cage",
			"the copy takes memory; install the program as root, its directories too, then it needs none")
	case errno == unix.EACCES && (s.Op == inside.Bind || s.Op == inside.Reach || s.Op == inside.Grant):
		return bailey.Unavailable.Wrap(errno, "the cage's user may not reach "+s.S[0],
			"a gateway started as root runs tools without root's rights: make the program and its directories readable for all, or start bailey as the user whose files they are")
	}
	return layerUnavailable(s.layer, what)
}

// layerHint knows the restrictions that distributions and containers put on namespaces.
func layerHint(layer string, err error) string {
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
	switch {
	case layer == layerCgroup:
		return "the gateway's control groups were taken away or changed since it started: bailey gateway stop; the next call looks for a place anew"
	case layer == layerWatcher:
		return "the gateway must see its cages in /proc: mount /proc without hidepid, on a kernel with CONFIG_PROC_CHILDREN"
	case errors.Is(err, unix.ENOSYS):
		return "the kernel lacks a system call the cage needs: use Linux 5.12 or newer, and a container whose seccomp profile lets it through"
	case errors.Is(err, unix.ENOSPC) && layer == "userns", readSysctl("user/max_user_namespaces") == "0":
		return "no more user namespaces are allowed: sysctl -w user.max_user_namespaces=15000"
	case layer == "exec-once" && errors.Is(err, unix.EBUSY):
		return "this container's runtime answers system calls itself and keeps the tool from having a listener of its own: switch its system call interception off"
	case layer == "ids":
		return "a gateway started as root gives its tools another uid, for which it needs CAP_SETUID and CAP_SETGID: start bailey as an ordinary user"
	case layer == "seccomp" && errors.Is(err, unix.EBADMSG):
		return "there is no table of system calls for this machine: use x86-64 or arm64"
	case layer == "seccomp":
		return "the kernel was built without seccomp filters (CONFIG_SECCOMP_FILTER)"
	case errors.Is(err, unix.EAGAIN):
		return "the limit of processes is reached: see ulimit -u and the pids cgroup"
	case layer == "proc-private" && denied:
		return "this container's /proc is masked: start it with --security-opt systempaths=unconfined (podman: unmask=ALL), or use a capability that needs no /proc"
	case denied && readSysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor denies user namespaces to ordinary programs: install the profile docs/apparmor/bailey that comes with it, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	case denied && readSysctl("kernel/unprivileged_userns_clone") == "0":
		return "user namespaces are switched off for ordinary users: sysctl -w kernel.unprivileged_userns_clone=1"
	case denied:
		return "in a container, user namespaces and mounts are denied by default: start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined, or run bailey on the host; bailey's own file must be executable by all when the gateway is root"
	case errors.Is(err, unix.EINVAL) && layer == "userns":
		return "the kernel was built without the namespaces a cage is made of (CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS)"
	}
	return "the kernel said why; docs/operations.md tells what a cage needs of a host"
}

// noCgroupError says why cages are watched and have no control group, and the remedy.
func noCgroupError(why error) error {
	const alone = "systemd-run --user --scope -p Delegate=yes bailey gateway, or a unit with Delegate=yes"
	hint := "docs/operations.md tells what control groups need of a host"
	switch {
	case errors.Is(why, errReadOnly), errors.Is(why, unix.EROFS):
		hint = "control groups are read-only, as in most containers: run bailey on the host, or in a container with a /sys/fs/cgroup that it may write"
	case errors.Is(why, unix.EBUSY):
		hint = "the gateway shares its control group with other processes: bailey gateway stop, and start it in one of its own: " + alone
	case errors.Is(why, unix.EACCES), errors.Is(why, unix.EPERM):
		hint = "nobody gave the gateway a control group: bailey gateway stop, and start it in one of its own: " + alone
	case errors.Is(why, unix.ENODEV):
		hint = "the gateway's group has too few controllers: Delegate=cpu memory pids in a drop-in of user@.service gives users all three"
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
