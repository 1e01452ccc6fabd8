package guestagent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/guestwire"
	"bailey/internal/sandboxdiff"
)

// Main runs the agent until the guest ends.
func Main() {
	if err := runAgent(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bailey-guest:", err)
		os.Exit(1)
	}
}

// collectAt is the garbage collector's target, in percent of the live memory. Every clone of a guest pays for garbage,
// and the agent makes little.
const collectAt = 25

func runAgent(args []string) error {
	debug.SetGCPercent(collectAt)
	if len(args) == 0 && os.Getpid() == 1 {
		return runInit()
	}
	if len(args) > 0 && args[0] == "inventory" {
		return printInventory(args[1:], os.Stdout)
	}
	if len(args) > 0 && args[0] == "unpack" {
		return unpackFiles(os.Stdin, "/", args[1:])
	}
	flags := flag.NewFlagSet("bailey-guest", flag.ContinueOnError)
	port := flags.String("port", guestwire.Port, "name of the virtio-serial port")
	fd := flags.Int("fd", -1, "descriptor of a connected socket to use instead of a port")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pid1 := os.Getpid() == 1
	agent := newAgent(guestSystem(), newProcesses(pid1), pid1)
	if *fd < 0 {
		return agent.serveForever(*port)
	}
	unix.CloseOnExec(*fd)
	if err := unix.SetNonblock(*fd, true); err != nil {
		return fmt.Errorf("descriptor %d: %w", *fd, err)
	}
	defer agent.procs.killAll() // nobody can reach them any more
	return agent.serveHost(os.NewFile(uintptr(*fd), "host"))
}

// printInventory prints the inventory of this system, or of the root file system in a directory, as one JSON document.
func printInventory(args []string, out io.Writer) error {
	root := "/"
	switch len(args) {
	case 0:
	case 1:
		root = args[0]
	default:
		return errors.New("inventory takes at most one directory")
	}
	v, err := sandboxdiff.Collect(root)
	if err != nil {
		return err
	}
	return v.WriteJSON(out)
}

// runInit is pid 1. If it returned, the kernel would panic, which ends the machine with its message on the console.
func runInit() error {
	b, err := bootGuest()
	if err != nil {
		return err
	}
	if b.init != "" {
		return becomeInit(b)
	}
	return newAgent(guestSystem(), newProcesses(true), true).serveForever(b.port)
}

// becomeInit starts the agent as a service and becomes the guest's own init.
func becomeInit(b bootLine) error {
	env := []string{"PATH=" + defaultPath}
	_, err := syscall.ForkExec(ownProgram, []string{"bailey-guest", "--port", b.port},
		&syscall.ProcAttr{Dir: "/", Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	err = syscall.Exec(b.init, []string{b.init}, env)
	return fmt.Errorf("start %s: %w", b.init, err)
}

// serveForever serves one host after the other. The port reads as ended while no host is connected, and the kernel
// offers no way to wait for one without a signal handler.
func (a *Agent) serveForever(port string) error {
	const most = 50 * time.Millisecond
	f, err := openPort(port)
	if err != nil {
		return err
	}
	for pause := time.Millisecond; ; pause = min(2*pause, most) {
		begin := time.Now()
		if err := a.serveHost(f); err != nil {
			return fmt.Errorf("port %s: %w", port, err)
		}
		if time.Since(begin) > most {
			pause = time.Millisecond
		}
		time.Sleep(pause)
	}
}
