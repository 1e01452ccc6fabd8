// Command bailey is the gate between AI agents and the tools they use: the command line, and the gateway
// process that it starts. Its own file for each verb; what it wires together stands in wire.go.
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
	"bailey/internal/jail"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// version is set by releases (-ldflags "-X main.version=…").
var version = "dev"

// Exit codes (design.md, section 2).
const (
	exitOK          = 0
	exitDenied      = 1
	exitInput       = 2  // bad input, or an approval is needed
	exitTool        = 3  // the tool failed; its own code is in the result
	exitBlocked     = 77 // by the profiles in use
	exitNoMatch     = 126
	exitUnreachable = 127
)

// exit is an error that ends the program with a code after everything has been said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	ctx, stop := terminal.UntilSignal(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(ctx, stop, os.Args[1:]))
}

func run(ctx context.Context, stop func(), args []string) int {
	defer stop()
	out := &sink{w: os.Stdout}
	app := &app{stdin: os.Stdin, stdout: out, stderr: os.Stderr, bare: jail.Bare, after: "bailey receipts list shows what became of an open call"}
	root := app.root()
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // what each other start need not wait for
		app.completion(root)
	}
	app.json = slices.Contains(ours(args), "--json") // also where the words around it cannot be read
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
	case 128 + int(syscall.SIGPIPE): // nobody would read it
	default:
		app.complain(&bailey.Error{Kind: bailey.Unavailable, Message: err.Error(), Hint: app.after})
	}
	return codeOf(err)
}

func unwritten(err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "the output was not written", Hint: "look at where it goes", Err: err}
}

// ours are the words before --: what follows them belongs to a tool.
func ours(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

// signalCode is the exit code of a program that a signal ended, 0 for every other error.
func signalCode(err error) int {
	if errors.Is(err, wire.ErrUnreachable) {
		return 0
	}
	return terminal.SignalCode(err)
}

// app is what the verbs share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
	bare           bool   // the platform has no cage
	after          string // the hint when a signal ends the verb
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
	root.AddCommand(a.runVerb(), a.capabilitiesVerb(), a.toolsVerb(), a.serveVerb(), a.sessionVerb(), a.receiptsVerb(), a.auditVerb(),
		a.policyVerb(), a.budgetVerb(), a.killVerb(), a.resumeVerb(), a.agentVerb(), a.tokenVerb(),
		a.approvalsVerb(), a.approveVerb(), a.denyVerb(), a.grantsVerb(), a.notifyVerb(), a.tuiVerb(), a.judgeVerb(), a.shimVerb(),
		a.benchVerb(), a.gatewayVerb(), a.initVerb(), a.jailVerb(), a.wrapVerb(), a.packVerb(), a.profileVerb(), a.redactVerb(), a.hooksVerb(), a.statusVerb(), a.metricsVerb(), a.doctorVerb(), a.manVerb())
	groups(root)
	root.PersistentPreRunE = forInside
	return root
}

// saysWhy is false in scripts of the tests: on a busy machine a command waits, and a line
// that says why would be part of what it prints.
var saysWhy = true

// client reaches the gateway of the home and starts it when there is none.
func (a *app) client() (*wire.Client, error) {
	return wire.Here(spawn, func(s string) {
		if saysWhy {
			fmt.Fprintln(a.stderr, "bailey: "+s)
		}
	})
}

// look asks the gateway a question and prints the answer: as JSON, or in words.
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

// writeJSON writes one line of JSON in which nothing addresses a terminal.
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

// complain says what happened and what to do now.
func (a *app) complain(err error) {
	if a.json && a.print(map[string]any{"ok": false, "error": bailey.KindOf(err), "reason": err.Error(), "hint": bailey.HintOf(err)}) == nil {
		return // else somebody has to be told
	}
	a.say(string(bailey.KindOf(err)), err.Error(), bailey.HintOf(err))
}

func (a *app) say(what, why, hint string) { terminal.Say(a.stderr, what, why, hint) }

// codeOf maps an error that is not a call's result to an exit code.
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

// isUsage tells cobra's own complaints about words and flags, which have no kind.
func isUsage(err error) bool {
	var e *bailey.Error
	var path *os.PathError
	var sys syscall.Errno
	return !errors.As(err, &e) && !errors.As(err, &path) && !errors.As(err, &sys)
}
