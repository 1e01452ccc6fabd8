package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/terminal"
)

// teamOperation is a call on a gateway through the control plane.
type teamOperation struct {
	ID         string          `json:"id"`
	Host       string          `json:"host"`
	HostName   string          `json:"hostName"`
	Sandbox    string          `json:"sandbox,omitempty"`
	Capability string          `json:"capability"`
	Person     string          `json:"person"`
	State      string          `json:"state"`
	Created    time.Time       `json:"created"`
	Ended      time.Time       `json:"ended,omitzero"`
	Receipt    string          `json:"receipt,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	Result     *teamResult     `json:"result,omitempty"`
	Error      *teamFault      `json:"error,omitempty"`
}

// teamResult is what the gate of the gateway said.
type teamResult struct {
	Status     string          `json:"status"`
	ExitCode   int             `json:"exitCode"`
	Stdout     string          `json:"stdout,omitempty"`
	Stderr     string          `json:"stderr,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
}

type teamFault struct {
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// hasEnded reports whether the operation is at an end.
func (o teamOperation) hasEnded() bool {
	return slices.Contains([]string{"done", "failed", "unknown"}, o.State)
}

// fault returns why an operation failed, or nil.
func (o teamOperation) fault() error {
	if !o.hasEnded() || o.State == "done" {
		return nil
	}
	f := teamFault{Kind: string(bailey.Unavailable), Detail: "the operation is " + o.State}
	if o.Error != nil {
		f = *o.Error
	}
	hint := terminal.CutLine(f.Hint)
	if o.Receipt != "" {
		hint = strings.TrimPrefix(hint+"; its receipt on that machine is "+terminal.CutLine(o.Receipt), "; ")
	}
	return bailey.Kind(f.Kind).New(terminal.CutLine(f.Detail), hint)
}

// teamSandbox is a sandbox that was created through the control plane.
type teamSandbox struct {
	ID        string    `json:"id"`
	Host      string    `json:"host"`
	HostName  string    `json:"hostName"`
	Machine   string    `json:"machine,omitempty"`
	Name      string    `json:"name,omitempty"`
	Image     string    `json:"image"`
	CPUs      int       `json:"cpus"`
	MemoryMB  int       `json:"memoryMB"`
	State     string    `json:"state"`
	Person    string    `json:"person"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires,omitzero"`
	Operation string    `json:"operation"`
}

// startCall sends a request that makes a call, and waits for the end of its operation unless wait is false.
func (s *teamServer) startCall(ctx context.Context, method, path string, body any, wait bool) (o teamOperation, err error) {
	if err := s.sendRequest(ctx, method, path, body, &o, "Idempotency-Key", rand.Text()); err != nil || !wait {
		return o, err
	}
	return s.waitForEnd(ctx, o.ID)
}

// waitForEnd waits until an operation has ended.
func (s *teamServer) waitForEnd(ctx context.Context, id string) (o teamOperation, err error) {
	for {
		o = teamOperation{}
		err := s.sendRequest(ctx, "GET", "operations/"+url.PathEscape(id)+"?wait=true", nil, &o)
		if err != nil || o.hasEnded() {
			return o, err
		}
		if ctx.Err() != nil {
			return o, context.Cause(ctx)
		}
	}
}

// printCall prints the end of an operation, and returns why it failed.
func (a *App) printCall(o teamOperation) error {
	if err := o.fault(); err != nil {
		return err
	}
	return PrintAnswer(a, o, printOperation)
}

func printOperation(w io.Writer, o teamOperation) {
	if o.Result == nil || !o.hasEnded() {
		fmt.Fprintf(w, "operation %s is %s: bailey team operations show %s\n", terminal.CutLine(o.ID), terminal.CutLine(o.State),
			terminal.CutLine(o.ID))
		return
	}
	text := o.Result.Stdout
	if len(o.Result.Structured) > 0 {
		text = string(o.Result.Structured) + "\n"
	}
	for line := range strings.Lines(text + o.Result.Stderr) { // of another machine: it must not steer this terminal
		fmt.Fprintln(w, terminal.Shown(strings.TrimSuffix(line, "\n")))
	}
	if o.Result.Truncated {
		fmt.Fprintln(w, "(the output was longer)")
	}
}

func (a *App) teamSandboxes(s *teamServer) *cobra.Command {
	var all bool
	list := &cobra.Command{Use: "list", Short: "List the sandboxes of the team", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listTeamSandboxes(cmd.Context(), s, all) }}
	list.Flags().BoolVar(&all, "all", false, "also those that have ended")
	destroy := a.teamCall("destroy ID", "Destroy a sandbox with all its files",
		func(ctx context.Context, args []string, wait bool) (teamOperation, error) {
			return s.startCall(ctx, "DELETE", "sandboxes/"+url.PathEscape(args[0]), nil, wait)
		})
	refresh := a.teamCall("refresh HOST", "Correct the list by the answer of a host",
		func(ctx context.Context, args []string, wait bool) (teamOperation, error) {
			return s.startCall(ctx, "POST", "hosts/"+url.PathEscape(args[0])+"/sandboxes", nil, wait)
		})
	return GroupVerb("sandboxes", "List, create, use and destroy sandboxes on the team's machines",
		"A call passes the gate of the machine: its settings must permit it (fleet: calls), and its policy decides.",
		list, a.teamCreate(s), a.teamExec(s), destroy, refresh)
}

