// Package process is the program bailey-broker. It lends credentials to the gateways of the uids that its table admits,
// according to the table and the approvers in its own directory. It should run as a separate user. docs/broker.md
// describes the setup.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"bailey"
	"bailey/internal/broker"
	programs "bailey/internal/program"
)

// version is set by the build of a release.
var version = "dev"

const usage = `bailey-broker lends credentials to gateways, each to one call, by its own table and its own approvers.

  bailey-broker serve   [--dir DIR] [--socket PATH]   serve until SIGTERM
  bailey-broker apply   [--dir DIR] [--yes]           show how broker.yaml differs from what is in use, and use it
  bailey-broker status  [--dir DIR] [--json]          show the broker of DIR and its open loans
  bailey-broker list    the same as status
  bailey-broker add     [--dir DIR] [--yes] [--json] [--scope TEXT] [--ttl TIME] [--approval YAML] [--untested]
                        LEASE ADAPTER [KEY=VALUE…]    try a new lease, ask, and write it into broker.yaml
  bailey-broker revoke  [--dir DIR] [--json] --all | LEASE…  end open loans now
  bailey-broker test    [--dir DIR] [--json] [LEASE…] ask the source of each lease for a value, and revoke it at once
  bailey-broker setup   [--dir DIR] [--json] [LEASE…] print what each issuer must allow: policies, roles, permissions
  bailey-broker --version

DIR is $BAILEY_BROKER_DIR, or bailey-broker below the user's state directory (XDG_STATE_HOME, ~/.local/state). It has
mode 0700 and belongs to the broker's user. docs/broker.md shows a table.
`

// Exit codes, the same as those of bailey.
const (
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 127
)

// program is one run of the command.
type program struct {
	dir, socket string
	yes, json   bool
	leases      []string // arguments: the leases that a command is about

	scope, ttl, approval string // add
	untested             bool   // add
	all                  bool   // revoke
	stdin                *os.File
	stdout, stderr       io.Writer
}

// Command is one of the commands for a person: add, apply, list, revoke, setup, status or test. Program bailey offers
// them too.
type Command struct {
	Verb   string
	Dir    string   // "": as for program bailey-broker
	Args   []string // leases; for add: LEASE ADAPTER KEY=VALUE…
	JSON   bool
	Yes    bool // do not ask for confirmation
	Stdin  *os.File
	Stdout io.Writer
	Stderr io.Writer

	Scope, TTL, Approval string // add: parts of the entry
	Untested             bool   // add: write the entry even if its source gives no value
	All                  bool   // revoke: every loan
}

// Run executes the command.
func (c Command) Run(ctx context.Context) error {
	dir, err := resolveDir(c.Dir)
	if err != nil {
		return err
	}
	p := &program{dir: dir, yes: c.Yes, json: c.JSON, leases: c.Args, scope: c.Scope, ttl: c.TTL, approval: c.Approval,
		untested: c.Untested, all: c.All, stdin: c.Stdin, stdout: c.Stdout, stderr: c.Stderr}
	do, ok := p.verbs()[c.Verb]
	if !ok || c.Verb == "serve" {
		return self.UsageFault(fmt.Sprintf("%.40q is not a command", c.Verb))
	}
	return do(ctx)
}

func (p *program) verbs() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{"serve": p.serveBroker, "apply": p.applyTable,
		"status": p.printStatus, "test": p.testLeases, "setup": p.printSetup, "list": p.printStatus,
		"add": p.addLease, "revoke": p.revokeLoans}
}

// Main runs the program with the arguments of the process, and exits.
func Main() {
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.main(os.Args[1:]))
}

