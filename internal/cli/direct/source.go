package direct

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/hostapply"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
	"bailey/internal/server"
	"bailey/internal/settings"
	"bailey/internal/source"
	"bailey/internal/terminal"
)

// addSourceVerbs adds the commands for source hosts that work in their own process: they use the person's own ssh.
func (a *commands) addSourceVerbs(group *cobra.Command) {
	group.AddCommand(a.sourceAddVerb(), a.sourceDiscoverVerb(), a.sourceListVerb(), a.sourceShowVerb(),
		a.sourcePrepareVerb(),
		a.sourceUnprepareVerb(), a.sourceDoctorVerb(), a.sourceRunVerb(), a.sourceReadVerb(), a.sourceRemoveVerb())
}

// openRegistry returns the home and the list of source hosts.
func openRegistry() (localapi.Home, *source.Registry, error) {
	home, err := localapi.FindHome()
	return home, &source.Registry{Dir: string(home)}, err
}

func (a *commands) sourceAddVerb() *cobra.Command {
	var labels []string
	var config string
	var without bool
	cmd := &cobra.Command{
		Use: "add HOST", Short: "Add a host to the list of source hosts",
		Long: `Add a host to the list of source hosts, or change its labels. HOST is the name that you give to ssh; its address,
port, user and the hosts in between come from your ssh configuration. Nothing is changed on the host: the next step is
bailey source prepare HOST.`,
		Example: "  bailey source add web1 --label env=prod",
		Args:    cli.OneArg("a host, for example: bailey source add web1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := a.Operator("source add"); err != nil {
				return err
			}
			_, registry, err := openRegistry()
			if err != nil {
				return err
			}
			h, err := registry.Find(args[0])
			if err != nil && !errors.Is(err, bailey.NotFound) {
				return err
			}
			h.Name, h.WithoutLandlock = args[0], without
			if cmd.Flags().Changed("label") {
				h.Labels = slices.Compact(slices.Sorted(slices.Values(labels)))
			}
			if config != "" {
				if h.SSHConfig, err = filepath.Abs(config); err != nil {
					return err
				}
			}
			route, err := remote.Resolver{Config: h.SSHConfig}.Route(cmd.Context(), h.Name)
			if err != nil {
				return err
			}
			if err := registry.Put(h); err != nil {
				return err
			}
			next := "next: bailey source prepare " + h.Name
			if h.Prepared() {
				next = "it is prepared"
			}
			return a.PrintLine(h, "%s is %s as %s, port %d\n%s\n", h.Name, route.Host, route.User, route.Port, next)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&labels, "label", nil, "a label for policy, `KEY=VALUE`; may be repeated")
	f.StringVar(&config, "ssh-config", "", "an ssh configuration `file` instead of your own")
	f.BoolVar(&without, "without-landlock", false, "accept a kernel that does not enforce Landlock; receipts say so")
	return a.OperatorVerb(cmd)
}

func (a *commands) sourceRemoveVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "remove HOST", Short: "Remove a host from the list of source hosts",
		Long: `Remove a host from the list of source hosts. Nothing is changed on the host: run bailey source unprepare HOST
first.`,
		Args: cli.OneArg("a host, for example: bailey source remove web1"),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := a.Operator("source remove"); err != nil {
				return err
			}
			_, registry, err := openRegistry()
			if err != nil {
				return err
			}
			h, err := registry.Find(args[0])
			if err != nil {
				return err
			}
			if h.Prepared() {
				a.Say("note", h.Name+" stays prepared",
					"add it again and run bailey source unprepare "+h.Name+" to remove the account there")
			}
			if err := registry.Remove(h.Name); err != nil {
				return err
			}
			return a.PrintLine(h, "removed %s\n", h.Name)
		},
	})
}

func (a *commands) sourceListVerb() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the source hosts", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, registry, err := openRegistry()
			if err != nil {
				return err
			}
			hosts, err := registry.List()
			if err != nil {
				return err
			}
			return cli.PrintAnswer(a.App, append([]source.Host{}, hosts...), func(w io.Writer, hosts []source.Host) {
				if len(hosts) == 0 {
					fmt.Fprintln(w,
						"there are no source hosts: bailey source discover lists hosts of your ssh configuration")
					return
				}
				cli.PrintTable(w, "HOST\tSTATE\tSYSTEM\tLABELS", hosts, func(h source.Host) []any {
					state := "not prepared"
					if h.Prepared() {
						state = "prepared " + h.PreparedAt.Local().Format(time.DateOnly)
					}
					return []any{h.Name, state, terminal.Shown(h.System), strings.Join(h.Labels, " ")}
				})
			})
		}}
}

