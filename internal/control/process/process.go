// Package process is the program bailey-server. Nothing needs to be configured for a trial on one machine. docs/team.md
// describes the setup.
package process

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"bailey"
	"bailey/internal/control"
	"bailey/internal/ledger"
	programs "bailey/internal/program"
	"bailey/internal/store"
)

// version is set by the build of a release.
var version = "dev"

const usage = `bailey-server is the control plane for teams: people, organisations, and their gateways and hosts.

  bailey-server serve   [--config FILE] [--dir DIR]           serve until SIGTERM; the first start prints a link
                        [--listen ADDRESS] [--insecure-http]  with which you make the first account
  bailey-server doctor  [--config FILE] [--dir DIR] [--json]  check the configuration, the database and the ledger
  bailey-server --version

DIR is $BAILEY_SERVER_DIR, or bailey-server below the user's state directory (XDG_STATE_HOME, ~/.local/state). FILE is
server.yaml in DIR; without it, the server uses SQLite in DIR and listens on 127.0.0.1:8440. docs/team.md shows a file.
`

// Exit codes, the same as those of bailey.
const (
	exitRefused = 1
	exitUsage   = 2
)

// program is one run of the command.
type program struct {
	config, dir, listen string
	insecure, json      bool
	stdout, stderr      io.Writer
	getenv              func(string) string
	// ready is called with the address that the server listens on; it may be nil.
	ready func(net.Addr)
}

// Main runs the program with the arguments of the process, and exits.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &program{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(p.runProgram(ctx, os.Args[1:]))
}

func (p *program) runProgram(ctx context.Context, args []string) int {
	err := p.runCommand(ctx, args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(p.stderr, "bailey-server:", err)
	if hint := bailey.HintOf(err); hint != "" {
		fmt.Fprintln(p.stderr, "  →", hint)
	}
	if errors.Is(err, bailey.Invalid) {
		return exitUsage
	}
	return exitRefused
}

func (p *program) runCommand(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	verbs := map[string]func(context.Context, settings) error{"serve": p.runServer, "doctor": p.runDoctor}
	switch args[0] {
	case "--version", "-version", "version":
		fmt.Fprintln(p.stdout, "bailey-server", version)
		return nil
	case "--help", "-help", "-h", "help":
		fmt.Fprint(p.stdout, usage)
		return nil
	}
	do, ok := verbs[args[0]]
	if !ok {
		return self.UsageFault(fmt.Sprintf("%.40q is not a command", args[0]))
	}
	if err := p.parseFlags(args[0], args[1:]); err != nil {
		return err
	}
	s, err := p.readSettings()
	if err != nil {
		return err
	}
	return do(ctx, s)
}

// self is this program.
var self = programs.Program{Name: "bailey-server", Usage: usage}

func (p *program) parseFlags(verb string, args []string) error {
	rest, err := self.ParseFlags(verb, args, p.stdout, func(f *flag.FlagSet) {
		f.StringVar(&p.config, "config", "", "")
		f.StringVar(&p.dir, "dir", "", "")
		if verb == "serve" {
			f.StringVar(&p.listen, "listen", "", "")
			f.BoolVar(&p.insecure, "insecure-http", false, "")
		} else {
			f.BoolVar(&p.json, "json", false, "")
		}
	})
	if err == nil {
		err = self.RefuseArguments(verb, rest)
	}
	return err
}

// stateDir returns the directory of the server's files.
func (p *program) stateDir() (string, error) {
	return self.StateDir(p.dir, "BAILEY_SERVER_DIR", p.getenv)
}

// runServer opens everything in the order in which the parts need each other, and serves until ctx ends.
func (p *program) runServer(ctx context.Context, s settings) (err error) {
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	certificate, err := s.loadCertificate(p.insecure, log)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	for _, w := range s.warnings {
		log.Warn(w)
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "cannot listen", "choose another address: --listen ADDRESS:PORT")
	}
	defer listener.Close()
	l, err := ledger.New(ledger.Config{Dir: filepath.Join(s.dir, "ledger"), Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	db, err := store.Open(ctx, store.Config{URL: s.database})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	public := s.public
	if public == nil {
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		public = &url.URL{Scheme: "http", Host: net.JoinHostPort("localhost", port)}
	}
	c, err := control.New(control.Config{Store: db, Ledger: l, Public: public, Proxies: s.proxies,
		Version: version, Log: log})
	if err != nil {
		return err
	}
	link, err := c.OfferSetup(ctx)
	if err != nil {
		return err
	}
	if link != "" {
		fmt.Fprintf(p.stdout,
			"There is no account yet. Open this link to make the first one; it works once:\n\n  %s\n\n", link)
	}
	log.Info("serving", "address", listener.Addr().String(), "public", public.String(), "database",
		s.databaseKind(), "version", version)
	if p.ready != nil {
		p.ready(listener.Addr())
	}
	return c.Run(ctx, listener, certificate)
}

// loadCertificate returns the TLS configuration, or nil if the server speaks plain HTTP, which other machines could
// read.
func (s *settings) loadCertificate(insecure bool, log *slog.Logger) (*tls.Config, error) {
	if s.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
		if err != nil {
			return nil, bailey.Invalid.Wrap(err, "cannot read the certificate", "see tls in server.yaml")
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13,
			NextProtos: []string{"h2", "http/1.1"}}, nil
	}
	host, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return nil, bailey.Invalid.Wrapf(err, "write ADDRESS:PORT, for example 127.0.0.1:8440",
			"cannot listen on %q", s.listen)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil, nil
	}
	if !insecure {
		return nil, bailey.Invalid.Errorf("set tls in server.yaml, or use --insecure-http behind a proxy that speaks TLS",
			"passwords would cross the network in clear: the server listens on %s without TLS", s.listen)
	}
	log.Warn("passwords and sessions cross the network in clear unless a proxy in front of this server speaks TLS (--insecure-http)")
	return nil, nil
}

