package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// version is set by releases (-ldflags "-X main.version=…").
var version = "dev"

// Exit codes (README.md).
const (
	exitOK          = 0
	exitDenied      = 1
	exitInput       = 2  // bad input, or an approval is needed
	exitTool        = 3  // the tool failed; its own code is in the result
	exitBlocked     = 77 // denied by the active profiles
	exitNoMatch     = 126
	exitUnreachable = 127
)

// exit is an error that ends the program with this exit code. All messages must have been printed before.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Main runs the command line with the arguments of the process, and exits. work does what needs no gateway; bare says
// that the platform has no isolation.
func Main(work localWork, bare bool) {
	ctx, stop := terminal.UntilSignal(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(ctx, stop, work, bare, os.Args[1:]))
}

func run(ctx context.Context, stop func(), work localWork, bare bool, args []string) int {
	defer stop()
	out := &sink{w: os.Stdout}
	app := &app{stdin: os.Stdin, stdout: out, stderr: os.Stderr, local: work, bare: bare, after: "bailey receipts list shows what became of an open call"}
	root := app.root()
	root.SetArgs(args)
	// only for completion, so that no other start waits for it
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		app.completion(root)
	}
	app.json = slices.Contains(ours(args), "--json") // set here too, for the case that the arguments cannot be parsed
	err := root.ExecuteContext(ctx)
	if out.err != nil && (err == nil || errors.Is(err, out.err)) {
		err = unwritten(out.err)
	}
	var code exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		if out.err != nil {
			app.complain(unwritten(out.err))
		}
		return int(code)
	}
	switch signalCode(err) {
	case 0:
		err = worded(err)
		app.complain(err)
	case 128 + int(syscall.SIGPIPE): // no reader for a message
	default:
		app.complain(&bailey.Error{Kind: bailey.Unavailable, Message: err.Error(), Hint: app.after})
	}
	return codeOf(err)
}

func unwritten(err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "the output was not written", Hint: "look at where it goes", Err: err}
}

// ours returns the arguments before --. The arguments after it belong to a tool.
func ours(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

// signalCode returns the exit code of a program that was ended by a signal, or 0 for every other error.
func signalCode(err error) int {
	if errors.Is(err, wire.ErrUnreachable) {
		return 0
	}
	return terminal.SignalCode(err)
}

// app is the state that all commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
	local          localWork
	bare           bool   // the platform has no isolation
	after          string // the hint if a signal ends the command
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "bailey",
		Short:         "The gate between AI agents and everything they could break",
		Version:       version,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &bailey.Error{Kind: bailey.Invalid, Message: plainFlag(err.Error()), Hint: "bailey help lists verbs and flags"}
	})
	root.AddCommand(a.runVerb(), a.capabilitiesVerb(), a.toolsVerb(), a.serveVerb(), a.sessionVerb(), a.receiptsVerb(),
		a.policyVerb(), a.budgetVerb(), a.killVerb(), a.resumeVerb(), a.agentVerb(), a.tokenVerb(),
		a.approvalsVerb(), a.approveVerb(), a.denyVerb(), a.grantsVerb(), a.notifyVerb(), a.tuiVerb(), a.judgeVerb(), a.shimVerb(),
		a.benchVerb(), a.initVerb(), a.packVerb(), a.profileVerb(), a.redactVerb(), a.hooksVerb(), a.sourceVerb(), a.statusVerb(), a.metricsVerb(), a.manVerb())
	a.local.add(a, root)
	groups(root)
	root.PersistentPreRunE = forInside
	return root
}

// saysWhy is "no" in programs that tests build (go build -ldflags "-X main.saysWhy=no"). On a busy machine a command
// may have to wait for the gateway, and a line with the reason would become part of the output that the tests compare.
var saysWhy = "yes"

// client connects to the gateway of the home and starts one if none is running.
func (a *app) client() (*wire.Client, error) {
	return wire.Here(spawn, func(s string) {
		if saysWhy == "yes" {
			fmt.Fprintln(a.stderr, "bailey: "+s)
		}
	})
}

// look sends a query to the gateway and prints the answer, as JSON or with inWords.
func look[T any](ctx context.Context, a *app, q wire.Query, inWords func(T)) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var answer T
	if err := c.Look(ctx, q, &answer); err != nil {
		return err
	}
	if a.json {
		return a.print(answer)
	}
	inWords(answer)
	return nil
}

func (a *app) print(v any) error { return writeJSON(a.stdout, v) }

// writeJSON writes v as one line of JSON. Characters that could control a terminal are escaped.
func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, terminal.JSON(b.String()))
	return err
}

// complain prints an error and its hint.
func (a *app) complain(err error) {
	if a.json && a.print(map[string]any{"ok": false, "error": bailey.KindOf(err), "reason": err.Error(), "hint": bailey.HintOf(err)}) == nil {
		return // otherwise use standard error
	}
	a.say(string(bailey.KindOf(err)), err.Error(), bailey.HintOf(err))
}

func (a *app) say(what, why, hint string) { terminal.Say(a.stderr, what, why, hint) }

// codeOf maps an error that is not the result of a call to an exit code.
func codeOf(err error) int {
	switch code := signalCode(err); {
	case code != 0:
		return code
	case errors.Is(err, wire.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, bailey.Invalid):
		return exitInput
	case bailey.KindOf(err) == bailey.Internal && isUsage(err):
		return exitInput
	}
	return exitDenied
}

// isUsage reports whether err is one of cobra's own errors about arguments and flags. They have no kind.
func isUsage(err error) bool {
	var e *bailey.Error
	var path *os.PathError
	var sys syscall.Errno
	return !errors.As(err, &e) && !errors.As(err, &path) && !errors.As(err, &sys)
}