// teamCall is a command that makes one call.
func (a *App) teamCall(use, short string, f func(ctx context.Context, args []string, wait bool) (teamOperation, error)) *cobra.Command {
	var later bool
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(len(strings.Fields(use)) - 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f(cmd.Context(), args, !later)
			if err != nil {
				return err
			}
			return a.printCall(o)
		}}
	cmd.Flags().BoolVar(&later, "no-wait", false, "print the operation, and do not wait for its end")
	return cmd
}

func (a *App) listTeamSandboxes(ctx context.Context, s *teamServer, all bool) error {
	var l struct {
		Items []teamSandbox `json:"items"`
	}
	if err := s.sendRequest(ctx, "GET", fmt.Sprintf("sandboxes?all=%t", all), nil, &l); err != nil {
		return err
	}
	return PrintAnswer(a, l, func(w io.Writer, _ struct {
		Items []teamSandbox `json:"items"`
	}) {
		if len(l.Items) == 0 {
			fmt.Fprintln(w, "no sandboxes: bailey team sandboxes create IMAGE")
		}
		PrintTable(w, "", l.Items, func(b teamSandbox) []any {
			return []any{terminal.TableCell(b.ID), terminal.TableCell(b.State), terminal.TableCell(cmp.Or(b.Name, "-")),
				terminal.TableCell(b.Image), fmt.Sprintf("%d MB", b.MemoryMB), "on " + terminal.TableCell(b.HostName),
				"by " + terminal.TableCell(b.Person), b.Created.Local().Format(time.DateTime)}
		})
	})
}

// newTeamSandbox is the request for a sandbox.
type newTeamSandbox struct {
	Host     string `json:"host,omitempty"`
	Image    string `json:"image"`
	Name     string `json:"name,omitempty"`
	CPUs     int    `json:"cpus,omitempty"`
	MemoryMB int    `json:"memoryMB,omitempty"`
	Network  string `json:"network,omitempty"`
	TTL      string `json:"ttl,omitempty"`
}

// createdTeamSandbox is the answer to it.
type createdTeamSandbox struct {
	Operation teamOperation `json:"operation"`
	Sandbox   teamSandbox   `json:"sandbox"`
}