func (a *commands) sourceShowVerb() *cobra.Command {
	return &cobra.Command{Use: "show HOST", Short: "Show a source host",
		Args: cli.OneArg("a host, for example: bailey source show web1"),
		RunE: func(_ *cobra.Command, args []string) error {
			_, registry, err := openRegistry()
			if err != nil {
				return err
			}
			h, err := registry.Find(args[0])
			if err != nil {
				return err
			}
			return cli.PrintAnswer(a.App, h, func(w io.Writer, h source.Host) {
				fmt.Fprintf(w, "host      %s\nlabels    %s\n", h.Name, cmp.Or(strings.Join(h.Labels, " "), "-"))
				if !h.Prepared() {
					fmt.Fprintf(w, "state     not prepared: bailey source prepare %s\n", h.Name)
					return
				}
				fmt.Fprintf(w, "state     prepared at %s\nsystem    %s\nlandlock  %d\n",
					h.PreparedAt.Local().Format(time.DateTime), terminal.Shown(h.System), h.LandlockABI)
				if keys, err := h.Pinned(); err == nil {
					for _, k := range keys {
						fmt.Fprintf(w, "host key  %s\n", ssh.FingerprintSHA256(k))
					}
				}
			})
		}}
}

// A found host is an entry of the person's ssh configuration.
type foundHost struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Answers bool   `json:"answers"`
	Added   bool   `json:"added"`
}

func (a *commands) sourceDiscoverVerb() *cobra.Command {
	return &cobra.Command{Use: "discover", Short: "List the hosts of your ssh configuration, and which of them answer",
		Long: `List the hosts that ~/.ssh/config names without patterns, and whether something answers at their address. A host
behind another is not tried. No login is made.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, registry, err := openRegistry()
			if err != nil {
				return err
			}
			hosts, err := registry.List()
			if err != nil {
				return err
			}
			names, err := configuredHosts()
			if err != nil {
				return err
			}
			found := make([]foundHost, len(names))
			limit := make(chan struct{}, 8)
			var wg sync.WaitGroup
			for i, name := range names {
				found[i] = foundHost{Name: name, Added: slices.ContainsFunc(hosts,
					func(h source.Host) bool { return h.Name == name })}
				wg.Go(func() {
					limit <- struct{}{}
					defer func() { <-limit }()
					probeHost(cmd.Context(), &found[i])
				})
			}
			wg.Wait()
			return cli.PrintAnswer(a.App, found, func(w io.Writer, found []foundHost) {
				if len(found) == 0 {
					fmt.Fprintln(w, "~/.ssh/config names no host")
					return
				}
				cli.PrintTable(w, "HOST\tADDRESS\tANSWERS\tADDED", found, func(f foundHost) []any {
					return []any{terminal.Shown(f.Name), terminal.Shown(f.Address), yesNo(f.Answers), yesNo(f.Added)}
				})
			})
		}}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// configuredHosts returns the names of Host lines without patterns. Included files are not read.
func configuredHosts() (names []string, err error) {
	dir, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, ".ssh", "config"))
	if errors.Is(err, os.ErrNotExist) {
		return []string{}, nil
	}
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "check its mode", "~/.ssh/config cannot be read")
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() {
		words := strings.Fields(strings.ReplaceAll(lines.Text(), "=", " "))
		if len(words) < 2 || !strings.EqualFold(words[0], "Host") {
			continue
		}
		for _, w := range words[1:] {
			if !strings.ContainsAny(w, `*?!"`) && !slices.Contains(names, w) {
				names = append(names, w)
			}
		}
	}
	return names, lines.Err()
}

// probeHost tells whether something answers at the address of a host.
func probeHost(ctx context.Context, f *foundHost) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	r, err := remote.Resolver{}.Route(ctx, f.Name)
	if err != nil {
		return
	}
	f.Address = net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
	if len(r.Jumps) > 0 {
		f.Address += " through " + strings.Join(r.Jumps, ", ")
		return
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.Address)
	if err == nil {
		conn.Close()
		f.Answers = true
	}
}

