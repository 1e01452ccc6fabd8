package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

// sandboxVerb is the group of commands for virtual machines that an agent may break. All but shell and cp, which are in
// package direct, are calls through the gate.
func (a *App) sandboxVerb() *cobra.Command {
	return GroupVerb("sandbox", "Use virtual machines that an agent may break", "", a.sandboxCreateVerb(),
		a.sandboxListVerb(),
		a.sandboxShowVerb(), a.sandboxExecVerb(),
		a.sandboxStateVerb("start", "Start a stopped sandbox, or let a paused one continue", "resume"),
		a.sandboxStateVerb("stop", "Stop a sandbox; its files stay"),
		a.sandboxStateVerb("pause", "Pause a sandbox until it is started"),
		a.sandboxSnapshotVerb(), a.sandboxSnapshotsVerb(), a.sandboxRestoreVerb(), a.sandboxBranchVerb(), a.sandboxExtendVerb(),
		a.sandboxDiffVerb(), a.sandboxExportVerb(), a.sandboxVerifyVerb(), a.sandboxDestroyVerb())
}

// exampleBox is the argument of an example.
const exampleBox = "a sandbox, for example: bailey sandbox show web"

// answerCall makes a call whose output is one JSON value, and prints that in words, or the reply as JSON.
func answerCall[Answer any](ctx context.Context, a *App, call localapi.CallQuery, inWords func(io.Writer,
	Answer)) error {
	if a.JSON {
		return a.MakeCall(ctx, call, false)
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	c.Waits = func(n localapi.Notice) { n.Tell(a.Stderr) }
	reply, err := c.Call(ctx, call, nil, nil)
	if err != nil {
		return err
	}
	if reply.Result != nil && reply.Result.Stderr != "" {
		log, done := terminal.For(a.Stderr, os.Stderr)
		io.WriteString(log, reply.Result.Stderr)
		done()
	}
	if err := a.printReply(reply); err != nil || reply.Result == nil {
		return err
	}
	var answer Answer
	if err := json.Unmarshal([]byte(reply.Result.Stdout), &answer); err != nil {
		return bailey.Internal.Wrap(err, "cannot read the answer", "run the command with --json")
	}
	inWords(a.Stdout, answer)
	return nil
}

// The answers of calls that list objects.
type (
	boxList  struct{ Sandboxes []hostapi.Sandbox }
	shotList struct{ Snapshots []hostapi.Snapshot }
)

// isSandboxID reports whether a word has the form of an id. Any other word is a name.
func isSandboxID(word string) bool {
	return len(word) == len("sb-")+26 && strings.HasPrefix(word, "sb-")
}

// findSandbox returns the id of a sandbox of the caller. A name is looked up by the call sandbox.list.
func (a *App) findSandbox(ctx context.Context, word string) (string, error) {
	if isSandboxID(word) {
		return word, nil
	}
	c, err := a.Client()
	if err != nil {
		return "", err
	}
	reply, err := c.Call(ctx, localapi.CallQuery{Capability: "sandbox.list"}, nil, nil)
	if err != nil {
		return "", err
	}
	var list boxList
	if !reply.OK || reply.Result == nil || json.Unmarshal([]byte(reply.Result.Stdout), &list) != nil {
		return "", a.printReply(reply)
	}
	id := ""
	for _, b := range list.Sandboxes {
		if b.Name == word && id != "" {
			return "", bailey.Conflict.Errorf("name one of them by its id: bailey sandbox list",
				"there are several sandboxes %s", terminal.Shown(word))
		}
		if b.Name == word {
			id = b.ID
		}
	}
	if id == "" {
		return "", bailey.NotFound.Errorf("bailey sandbox list shows yours", "there is no sandbox %s",
			terminal.Shown(word))
	}
	return id, nil
}

// boxCall returns a call on a sandbox.
func (a *App) boxCall(ctx context.Context, verb, word string, input map[string]any) (localapi.CallQuery, error) {
	id, err := a.findSandbox(ctx, word)
	if input == nil {
		input = map[string]any{}
	}
	input["sandbox"] = id
	return localapi.CallQuery{Capability: bailey.CapabilityID("sandbox." + verb), Input: input}, err
}

// callBox makes a call on a sandbox and prints the sandbox that it answers with.
func (a *App) callBox(ctx context.Context, verb, word string, input map[string]any) error {
	call, err := a.boxCall(ctx, verb, word, input)
	if err != nil {
		return err
	}
	return answerCall(ctx, a, call, printBox)
}

func printBox(w io.Writer, b hostapi.Sandbox) {
	fmt.Fprintf(w,
		"sandbox  %s\nname     %s\nstate    %s\nimage    %s, sha256 %.12s\nmachine  %s, %s, %d CPU, %d MiB\nnetwork  %s\nends     %s\n",
		b.ID, terminal.Shown(b.Name), b.State, terminal.Shown(b.Image), b.ImageDigest, terminal.Shown(b.Machine), b.Accelerator, b.CPUs,
		b.MemoryMB, terminal.Shown(cmp.Or(b.Network, "none")), b.Expires.Local().Format(time.DateTime))
	for _, place := range b.Egress {
		fmt.Fprintf(w, "reaches  %s\n", terminal.Shown(place.Words()))
	}
	if b.Problem != "" {
		fmt.Fprintf(w, "problem  %s\n  %s\n", terminal.Shown(b.Problem), terminal.Shown(b.Hint))
	}
}

func printBoxes(w io.Writer, l boxList) {
	if len(l.Sandboxes) == 0 {
		fmt.Fprintln(w,
			"there are no sandboxes: bailey sandbox create IMAGE makes one, and bailey image list shows the images")
		return
	}
	PrintTable(w, "SANDBOX\tNAME\tSTATE\tIMAGE\tENDS", l.Sandboxes, func(b hostapi.Sandbox) []any {
		return []any{b.ID, terminal.Shown(b.Name), b.State, terminal.Shown(b.Image),
			b.Expires.Local().Format(time.DateTime)}
	})
}

// withNotice prints a message if do takes more than a second.
func (a *App) withNotice(message string, do func() error) error {
	defer time.AfterFunc(time.Second, func() { fmt.Fprintln(a.Stderr, "bailey: "+message) }).Stop()
	return do()
}

func (a *App) sandboxCreateVerb() *cobra.Command {
	var name, snapshot, network, ttl string
	var cpus, memory int
	cmd := &cobra.Command{
		Use: "create [IMAGE]", Short: "Create a sandbox from an image or a snapshot",
		Long: `Create a virtual machine from an image, or with --snapshot from a snapshot. It has no network and lives for 24
hours, unless you say otherwise. It is the call sandbox.create: decided by policy, and recorded in a receipt.

The first sandbox of an image boots it, which can take a minute; each later one takes well under a second.`,
		Example: "  bailey sandbox create debian --name web\n  bailey sandbox create --snapshot clean",
		Args:    cobra.MaximumNArgs(1), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			input := map[string]any{}
			for key, value := range map[string]string{"image": strings.Join(args, ""), "snapshot": snapshot,
				"name": name, "network": network, "ttl": ttl} {
				if value != "" {
					input[key] = value
				}
			}
			if cmd.Flags().Changed("cpus") {
				input["cpus"] = cpus
			}
			if cmd.Flags().Changed("memory") {
				input["memory_mb"] = memory
			}
			return a.withNotice("the first sandbox of an image boots it; this can take a minute", func() error {
				return answerCall(cmd.Context(), a, localapi.CallQuery{Capability: "sandbox.create",
					Input: input}, func(w io.Writer, b hostapi.Sandbox) {
					printBox(w, b)
					fmt.Fprintf(w, "next: bailey sandbox exec %s -- uname -a\n", terminal.Shown(cmp.Or(b.Name, b.ID)))
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "its `name`")
	f.StringVar(&snapshot, "snapshot", "", "the `snapshot` to begin with, instead of an image")
	f.StringVar(&network, "network", "", "its `network`: none, which is the default, or names, the places that the settings open")
	f.StringVar(&ttl, "ttl", "", "for how long it lives, such as `90m` or 24h")
	f.IntVar(&cpus, "cpus", 0, "`processors`; 1 unless said")
	f.IntVar(&memory, "memory", 0, "memory in `MiB`; 256 unless said")
	return cmd
}

func (a *App) sandboxListVerb() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List your sandboxes", Args: cobra.NoArgs, PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answerCall(cmd.Context(), a, localapi.CallQuery{Capability: "sandbox.list"}, printBoxes)
		}}
}

func (a *App) sandboxShowVerb() *cobra.Command {
	return &cobra.Command{Use: "show SANDBOX", Short: "Show a sandbox", Args: OneArg(exampleBox), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error { return a.callBox(cmd.Context(), "show", args[0], nil) }}
}

// sandboxStateVerb returns a command that only changes the state of a sandbox.
func (a *App) sandboxStateVerb(verb, short string, aliases ...string) *cobra.Command {
	return &cobra.Command{Use: verb + " SANDBOX", Aliases: aliases, Short: short, Args: OneArg(exampleBox),
		PreRun: a.Warn,
		RunE:   func(cmd *cobra.Command, args []string) error { return a.callBox(cmd.Context(), verb, args[0], nil) }}
}

// maxExecInput limits the standard input of a command in a sandbox, in bytes.
const maxExecInput = 10 << 20

func (a *App) sandboxExecVerb() *cobra.Command {
	var dir string
	var env []string
	var uid uint32
	var stdin bool
	cmd := &cobra.Command{
		Use: "exec SANDBOX -- COMMAND...", Short: "Run a command in a sandbox, through the gate",
		Long: `Run a command in a sandbox, and print its output. It is the call sandbox.exec: decided by policy, and recorded in a
receipt. No shell is involved: for a line with pipes write bailey sandbox exec web -- sh -c 'LINE'.

By default policy asks before commands that name a program that connects elsewhere, such as curl or ssh.`,
		Example: "  bailey sandbox exec web -- id\n  bailey sandbox exec web --dir /etc -- sh -c 'ls | head'",
		Args:    cobra.MinimumNArgs(2), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			input := map[string]any{"command": args[1:]}
			if dir != "" {
				input["dir"] = dir
			}
			if len(env) > 0 {
				input["env"] = env
			}
			if uid != 0 {
				input["uid"], input["gid"] = uid, uid
			}
			if stdin {
				text, err := io.ReadAll(io.LimitReader(bufio.NewReader(a.Stdin), maxExecInput+1))
				if err != nil {
					return bailey.Unavailable.Wrap(err, "cannot read standard input", "")
				}
				input["stdin"] = string(text)
			}
			call, err := a.boxCall(cmd.Context(), "exec", args[0], input)
			if err != nil {
				return err
			}
			return a.MakeCall(cmd.Context(), call, false)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "", "the working `directory`; / unless said")
	f.StringArrayVar(&env, "env", nil, "a variable, `NAME=value`; may be repeated")
	f.Uint32Var(&uid, "uid", 0, "the `user` and group in the sandbox; root unless said")
	f.BoolVar(&stdin, "stdin", false, "pass standard input on, at most 10 MB of text")
	return cmd
}

func (a *App) sandboxSnapshotVerb() *cobra.Command {
	return &cobra.Command{Use: "snapshot SANDBOX NAME", Short: "Keep the state of a sandbox under a name",
		Args: cobra.ExactArgs(2), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			call, err := a.boxCall(cmd.Context(), "snapshot", args[0], map[string]any{"name": args[1]})
			if err != nil {
				return err
			}
			return answerCall(cmd.Context(), a, call, func(w io.Writer, s hostapi.Snapshot) {
				fmt.Fprintf(w, "%s (%s) of %s, %d MiB\nnext: bailey sandbox restore %s %[2]s\n", s.ID,
					terminal.Shown(s.Name), s.Sandbox,
					s.Bytes>>20, terminal.Shown(args[0]))
			})
		}}
}

func (a *App) sandboxSnapshotsVerb() *cobra.Command {
	return &cobra.Command{Use: "snapshots", Short: "List your snapshots", Args: cobra.NoArgs, PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return answerCall(cmd.Context(), a, localapi.CallQuery{Capability: "sandbox.snapshots"},
				func(w io.Writer, l shotList) {
					if len(l.Snapshots) == 0 {
						fmt.Fprintln(w, "there are no snapshots: bailey sandbox snapshot SANDBOX NAME makes one")
						return
					}
					PrintTable(w, "SNAPSHOT\tNAME\tIMAGE\tMIB\tMADE", l.Snapshots, func(s hostapi.Snapshot) []any {
						return []any{s.ID, terminal.Shown(s.Name), terminal.Shown(s.Image), s.Bytes >> 20,
							s.Created.Local().Format(time.DateTime)}
					})
				})
		}}
}