func (a *App) teamCreate(s *teamServer) *cobra.Command {
	var n newTeamSandbox
	var key string
	var later bool
	cmd := &cobra.Command{Use: "create IMAGE", Short: "Create a sandbox, on the host with the most room unless you name one",
		Args: OneArg("an image, for example debian"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.Image = args[0]
			return a.createTeamSandbox(cmd.Context(), s, n, cmp.Or(key, rand.Text()), !later)
		}}
	f := cmd.Flags()
	f.StringVar(&n.Host, "host", "", "the `id` of the host")
	f.StringVar(&n.Name, "name", "", "the name of the sandbox")
	f.IntVar(&n.CPUs, "cpus", 0, "processors (default 1)")
	f.IntVar(&n.MemoryMB, "memory", 0, "memory in `MB` (default 256)")
	f.StringVar(&n.Network, "network", "", "the network (default none)")
	f.StringVar(&n.TTL, "ttl", "", "for how long it lives, for example 90m (default 24h)")
	f.StringVar(&key, "idempotency-key", "", "the same `key` gives the same sandbox, however often you ask")
	f.BoolVar(&later, "no-wait", false, "print the operation, and do not wait for its end")
	return cmd
}

func (a *App) createTeamSandbox(ctx context.Context, s *teamServer, n newTeamSandbox, key string, wait bool) error {
	var made createdTeamSandbox
	err := s.sendRequest(ctx, "POST", "sandboxes", n, &made, "Idempotency-Key", key)
	if err == nil && wait {
		made.Operation, err = s.waitForEnd(ctx, made.Operation.ID)
	}
	if err == nil {
		err = made.Operation.fault()
	}
	if err != nil {
		return err
	}
	if wait {
		var l struct{ Items []teamSandbox }
		if err := s.sendRequest(ctx, "GET", "sandboxes?all=true", nil, &l); err != nil {
			return err
		}
		for _, b := range l.Items {
			if b.ID == made.Sandbox.ID {
				made.Sandbox = b
			}
		}
	}
	return a.PrintLine(made, "%s is %s on %s\n", terminal.CutLine(made.Sandbox.ID), terminal.CutLine(made.Sandbox.State),
		terminal.CutLine(made.Sandbox.HostName))
}

func (a *App) teamExec(s *teamServer) *cobra.Command {
	var body struct {
		Command []string `json:"command"`
		Dir     string   `json:"dir,omitempty"`
		Env     []string `json:"env,omitempty"`
		Seconds int      `json:"seconds,omitempty"`
	}
	var later bool
	cmd := &cobra.Command{Use: "exec ID -- PROGRAM [ARG…]", Short: "Run a command in a sandbox and print its output",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body.Command = args[1:]
			o, err := s.startCall(cmd.Context(), "POST", "sandboxes/"+url.PathEscape(args[0])+"/exec", body, !later)
			if err != nil {
				return err
			}
			return a.printCall(o)
		}}
	cmd.Flags().StringVar(&body.Dir, "dir", "", "the working directory (default /)")
	cmd.Flags().StringArrayVar(&body.Env, "env", nil, "a variable, `NAME=value`; can be repeated")
	cmd.Flags().IntVar(&body.Seconds, "seconds", 0, "end it after so many seconds (default 600)")
	cmd.Flags().BoolVar(&later, "no-wait", false, "print the operation, and do not wait for its end")
	return cmd
}

// teamSource is a source host of a gateway.
type teamSource struct {
	Host      string   `json:"host"`
	HostName  string   `json:"hostName"`
	Connected bool     `json:"connected"`
	Name      string   `json:"name"`
	Labels    []string `json:"labels,omitempty"`
	System    string   `json:"system,omitempty"`
	Prepared  bool     `json:"prepared"`
}

type teamSourceList struct {
	Items []teamSource `json:"items"`
}

