package jail

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// HostReader limits a command that reads a host and must not change it. There is no cage around the command: it sees the
// files of the host with the rights of its account. The limits are those of a cage of kind landlock, without any file
// that may be written.
type HostReader struct {
	Programs []string      // resolved absolute paths: the only files that may be executed
	Network  bool          // Internet sockets, for example for dig and ping
	Unix     bool          // Unix sockets, for example for the D-Bus of systemctl
	CPU      time.Duration // processor time of each process
	// WithoutLandlock accepts a kernel without Landlock: then only the account, the limit of file sizes and seccomp
	// prevent writing.
	WithoutLandlock bool
}

// LandlockABI returns the Landlock ABI of the kernel, or 0 if the kernel does not enforce Landlock (landlock(7)).
func LandlockABI() int { return landlockABI() }

// Exec replaces this process with a program under the limits. It returns only if that failed, and then the program has
// not been started. The process must not have threads that matter: they end.
func (r HostReader) Exec(program string, args, env []string) error {
	runtime.LockOSThread() // limits are those of a thread until the program starts
	if err := checkUnprivileged(); err != nil {
		return err
	}
	p, err := r.limitPlan(landlockABI())
	if err != nil {
		return err
	}
	for _, s := range p.steps {
		if errno := inside.ApplyRestriction(s.Step); errno != 0 {
			return bailey.Unavailable.Wrapf(errno, "repair the kernel or the account of this host, or remove the host",
				"the layer %s cannot be set up", s.layer)
		}
	}
	return bailey.Unavailable.Wrapf(syscall.Exec(program, args, env), "check that the program exists on this host",
		"cannot start %s", program)
}

// limitPlan returns the steps.
func (r HostReader) limitPlan(abi int) (*plan, error) {
	if filterProgram(currentArch(), profile{}) == nil {
		return nil, bailey.Unavailable.New("there is no system call filter for the processor "+runtime.GOARCH,
			"use a host with amd64 or arm64")
	}
	if abi == 0 && !r.WithoutLandlock {
		return nil, bailey.Unavailable.New("the kernel of this host does not enforce Landlock",
			"use Linux 5.13 or newer with landlock in the parameter lsm=, or accept this host by name")
	}
	p := &plan{lesser: true, ceiling: ownCeiling}
	p.addStep("rlimits", inside.Umask, []uint64{0o777})
	for _, l := range []struct {
		resource int
		limit    int64
	}{
		{unix.RLIMIT_CORE, 1}, {unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_NOFILE, defaultFiles}, {unix.RLIMIT_STACK, stackBytes},
		{unix.RLIMIT_DATA, 1 << 30}, {unix.RLIMIT_MEMLOCK, 64 << 10}, {unix.RLIMIT_RTPRIO, 0}, {unix.RLIMIT_NICE, 0},
		{unix.RLIMIT_SIGPENDING, 1024}, {unix.RLIMIT_MSGQUEUE, 0}, {unix.RLIMIT_NPROC, 256},
		{unix.RLIMIT_CPU, max(1, int64(r.CPU/time.Second))},
	} {
		n := min(uint64(l.limit), p.ceiling(l.resource))
		p.addStep("rlimits", inside.Rlimit, []uint64{uint64(l.resource), n, n})
	}
	p.addStep("keyring", inside.Keyring, nil)
	p.addStep("caps-none", inside.Caps, nil)
	p.addStep("no-new-privs", inside.NoNewPrivs, nil)
	handled, _ := supportedRuleset(abi)
	if abi > 0 {
		if r.Network {
			handled.ports = 0
		}
		p.addStep("landlock", inside.Ruleset, []uint64{handled.files, handled.ports, handled.scoped})
		p.addStep("landlock", inside.Rule, []uint64{mayRead}, "/")
		p.addStep("landlock", inside.Rule, []uint64{mayReadFile | mayWriteFile}, "/dev/null")
		for _, path := range r.Programs {
			p.addStep("landlock", inside.Rule, []uint64{mayReadFile | mayExecute}, path)
		}
		p.addStep("landlock", inside.Restrict, nil)
	}
	p.addStep("seccomp", inside.Filter, filterProgram(currentArch(),
		profile{Shared: true, Host: true, Inet: r.Network, Unix: r.Unix, NoSignals: !handled.scopesSignals()}))
	return p, nil
}

// checkUnprivileged returns an error if this process is root's or has capabilities.
func checkUnprivileged() error {
	const cure = "log in with the account that bailey source prepare made"
	if unix.Geteuid() == 0 || unix.Getuid() == 0 {
		return bailey.Denied.New("root must not run commands that only read", cure)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return bailey.Unavailable.Wrapf(err, "mount /proc", "the capabilities of this process cannot be read")
	}
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		i := slices.IndexFunc(
			strings.Split(string(status), "\n"),
			func(l string) bool { return strings.HasPrefix(l, name+":") },
		)
		if i < 0 {
			return bailey.Unavailable.New("/proc/self/status has no line "+name, "mount a complete /proc")
		}
		set := strings.TrimSpace(strings.TrimPrefix(strings.Split(string(status), "\n")[i], name+":"))
		if n, err := strconv.ParseUint(set, 16, 64); err != nil || n != 0 {
			return bailey.Denied.New(fmt.Sprintf("the account has capabilities (%s %s)", name, set), cure)
		}
	}
	return nil
}
