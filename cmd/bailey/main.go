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
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
)

// version is set by releases (-ldflags "-X main.version=…").
var version = "dev"

// Exit codes (design.md, section 2).
const (
	exitOK          = 0
	exitDenied      = 1
	exitInput       = 2 // bad input, or an approval is needed
	exitTool        = 3 // the tool failed; its own code is in the result
	exitNoMatch     = 126
	exitUnreachable = 127
)

// exit is an error that ends the program with a code after everything has been said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(ctx, stop, os.Args[1:]))
}

func run(ctx context.Context, stop func(), args []string) int {
	defer stop()
	app := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	root := app.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	app.complain(err)
	return codeOf(err)
}

// app is what the verbs share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "bailey",
		Short:         "The gate between AI agents and everything they could break",
		Version:       version,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &bailey.Error{Kind: bailey.Invalid, Message: err.Error(), Hint: "bailey help lists verbs and flags"}
	})
	root.AddCommand(a.runVerb(), a.capabilitiesVerb(), a.serveVerb(), a.receiptsVerb(), a.auditVerb(),
		a.policyVerb(), a.benchVerb(), a.gatewayVerb())
	return root
}

// client reaches the gateway of the home and starts it when there is none.
func (a *app) client() (*gateway.Client, error) {
	home, err := gateway.FindHome()
	if err != nil {
		return nil, err
	}
	return &gateway.Client{Home: home, Start: spawn, Progress: func(s string) { fmt.Fprintln(a.stderr, "bailey: "+s) }}, nil
}

// look asks the gateway a question and prints the answer: as JSON, or in words.
func look[T any](ctx context.Context, a *app, q gateway.Query, inWords func(T)) error {
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

func (a *app) print(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// complain says what happened and what to do now.
func (a *app) complain(err error) {
	if a.json {
		a.print(map[string]any{"ok": false, "error": bailey.KindOf(err), "reason": err.Error(), "hint": bailey.HintOf(err)})
		return
	}
	a.say(string(bailey.KindOf(err)), err.Error(), bailey.HintOf(err))
}

func (a *app) say(what, why, hint string) {
	fmt.Fprintf(a.stderr, "bailey: %s: %s\n", what, why)
	if hint != "" {
		fmt.Fprintf(a.stderr, "  %s\n", hint)
	}
}

// codeOf maps an error that is not a call's result to an exit code.
func codeOf(err error) int {
	switch {
	case errors.Is(err, gateway.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, context.Canceled):
		return 128 + int(syscall.SIGINT)
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