func (a *App) sandboxRestoreVerb() *cobra.Command {
	return &cobra.Command{Use: "restore SANDBOX SNAPSHOT",
		Short: "Return a sandbox to a snapshot; what happened since is lost",
		Args:  cobra.ExactArgs(2), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.callBox(cmd.Context(), "restore", args[0], map[string]any{"snapshot": args[1]})
		}}
}

func (a *App) sandboxBranchVerb() *cobra.Command {
	return &cobra.Command{Use: "branch SANDBOX [COUNT]", Short: "Make copies of a running sandbox",
		Long: `Make copies of a running sandbox, with the same files and processes. Each copy is a machine of its own, with its own
host name, machine id and host keys.`,
		Args: cobra.RangeArgs(1, 2), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			input := map[string]any{}
			if len(args) == 2 {
				n, err := strconv.Atoi(args[1])
				if err != nil {
					return bailey.Invalid.Errorf("write a number, for example: bailey sandbox branch web 3",
						"%q is not a number of copies", args[1])
				}
				input["count"] = n
			}
			call, err := a.boxCall(cmd.Context(), "branch", args[0], input)
			if err != nil {
				return err
			}
			return answerCall(cmd.Context(), a, call, printBoxes)
		}}
}

func (a *App) sandboxExtendVerb() *cobra.Command {
	return &cobra.Command{Use: "extend SANDBOX TIME", Short: "Let a sandbox live for this time from now",
		Example: "  bailey sandbox extend web 24h", Args: cobra.ExactArgs(2), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.callBox(cmd.Context(), "extend", args[0], map[string]any{"ttl": args[1]})
		}}
}

