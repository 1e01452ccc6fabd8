// Package process is the program bailey-server. Nothing needs to be configured for a trial on one machine. docs/team.md
// describes the setup.
package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"slices"
	"strings"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/auth"
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
  bailey-server doctor  check the configuration, the database, the keys and the ledger
  bailey-server migrate                  bring the database up to this version, as serve does
  bailey-server backup FILE              write a backup; the server may be running
  bailey-server restore FILE             restore a backup into an empty database, SQLite or PostgreSQL
  bailey-server keys rotate              seal the secrets in the database with a new key
  bailey-server provider add NAME --kind oidc|github --client-id ID [--issuer URL]
                                         let people sign in at a provider; its secret is read from standard input
  bailey-server provider list
  bailey-server provider remove NAME
  bailey-server telemetry show           print what would be sent, which is nothing unless the build has a key
  bailey-server --version

All of them take [--config FILE] [--dir DIR], and all but serve take [--json]. If a command changes something that is
recorded, the server must be stopped.

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
	config, dir, listen  string
	insecure, json       bool
	name                 string // of a provider, or of the file of a backup
	kind, issuer, client string // of a provider
	stdin                io.Reader
	stdout, stderr       io.Writer
	getenv               func(string) string
	// ready is called with the address that the server listens on; it may be nil.
	ready func(net.Addr)
}

// Main runs the program with the arguments of the process, and exits.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
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
	switch args[0] {
	case "--version", "-version", "version":
		fmt.Fprintln(p.stdout, "bailey-server", version)
		return nil
	case "--help", "-help", "-h", "help":
		fmt.Fprint(p.stdout, usage)
		return nil
	}
	verb, rest := args[0], args[1:]
	if len(rest) > 0 && slices.Contains([]string{"keys", "provider", "telemetry"}, verb) {
		verb, rest = verb+" "+rest[0], rest[1:]
	}
	do, ok := p.verbs()[verb]
	if !ok {
		return self.UsageFault(fmt.Sprintf("%.40q is not a command", verb))
	}
	if err := p.parseFlags(verb, rest); err != nil {
		return err
	}
	s, err := p.readSettings()
	if err != nil {
		return err
	}
	return do(ctx, s)
}

func (p *program) verbs() map[string]func(context.Context, settings) error {
	return map[string]func(context.Context, settings) error{"serve": p.runServer, "doctor": p.runDoctor,
		"migrate": p.runMigrate, "backup": p.runBackup, "restore": p.runRestore, "keys rotate": p.runRotate,
		"provider add": p.addProvider, "provider list": p.listProviders, "provider remove": p.removeProvider,
		"telemetry show": p.showTelemetry}
}

// self is this program.
var self = programs.Program{Name: "bailey-server", Usage: usage}

func (p *program) parseFlags(verb string, args []string) error {
	if slices.Contains([]string{"backup", "restore", "provider add", "provider remove"}, verb) {
		if len(args) == 0 || strings.HasPrefix(args[0], "-") {
			return self.UsageFault(verb + " needs a name first")
		}
		p.name, args = args[0], args[1:]
	}
	rest, err := self.ParseFlags(verb, args, p.stdout, func(f *flag.FlagSet) {
		f.StringVar(&p.config, "config", "", "")
		f.StringVar(&p.dir, "dir", "", "")
		if verb == "serve" {
			f.StringVar(&p.listen, "listen", "", "")
			f.BoolVar(&p.insecure, "insecure-http", false, "")
		} else {
			f.BoolVar(&p.json, "json", false, "")
		}
		if verb == "provider add" {
			f.StringVar(&p.kind, "kind", "", "")
			f.StringVar(&p.issuer, "issuer", "", "")
			f.StringVar(&p.client, "client-id", "", "")
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
	db, err := store.Open(ctx, s.storeConfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	keys, err := openKeys(ctx, s, db)
	if err != nil {
		return err
	}
	public := s.public
	if public == nil {
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		public = &url.URL{Scheme: "http", Host: net.JoinHostPort("localhost", port)}
	}
	cosigner, witnessKey, err := s.openWitness(public.Host)
	if err != nil {
		return err
	}
	c, err := control.New(control.Config{Store: db, Ledger: l, Keys: keys, Public: public, Proxies: s.proxies,
		Console: s.console, NoPasswords: s.noPasswords, Version: version, Log: log,
		Cosigner: cosigner, Witness: witnessKey})
	if err != nil {
		return err
	}
	if err := p.startTelemetry(ctx, s, db, log); err != nil {
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
		c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13,
			NextProtos: []string{"h2", "http/1.1"}}
		return c, s.trustHosts(c)
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

// trustHosts lets hosts show certificates of a private CA instead of tokens.
func (s *settings) trustHosts(c *tls.Config) error {
	if s.clientCA == "" {
		return nil
	}
	text, err := os.ReadFile(s.clientCA)
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if err != nil || !c.ClientCAs.AppendCertsFromPEM(text) {
		return bailey.Invalid.Wrap(err, "client_ca has no certificate", "name a PEM file with the CA of your hosts")
	}
	return nil
}

// checkExpiry returns an error if the certificate ends within two weeks.
func (s *settings) checkExpiry() error {
	if s.tlsCert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
	if err != nil {
		return nil // loadCertificate has said so
	}
	if left := time.Until(pair.Leaf.NotAfter); left < 14*24*time.Hour {
		return bailey.Unavailable.Errorf("renew it, and restart the server", "the certificate ends on %s",
			pair.Leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	return nil
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
		false: "none: only for this machine, or behind a proxy"}[s.tlsCert != ""], errors.Join(err, s.checkExpiry()))
	if _, err := os.Stat(s.dir); err != nil {
		add("state", "", bailey.NotFound.Wrap(err, "the server was never started here", "bailey-server serve"))
	} else {
		db, err := store.Open(ctx, s.storeConfig())
		add("database", s.databaseKind(), err)
		if err == nil {
			n, err := checkKeys(ctx, s, db)
			add("keys", fmt.Sprintf("%d secrets open with %s", n, s.keyFile()), errors.Join(err, db.Close()))
		}
		report, err := ledger.Verify(filepath.Join(s.dir, "ledger"))
		if err == nil && !report.OK {
			err = bailey.Conflict.New("the ledger does not verify",
				"bailey audit verify "+filepath.Join(s.dir, "ledger"))
		}
		add("ledger", fmt.Sprintf("%d entries verify", report.Entries), err)
	}
	return p.printFindings(all)
}

// checkKeys opens every sealed secret.
func checkKeys(ctx context.Context, s settings, db *store.Store) (int, error) {
	all, err := db.Providers(ctx)
	if err != nil {
		return 0, err
	}
	push, err := db.PushKey(ctx)
	if err != nil || len(all) == 0 && push == "" {
		return 0, err
	}
	k, err := auth.OpenKeyring(s.keyFile())
	n := len(all)
	if push != "" {
		n++
		if err == nil {
			_, err = k.Open(store.PushKeySealedAs, push)
		}
	}
	for _, v := range all {
		if err == nil {
			_, err = k.Open(v.SealedAs(), v.Secret)
		}
	}
	return n, err
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