// openAuthority returns the authority for SSH certificates. The settings that a gateway has in force may name a broker
// that signs.
func (a *commands) openAuthority(ctx context.Context, home localapi.Home) (server.HostAuthority, error) {
	var lends *settings.Broker
	if _, err := os.Lstat(filepath.Join(string(home), settings.FileName)); err == nil {
		c, err := a.Client()
		if err != nil {
			return server.HostAuthority{}, err
		}
		state, err := apitype.ShowSettings.Ask(ctx, c, apitype.SettingsQuery{})
		if err != nil {
			return server.HostAuthority{}, err
		}
		lends = state.Applied.Broker
	}
	authority, err := server.OpenHostAuthority(home, lends)
	if errors.Is(err, bailey.NotFound) {
		return authority, bailey.NotFound.Wrap(err, "create it: bailey ssh-ca init",
			"there is no key that signs SSH certificates")
	}
	return authority, err
}

// openAccess returns the login with certificates, and the keys that hosts must trust.
func (a *commands) openAccess(ctx context.Context, home localapi.Home) (*source.Access, []byte, error) {
	authority, err := a.openAuthority(ctx, home)
	if err != nil {
		return nil, nil, err
	}
	trusted, err := authority.Trusted(ctx)
	if err != nil {
		return nil, nil, err
	}
	access, err := authority.OpenAccess(&remote.Pool{Now: time.Now})
	return access, trusted, err
}

// dialAsPerson connects to a host with the person's own login.
func dialAsPerson(ctx context.Context, h source.Host) (*remote.Client, func() error, error) {
	r, err := remote.Resolver{Config: h.SSHConfig}.Route(ctx, h.Name)
	if err != nil {
		return nil, nil, err
	}
	login, done := remote.PersonLogin(r)
	client, err := (remote.Dialer{}).Dial(ctx, r, login)
	return client, done, err
}

// findShell returns the login shell for the processor of a host.
func findShell(machine string) ([]byte, error) { return findProgram(readonlyshell.Name, machine) }

// findApply returns the program that applies playbooks.
func findApply(machine string) ([]byte, error) { return findProgram(hostapply.Name, machine) }