func (a *App) teamSources(s *teamServer) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the source hosts of the team's gateways", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l teamSourceList
			if err := s.sendRequest(cmd.Context(), "GET", "sources", nil, &l); err != nil {
				return err
			}
			return PrintAnswer(a, l, func(w io.Writer, l teamSourceList) {
				if len(l.Items) == 0 {
					fmt.Fprintln(w, "no gateway permits to look at source hosts (fleet: {calls: [source.run]} in its settings.yaml)")
				}
				PrintTable(w, "", l.Items, func(h teamSource) []any {
					return []any{terminal.TableCell(h.Name), "of " + terminal.TableCell(h.HostName), terminal.TableCell(h.Host),
						terminal.TableCell(h.System), terminal.TableCell(strings.Join(h.Labels, ","))}
				})
			})
		}}
	look := func(use, short, route, member string) *cobra.Command {
		return a.teamCall(use, short, func(ctx context.Context, args []string, wait bool) (teamOperation, error) {
			return s.startCall(ctx, "POST", "sources/"+route, map[string]string{"host": args[0], "name": args[1], member: args[2]}, wait)
		})
	}
	return GroupVerb("sources", "List and look at the source hosts of the team's gateways", "", list,
		look("run GATEWAY NAME LINE", "Run a command line that only reads", "run", "command"),
		look("read GATEWAY NAME PATH", "Print a file", "read", "path"))
}

type teamOperationList struct {
	Items []teamOperation `json:"items"`
}

func (a *App) teamOperations(s *teamServer) *cobra.Command {
	var state, sandbox string
	list := &cobra.Command{Use: "list", Short: "List the calls that people have made on gateways", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for name, value := range map[string]string{"state": state, "sandbox": sandbox} {
				if value != "" {
					q.Set(name, value)
				}
			}
			var l teamOperationList
			if err := s.sendRequest(cmd.Context(), "GET", "operations?"+q.Encode(), nil, &l); err != nil {
				return err
			}
			return PrintAnswer(a, l, func(w io.Writer, l teamOperationList) {
				if len(l.Items) == 0 {
					fmt.Fprintln(w, "no operations")
				}
				PrintTable(w, "", l.Items, func(o teamOperation) []any {
					return []any{terminal.TableCell(o.ID), terminal.TableCell(o.State), terminal.TableCell(o.Capability),
						"on " + terminal.TableCell(o.HostName), "by " + terminal.TableCell(o.Person),
						o.Created.Local().Format(time.DateTime)}
				})
			})
		}}
	list.Flags().StringVar(&state, "state", "", "only those in a `state`: queued, sent, running, done, failed, unknown")
	list.Flags().StringVar(&sandbox, "sandbox", "", "only those on the sandbox with this `id`")
	var wait bool
	show := &cobra.Command{Use: "show ID", Short: "Show an operation with its result",
		Args: OneArg("an operation: see bailey team operations list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o teamOperation
			err := s.sendRequest(cmd.Context(), "GET", "operations/"+url.PathEscape(args[0]), nil, &o)
			if err == nil && wait && !o.hasEnded() {
				o, err = s.waitForEnd(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			return PrintAnswer(a, o, func(w io.Writer, o teamOperation) {
				fmt.Fprintf(w, "%s: %s on %s by %s, since %s\n", terminal.CutLine(o.State), terminal.CutLine(o.Capability),
					terminal.CutLine(o.HostName), terminal.CutLine(o.Person), o.Created.Local().Format(time.DateTime))
				if o.Receipt != "" {
					fmt.Fprintf(w, "receipt %s\n", terminal.CutLine(o.Receipt))
				}
				if o.Error != nil {
					fmt.Fprintf(w, "%s\n  → %s\n", terminal.CutLine(o.Error.Detail), terminal.CutLine(o.Error.Hint))
				}
				if o.Result != nil {
					printOperation(w, o)
				}
			})
		}}
	show.Flags().BoolVar(&wait, "wait", false, "wait for its end")
	return GroupVerb("operations", "List and show the calls that people have made on gateways", "", list, show)
}