// finding is one line of doctor.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// runDoctor checks everything without changing anything, apart from a database that is opened: it gets the newest
// schema.
func (p *program) runDoctor(ctx context.Context, s settings) error {
	all := []finding{{Name: "configuration", OK: len(s.warnings) == 0, Detail: "read"}}
	if len(s.warnings) > 0 {
		all[0].Detail, all[0].Hint = strings.Join(s.warnings, "; "), "chmod 600 the file"
	}
	add := func(name, detail string, err error) {
		f := finding{Name: name, OK: err == nil, Detail: detail}
		if err != nil {
			f.Detail, f.Hint = err.Error(), bailey.HintOf(err)
		}
		all = append(all, f)
	}
	_, err := s.loadCertificate(true, slog.New(slog.DiscardHandler))
	add("tls", map[bool]string{true: "certificate " + s.tlsCert,
		false: "none: only for this machine, or behind a proxy"}[s.tlsCert != ""], err)
	if _, err := os.Stat(s.dir); err != nil {
		add("state", "", bailey.NotFound.Wrap(err, "the server was never started here", "bailey-server serve"))
	} else {
		db, err := store.Open(ctx, store.Config{URL: s.database})
		if err == nil {
			err = db.Close()
		}
		add("database", s.databaseKind(), err)
		report, err := ledger.Verify(filepath.Join(s.dir, "ledger"))
		if err == nil && !report.OK {
			err = bailey.Conflict.New("the ledger does not verify",
				"bailey audit verify --ledger "+filepath.Join(s.dir, "ledger"))
		}
		add("ledger", fmt.Sprintf("%d entries verify", report.Entries), err)
	}
	return p.printFindings(all)
}

func (p *program) printFindings(all []finding) error {
	var bad int
	for _, f := range all {
		if !f.OK {
			bad++
		}
	}
	if p.json {
		if err := json.NewEncoder(p.stdout).Encode(struct {
			OK       bool      `json:"ok"`
			Findings []finding `json:"findings"`
		}{bad == 0, all}); err != nil {
			return err
		}
	} else {
		for _, f := range all {
			fmt.Fprintf(p.stdout, "%-5s %s: %s\n", map[bool]string{true: "ok", false: "FAULT"}[f.OK], f.Name, f.Detail)
			if f.Hint != "" {
				fmt.Fprintln(p.stdout, "  →", f.Hint)
			}
		}
	}
	if bad > 0 {
		return bailey.Unavailable.Errorf("correct the faults above", "%d of %d checks failed", bad, len(all))
	}
	return nil
}