// findProgram returns a program for the processor of a host, from a file beside this program.
func findProgram(program, machine string) ([]byte, error) {
	name, ok := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[machine]
	if !ok {
		return nil, bailey.Invalid.Errorf("use a host with x86_64 or aarch64",
			"there is no %s for the processor %.40q", program, machine)
	}
	path, err := findBeside(program, name)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// findBeside returns the path of a program for another machine, which is beside this program: NAME-ARCH or NAME.
func findBeside(name, arch string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	for _, file := range []string{name + "-" + arch, name} {
		path := filepath.Join(filepath.Dir(self), file)
		f, err := elf.Open(path)
		if err != nil {
			continue
		}
		matches := f.Machine == want
		f.Close()
		if matches {
			return path, nil
		}
	}
	return "", bailey.NotFound.Errorf(fmt.Sprintf("build it: GOOS=linux GOARCH=%s CGO_ENABLED=0 go build -o %s ./cmd/%s", arch,
		filepath.Join(filepath.Dir(self),
			name+"-"+arch), name), "%s for %s is not beside %s", name, arch, filepath.Base(self))
}

func (a *commands) sourcePrepareVerb() *cobra.Command {
	var journal, logs, apply bool
	cmd := &cobra.Command{
		Use: "prepare HOST", Short: "Prepare a host so that agents can read it",
		Long: `Prepare a host so that agents can read it, in six steps over your own SSH login, which must be root's or allow sudo
without a password. Each step is shown before it is done, and a step whose result is there changes nothing. At the end a
login with a new certificate is made; if that fails, all steps of this run are undone.

The steps: install the login shell, create the system account bailey-readonly, copy the public key of bailey ssh-ca, accept
its certificates for that account, limit the account in sshd's configuration, check the configuration and reload sshd. If
source-commands.json in $BAILEY_HOME adds commands, one more step brings it to the host.

With --apply, five more steps let the host apply playbooks: a second account, bailey-apply, and a program of root that it
alone may start. It runs exactly the content whose digest a person approved for this host, once.`,
		Example: "  bailey source prepare web1 --journal",
		Args:    cli.OneArg("a host, for example: bailey source prepare web1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := a.Operator("source prepare"); err != nil {
				return err
			}
			return a.prepareHost(cmd.Context(), args[0], journal, logs, apply)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&journal, "journal", false, "let agents read the journal: the account joins systemd-journal")
	f.BoolVar(&logs, "logs", false, "let agents read /var/log: the account joins adm, whose files may hold secrets")
	f.BoolVar(&apply, "apply", false, "let a person approve playbooks that change the host (source.apply)")
	return a.OperatorVerb(cmd)
}

func (a *commands) prepareHost(ctx context.Context, name string, journal, logs, apply bool) error {
	home, registry, err := openRegistry()
	if err != nil {
		return err
	}
	h, err := registry.Find(name)
	if err != nil {
		return err
	}
	own, err := registry.OwnCommands()
	if err != nil {
		return err
	}
	access, trusted, err := a.openAccess(ctx, home)
	if err != nil {
		return err
	}
	defer access.Pool.Close()
	client, done, err := dialAsPerson(ctx, h)
	if err != nil {
		return err
	}
	defer done()
	defer client.Close()
	fmt.Fprintf(a.Dialog(), "%s, host key %s\n", h.Name, ssh.FingerprintSHA256(client.HostKey))
	p := &source.Preparation{Client: client, Host: h, Trusted: trusted, Own: own, Shell: findShell,
		Journal: journal, Logs: logs,
		Login: func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error) {
			return access.Status(ctx, h, pinned)
		},
		Confirm: func(ctx context.Context, s source.Step) error {
			fmt.Fprintf(a.Dialog(), "%d of %d: %s\n", s.Number, s.Total, s.Purpose)
			return a.Confirm(ctx, "Do this?")
		},
		Report: func(s source.Step, result string) { fmt.Fprintf(a.Dialog(), "  %s\n", terminal.Shown(result)) },
	}
	if apply {
		p.Program = findApply
		p.TryApply = func(ctx context.Context, pinned []ssh.PublicKey) error { return access.TryApply(ctx, h, pinned) }
	}
	if h, err = p.Run(ctx); err != nil {
		return err
	}
	if err := registry.Put(h); err != nil {
		return err
	}
	return a.PrintLine(h, "%s is prepared (%s). Try: bailey source run %[1]s uptime\n", h.Name,
		terminal.Shown(h.System))
}

func (a *commands) sourceUnprepareVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "unprepare HOST", Short: "Remove from a host exactly what prepare added",
		Args: cli.OneArg("a host, for example: bailey source unprepare web1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := a.Operator("source unprepare"); err != nil {
				return err
			}
			_, registry, err := openRegistry()
			if err != nil {
				return err
			}
			h, err := registry.Find(args[0])
			if err != nil {
				return err
			}
			if err := a.Confirm(cmd.Context(),
				"Remove the account and the configuration from "+h.Name+"?"); err != nil {
				return err
			}
			client, done, err := dialAsPerson(cmd.Context(), h)
			if err != nil {
				return err
			}
			defer done()
			defer client.Close()
			result, err := source.Unprepare(cmd.Context(), client)
			if err != nil {
				return err
			}
			h.PreparedAt, h.HostKeys, h.System, h.LandlockABI, h.OwnCommands, h.Apply = nil, nil, "", 0, "", false
			if err := registry.Put(h); err != nil {
				return err
			}
			return a.PrintLine(h, "%s: %s\n", h.Name, terminal.Shown(strings.TrimSpace(result)))
		},
	})
}