func (a *App) sandboxDestroyVerb() *cobra.Command {
	return &cobra.Command{Use: "destroy SANDBOX", Short: "Destroy a sandbox with all its files",
		Args: OneArg(exampleBox), PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, args []string) error {
			call, err := a.boxCall(cmd.Context(), "destroy", args[0], nil)
			if err != nil {
				return err
			}
			return answerCall(cmd.Context(), a, call, func(w io.Writer, d struct{ Destroyed string }) {
				fmt.Fprintf(w, "destroyed %s\n", terminal.Shown(d.Destroyed))
			})
		}}
}

// SandboxHost returns the client of the host of sandboxes, and this person as the owner of all their sandboxes. It is
// for
// commands of operators and for completions, never for calls.
func SandboxHost(home localapi.Home) (*hostapi.Client, hostapi.Owner, error) {
	c, err := hostapi.Here(home)
	if err != nil {
		return nil, hostapi.Owner{}, err
	}
	person := "uid:" + strconv.Itoa(os.Geteuid()) // as the gateway names a person without an account
	if u, err := user.Current(); err == nil {
		person = u.Username
	}
	return c, hostapi.Owner{Person: person, Operator: true}, nil
}

// sandboxWords lists the sandboxes of a running host.
func (a *App) sandboxWords(ctx context.Context) (words []string) {
	home, err := localapi.FindHome()
	if err != nil {
		return nil
	}
	c, owner, err := SandboxHost(home)
	if err != nil {
		return nil
	}
	c.Start = nil
	ctx, cancel := completionContext(ctx)
	defer cancel()
	list, err := hostapi.List.Ask(ctx, c, owner, hostapi.None{})
	if err != nil {
		return nil
	}
	for _, b := range list {
		words = append(words, completionWord(b.ID, b.Name+" "+string(b.State)+" "+b.Image))
	}
	return words
}
