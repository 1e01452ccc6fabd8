// Package process is the program bailey-host: the host of sandboxes of one user, or of several if it runs as root.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	programs "bailey/internal/program"
)

// version is set by the build of a release.
var version = "dev"

const usage = `bailey-host owns the sandboxes of this machine. The gateway starts it when a sandbox is needed.

  bailey-host serve  [--dir DIR] [--images DIR] [--emulated] [--idle TIME]   serve until SIGTERM; sandboxes continue
                     [--socket PATH] [--group NAME] [--uids FIRST:N]         for several users, as root
                     [--cgroup DIR]
  bailey-host status [--dir DIR] [--json]   show the host, what it has and what is free
  bailey-host stop   [--dir DIR] [--json]   stop the host; its sandboxes continue, and the next host adopts them
  bailey-host --version

  --dir       sandboxes, templates, socket and log; mode 0700 ($BAILEY_HOME/host)
  --images    images, as bailey image keeps them ("images" beside DIR)
  --emulated  do not use KVM
  --idle      end after this time without sandboxes and connections, for example 10m
  --socket    the socket, in a directory of mode 0755 if there is a group (DIR/host.sock)
  --group     members of this group may have sandboxes, too; clients set BAILEY_HOST_SOCKET
  --uids      user ids over 65535 that no account has, one for each machine (as root: 2000000000:4096)
  --cgroup    a control group in which each machine gets its own, with limits
`

// Exit codes, the same as those of bailey.
const (
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 127
)

// program is one run of the command.
type program struct {
	dir                    hostapi.Dir
	images, socket         string
	group, uids, cgroup    string
	idle                   time.Duration
	emulated, json         bool
	stdout, stderr         io.Writer
	firstUID, numberOfUIDs int
}

// Main runs the program with the arguments of the process, and exits.
func Main() {
	p := &program{stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.runMain(os.Args[1:]))
}

func (p *program) runMain(args []string) int {
	err := p.runCommand(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(p.stderr, "bailey-host:", err)
	if hint := bailey.HintOf(err); hint != "" {
		fmt.Fprintln(p.stderr, "  →", hint)
	}
	switch {
	case errors.Is(err, bailey.Invalid):
		return exitUsage
	case errors.Is(err, hostapi.ErrUnreachable):
		return exitUnreachable
	}
	return exitRefused
}

// self is this program.
var self = programs.Program{Name: "bailey-host", Usage: usage}

func (p *program) runCommand(args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "--version", "-version", "version":
		fmt.Fprintln(p.stdout, "bailey-host", version)
		return nil
	case "--help", "-help", "-h", "help":
		fmt.Fprint(p.stdout, usage)
		return nil
	}
	verbs := map[string]func(context.Context) error{"serve": p.serveHost, "status": p.printStatus, "stop": p.stopHost}
	do, ok := verbs[args[0]]
	if !ok {
		return self.UsageFault(fmt.Sprintf("%.40q is not a command", args[0]))
	}
	if err := p.parseFlags(args[0], args[1:]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return do(ctx)
}

func (p *program) parseFlags(verb string, args []string) error {
	var dir string
	rest, err := self.ParseFlags(verb, args, p.stdout, func(f *flag.FlagSet) {
		f.StringVar(&dir, "dir", "", "")
		if verb != "serve" {
			f.BoolVar(&p.json, "json", false, "")
			return
		}
		f.StringVar(&p.images, "images", "", "")
		f.StringVar(&p.socket, "socket", "", "")
		f.StringVar(&p.group, "group", "", "")
		f.StringVar(&p.uids, "uids", "", "")
		f.StringVar(&p.cgroup, "cgroup", "", "")
		f.DurationVar(&p.idle, "idle", 0, "")
		f.BoolVar(&p.emulated, "emulated", false, "")
	})
	if err == nil {
		err = self.RefuseArguments(verb, rest)
	}
	if err != nil {
		return err
	}
	return p.resolvePaths(dir)
}

func (p *program) resolvePaths(dir string) error {
	if dir == "" {
		home, err := localapi.FindHome()
		if err != nil {
			return err
		}
		dir = string(hostapi.DirOf(home))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	p.dir = hostapi.Dir(dir)
	if p.images == "" {
		p.images = filepath.Join(filepath.Dir(dir), hostapi.ImagesName)
	}
	if p.uids == "" {
		return nil
	}
	if _, err := fmt.Sscanf(p.uids, "%d:%d", &p.firstUID, &p.numberOfUIDs); err != nil || p.numberOfUIDs < 1 ||
		strings.ContainsAny(p.uids, " +") {
		return self.UsageFault(fmt.Sprintf("--uids is FIRST:N, not %.40q", p.uids))
	}
	return nil
}

// newClient returns the client of the host that runs in the directory.
func (p *program) newClient() *hostapi.Client { return &hostapi.Client{Socket: p.dir.Socket()} }

var operator = hostapi.Owner{Person: "operator", Operator: true}

func (p *program) printStatus(ctx context.Context) error {
	s, err := hostapi.HostStatus.Ask(ctx, p.newClient(), operator, hostapi.None{})
	if err != nil {
		return err
	}
	if p.json {
		return json.NewEncoder(p.stdout).Encode(s)
	}
	fmt.Fprintf(p.stdout, "pid %d, version %s, %s\n", s.PID, s.Version, s.Dir)
	fmt.Fprintf(p.stdout, "machines are %s", s.Accelerator)
	if s.Reason != "" {
		fmt.Fprintf(p.stdout, ": %s", s.Reason)
	}
	fmt.Fprintf(p.stdout, "\n%d sandboxes, of which %d have a machine; %d snapshots, %d warm templates\n",
		s.Sandboxes, s.Running,
		s.Snapshots, s.Templates)
	fmt.Fprintf(p.stdout, "free: %d of %d MB of memory, %d of %d MB of disk\n", s.FreeMB, s.MemoryMB,
		s.FreeBytes>>20, s.DiskBytes>>20)
	return nil
}

func (p *program) stopHost(ctx context.Context) error {
	err := p.newClient().StopHost(ctx)
	stopped := err == nil
	if errors.Is(err, hostapi.ErrUnreachable) {
		err = nil
	}
	if err == nil {
		err = p.dir.WaitForEnd(ctx)
	}
	if err != nil {
		return err
	}
	if p.json {
		return json.NewEncoder(p.stdout).Encode(map[string]bool{"ok": true, "stopped": stopped})
	}
	word := "no host was running"
	if stopped {
		word = "the host has stopped"
	}
	fmt.Fprintln(p.stdout, word)
	return nil
}