func (a *commands) sourceDoctorVerb() *cobra.Command {
	return &cobra.Command{
		Use: "doctor HOST", Short: "Test the way to a prepared host, and its limits",
		Args: cli.OneArg("a host, for example: bailey source doctor web1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			home, registry, err := openRegistry()
			if err != nil {
				return err
			}
			h, err := registry.Find(args[0])
			if err != nil {
				return err
			}
			if !h.Prepared() {
				return bailey.Denied.Errorf("bailey source prepare "+h.Name, "the host %s is not prepared", h.Name)
			}
			access, _, err := a.openAccess(cmd.Context(), home)
			if err != nil {
				return err
			}
			defer access.Pool.Close()
			pinned, err := h.Pinned()
			if err != nil {
				return err
			}
			own, err := registry.OwnCommands()
			if err != nil {
				return err
			}
			s, err := access.Status(cmd.Context(), h, pinned)
			if err != nil {
				return err
			}
			return cli.PrintAnswer(a.App, s, func(w io.Writer, s readonlyshell.Status) {
				fmt.Fprintf(w,
					"the login with a certificate works\nsystem    %s\nkernel    %s, %s\nlandlock  %d\ngroups    %s\n",
					terminal.Shown(s.System), terminal.Shown(s.Kernel), terminal.Shown(s.Architecture), s.LandlockABI, terminal.Shown(strings.Join(s.Groups, " ")))
				if s.OwnCommands != "" {
					fmt.Fprintf(w, "commands  of your own, sha256 %s\n", terminal.Shown(s.OwnCommands))
				}
				if s.OwnCommands != own.Digest {
					fmt.Fprintf(w, "  %s has changed since the host was prepared: bailey source prepare %s\n",
						source.OwnFile, h.Name)
				}
				if s.LandlockABI == 0 {
					fmt.Fprintln(w,
						"  its kernel does not enforce Landlock: only the account and seccomp prevent writing")
				}
			})
		},
	}
}

func (a *commands) sourceRunVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run HOST[,HOST] COMMAND...", Short: "Run a command that only reads on a host, through the gate",
		Long: `Run a command that only reads on a prepared host. It is the call source.run: decided by policy, and recorded in a
receipt. Quote a line with pipes: bailey source run web1 'ps aux | grep nginx'.

For several hosts, one call for each runs at the same time; the exit code is that of the first that failed. KEY=VALUE
instead of a name stands for all prepared hosts with this label.`,
		Example: "  bailey source run web1 uptime\n  bailey source run web1 'journalctl -u nginx | tail -n 20'",
		Args:    cobra.MinimumNArgs(2), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			line := strings.Join(args[1:], " ")
			_, registry, err := openRegistry()
			if err != nil {
				return err
			}
			hosts, err := registry.Expand(strings.Split(args[0], ","))
			if err != nil {
				return err
			}
			if len(hosts) > 1 || hosts[0] != args[0] {
				return a.callHosts(cmd.Context(), hosts, line)
			}
			return a.callHost(cmd.Context(), "source.run", args[0], "command", line)
		},
	}
	cmd.Flags().SetInterspersed(false) // options after the host are those of the command
	return cmd
}

func (a *commands) sourceReadVerb() *cobra.Command {
	return &cobra.Command{
		Use: "read HOST PATH", Short: "Read a file of a host, through the gate", Example: "  bailey source read web1 /etc/os-release",
		Args: cobra.ExactArgs(2), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.callHost(cmd.Context(), "source.read_file", args[0], "path", args[1])
		},
	}
}

func (a *commands) callHost(ctx context.Context, id bailey.CapabilityID, host, name, value string) error {
	return a.MakeCall(ctx, localapi.CallQuery{Capability: id, Text: true, Input: map[string]any{"host": host,
		name: value}}, false)
}

// maxParallelHosts bounds the calls that run at the same time.
const maxParallelHosts = 8

// callHosts makes one call for each host, and prints their outputs in the order of the hosts.
func (a *commands) callHosts(ctx context.Context, hosts []string, line string) error {
	outputs, errs := make([]hostOutput, len(hosts)), make([]error, len(hosts))
	limit := make(chan struct{}, maxParallelHosts)
	var wg sync.WaitGroup
	for i, host := range hosts {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			app := *a.App
			app.Stdout, app.Stderr = &outputs[i].out, &outputs[i].log
			errs[i] = (&commands{&app}).callHost(ctx, "source.run", host, "command", line)
		})
	}
	wg.Wait()
	for i := range hosts {
		if !a.JSON {
			fmt.Fprintf(a.Stdout, "== %s\n", terminal.Shown(hosts[i]))
		}
		if _, err := outputs[i].out.WriteTo(a.Stdout); err != nil {
			return err
		}
		if _, err := outputs[i].log.WriteTo(a.Stderr); err != nil {
			return err
		}
		var code cli.Exit
		if errs[i] != nil && !errors.As(errs[i], &code) {
			a.PrintError(errs[i])
		}
	}
	for _, err := range errs {
		if err != nil {
			var code cli.Exit
			if errors.As(err, &code) {
				return err
			}
			return cli.Exit(1)
		}
	}
	return nil
}

// hostOutput is what one call printed.
type hostOutput struct{ out, log bytes.Buffer }