func (p *program) main(args []string) int {
	err := p.runCommand(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(p.stderr, "bailey-broker:", err)
	if hint := bailey.HintOf(err); hint != "" {
		fmt.Fprintln(p.stderr, "  →", hint)
	}
	switch {
	case errors.Is(err, bailey.Invalid):
		return exitUsage
	case errors.Is(err, errUnreachable):
		return exitUnreachable
	}
	return exitRefused
}

func (p *program) runCommand(args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "--version", "-version", "version":
		fmt.Fprintln(p.stdout, "bailey-broker", version)
		return nil
	case "--help", "-help", "-h", "help":
		fmt.Fprint(p.stdout, usage)
		return nil
	}
	do, ok := p.verbs()[args[0]]
	if !ok {
		return self.UsageFault(fmt.Sprintf("%.40q is not a command", args[0]))
	}
	if err := p.parseFlags(args[0], args[1:]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return do(ctx)
}

func (p *program) parseFlags(verb string, args []string) error {
	rest, err := self.ParseFlags(verb, args, p.stdout, func(f *flag.FlagSet) { p.declareFlags(f, verb) })
	if err != nil {
		return err
	}
	if slices.Contains([]string{"test", "setup", "add", "revoke"}, verb) {
		p.leases = rest
	} else if err := self.RefuseArguments(verb, rest); err != nil {
		return err
	}
	p.dir, err = resolveDir(p.dir)
	return err
}

func (p *program) declareFlags(f *flag.FlagSet, verb string) {
	f.StringVar(&p.dir, "dir", "", "")
	switch verb {
	case "serve":
		f.StringVar(&p.socket, "socket", "", "")
	case "apply":
		f.BoolVar(&p.yes, "yes", false, "")
		f.BoolVar(&p.json, "json", false, "")
	case "status", "list", "test", "setup":
		f.BoolVar(&p.json, "json", false, "")
	case "revoke":
		f.BoolVar(&p.json, "json", false, "")
		f.BoolVar(&p.all, "all", false, "")
	case "add":
		f.BoolVar(&p.json, "json", false, "")
		f.BoolVar(&p.yes, "yes", false, "")
		f.BoolVar(&p.untested, "untested", false, "")
		f.StringVar(&p.scope, "scope", "", "")
		f.StringVar(&p.ttl, "ttl", "", "")
		f.StringVar(&p.approval, "approval", "", "")
	}
}

// resolveDir returns the directory of the broker's files.
func resolveDir(named string) (string, error) {
	return self.StateDir(named, "BAILEY_BROKER_DIR", os.Getenv)
}

// self is this program.
var self = programs.Program{Name: "bailey-broker", Usage: usage}

// serveBroker hardens the process before it reads any secret.
func (p *program) serveBroker(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	debug.SetTraceback("none") // a fatal error prints its message, but no stack frames
	lacks, err := hardenProcess()
	if err != nil {
		return err
	}
	for _, l := range lacks {
		log.Warn("not available here", "what", l)
	}
	s, err := broker.New(broker.Config{Dir: p.dir, Socket: p.socket, Program: version, Log: log,
		Ready: func(socket string) {
			log.Info("serving", "dir", p.dir, "socket", socket, "uid", os.Geteuid(), "pid", os.Getpid())
			notifyReady()
		}})
	if err != nil {
		return err
	}
	return errors.Join(s.Run(ctx), s.Close())
}

var errUnreachable = errors.New("no broker answers")

func (p *program) printStatus(ctx context.Context) error {
	socket, err := broker.RunningSocket(p.dir)
	if err != nil {
		return errors.Join(err, errUnreachable)
	}
	h, err := broker.Client{Socket: socket, UID: os.Geteuid()}.Hello(ctx)
	if err != nil {
		return errors.Join(err, errUnreachable)
	}
	if p.json {
		return json.NewEncoder(p.stdout).Encode(struct {
			broker.Hello
			Dir    string `json:"dir"`
			Socket string `json:"socket"`
			UID    int    `json:"uid"`
		}{h, p.dir, socket, h.UID})
	}
	fmt.Fprintf(p.stdout, "pid %d, uid %d, version %s, protocol %d\nsocket %s\ntable %.16s…, %d loans are open\n",
		h.PID, h.UID, h.Program, h.Version, socket, h.Table, h.Open)
	if h.Changed {
		fmt.Fprintln(p.stdout, "CHANGED: broker.yaml differs from the table in use; to see how: bailey-broker apply")
	}
	for _, l := range h.Leases {
		fmt.Fprintln(p.stdout, "lease", l)
	}
	for _, l := range h.Wide {
		fmt.Fprintln(p.stdout, "TOO WIDE:", l)
	}
	return nil
}
