package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/workspace"
)

// EscapeChecks returns the tests for ways out of an agent jail. Tests that leave nothing behind come first. A process
// counts as confined if every way is closed. Variables and files that claim a confinement are not consulted.
func EscapeChecks() []func(ctx context.Context, dir string) apitype.Trial {
	return []func(context.Context, string) apitype.Trial{tryNetwork, tryGateway, trySecrets, tryTrace, tryNamespace,
		tryWrite}
}

func newTrial(held bool, name, tried string) apitype.Trial {
	return apitype.Trial{Name: name, Held: held, Tried: tried}
}

// tryNetwork asks for a route to documentation addresses, which belong to no host (RFC 5737, RFC 3849). It sends
// nothing.
func tryNetwork(context.Context, string) apitype.Trial {
	var last error
	for _, to := range []string{"192.0.2.1:443", "[2001:db8::1]:443"} {
		c, err := net.Dial("udp", to)
		if err == nil {
			c.Close()
			return newTrial(false, "network", "looked up a route to "+to+": there is one that bypasses the proxy")
		}
		if !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, syscall.EHOSTUNREACH) && !refusedBy(err) {
			return newTrial(false, "network", fmt.Sprintf("looked up a route to %s: %v, which proves nothing", to, err))
		}
		last = err
	}
	return newTrial(true, "network", fmt.Sprintf("looked up a route to the outside: %v", last))
}

// refusedBy reports whether err is a refusal. Other errors have causes that prove nothing.
func refusedBy(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.ENOSYS) ||
		errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, fs.ErrNotExist)
}

// wallHomes returns directories that may be the home of a user.
func wallHomes() []string {
	homes := append(workspace.Homes(), "/root")
	more, _ := filepath.Glob("/home/*") // the pattern is valid
	return append(homes, more...)
}

// tryGateway looks for a home of Bailey and for its socket that accepts operator commands.
func tryGateway(context.Context, string) apitype.Trial {
	var list []localapi.Home
	if home, err := localapi.FindHome(); err == nil {
		list = append(list, home)
	}
	for _, dir := range wallHomes() {
		list = append(list, localapi.Home(filepath.Join(dir, ".bailey")))
	}
	for _, home := range list {
		if c, err := net.Dial("unix", home.Socket()); err == nil {
			c.Close()
			return newTrial(false, "gateway", "connected to "+home.Socket()+": it accepts operator commands")
		}
		if what := describeAccess(string(home)); what != "" {
			return newTrial(false, "gateway", what)
		}
	}
	return newTrial(true, "gateway", fmt.Sprintf("tried to open Bailey's home in %d places: none can be opened", len(list)))
}

// trySecrets opens paths that every cage hides: keys, tokens, and the sockets of agents and daemons.
func trySecrets(context.Context, string) apitype.Trial {
	home, err := localapi.FindHome()
	if err != nil {
		home = "/nonexistent"
	}
	masks := workspace.Masks(string(home), wallHomes())
	for _, path := range masks {
		if what := describeAccess(path); what != "" {
			return newTrial(false, "secrets", what)
		}
	}
	return newTrial(true, "secrets", fmt.Sprintf("tried to open %d places of keys and daemon sockets: none can be opened", len(masks)))
}

// describeAccess describes a successful access at path, or returns "". An empty directory does not count: it may be a mask.
func describeAccess(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return ""
	case info.IsDir():
		if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
			return "listed " + path
		}
	case info.Mode()&fs.ModeSocket != 0:
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return "connected to " + path
		}
	case info.Mode().IsRegular() && info.Size() > 0:
		if f, err := os.Open(path); err == nil {
			f.Close()
			return "opened " + path
		}
	}
	return ""
}

// tryTrace starts a child that asks to be traced (ptrace).
func tryTrace(context.Context, string) apitype.Trial {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	return tryStart("trace", "trace a process", &syscall.SysProcAttr{Ptrace: true})
}

// tryNamespace starts a child in a new user namespace, in which it would have every capability.
func tryNamespace(context.Context, string) apitype.Trial {
	return tryStart("namespace", "create a user namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER})
}

// tryStart starts a child in a way that an agent jail refuses. If a child cannot be started normally either, the test
// proves nothing.
func tryStart(name, what string, attr *syscall.SysProcAttr) apitype.Trial {
	if err := startChild(nil); err != nil {
		return newTrial(false, name, fmt.Sprintf("cannot start a test process: %v", err))
	}
	if err := startChild(attr); err != nil {
		return newTrial(refusedBy(err), name, fmt.Sprintf("tried to %s: %v", what, err))
	}
	return newTrial(false, name, "tried to "+what+", and succeeded")
}

// startChild starts a program that certainly exists and kills it at once.
func startChild(attr *syscall.SysProcAttr) error {
	program, err := os.Executable()
	for _, name := range []string{os.Args[0], "true"} { // os.Executable needs /proc, which an agent jail may lack
		if err != nil {
			program, err = exec.LookPath(name)
		}
	}
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "--version")
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		return err
	}
	cmd.Process.Kill()
	cmd.Wait() // always an error: it was killed
	return nil
}

// tryWrite creates a file next to the project and in system directories.
func tryWrite(_ context.Context, dir string) apitype.Trial {
	places := []string{"/", "/etc", "/usr", "/usr/local", "/opt"}
	if top := topOf(dir); top != "/" && !strings.HasPrefix(top, "/tmp/") { // a cage has its own /tmp
		places = append(places, filepath.Dir(top))
	}
	for _, place := range places {
		f, err := os.CreateTemp(place, ".bailey-status-")
		if err == nil {
			os.Remove(f.Name())
			f.Close()
			return newTrial(false, "write", "created a file in "+place)
		}
		if !refusedBy(err) {
			return newTrial(false, "write", fmt.Sprintf("tried to create a file in %s: %v, which proves nothing", place, err))
		}
	}
	return newTrial(true, "write", fmt.Sprintf("tried to create a file in %d directories outside of the project: none can be written",
		len(places)))
}

// topOf returns the nearest parent directory of dir that contains .git, or dir.
func topOf(dir string) string {
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}
	}
	return dir
}
