// Package cli is the command line: the commands, their questions and their output. Each command has its own file, in
// which it is declared and does its work: it asks the gateway, or a package without state. Commands that need the jail
// or the ledger in their own process are in package direct.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
	"bailey/pack"
)

// Exit is an error that ends the program with this exit code. All messages must have been printed before.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Main runs the command line with the arguments of the process, and exits. work does what needs no gateway; bare says
// that the platform has no isolation.
func Main(work Local, bare bool) {
	ctx, stop := untilSignal()
	os.Exit(Run(ctx, stop, work, bare, os.Args[1:]))
}

// MainOf is Main for another program with commands of its own, which needs no gateway of its version.
func MainOf(commands func(*App) *cobra.Command) {
	ctx, stop := untilSignal()
	os.Exit(runProgram(ctx, stop, &App{}, commands, os.Args[1:]))
}

func untilSignal() (context.Context, func()) {
	return terminal.UntilSignal(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// Run runs one command and returns its exit code. It calls stop at the end.
func Run(ctx context.Context, stop func(), work Local, bare bool, args []string) int {
	app := &App{Local: work, Bare: bare, After: "bailey receipts list shows the outcome of an open call"}
	return runProgram(ctx, stop, app, (*App).Root, args)
}

func runProgram(ctx context.Context, stop func(), app *App, commands func(*App) *cobra.Command, args []string) int {
	defer stop()
	out := &errWriter{w: os.Stdout}
	app.Stdin, app.Stdout, app.Stderr = os.Stdin, out, os.Stderr
	root := commands(app)
	root.SetArgs(args)
	// only for completion, so that no other start waits for it
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		app.setUpCompletion(root)
	}
	app.JSON = slices.Contains(ownArgs(args), "--json") // set here too, for the case that the arguments cannot be parsed
	err := root.ExecuteContext(ctx)
	if out.err != nil && (err == nil || errors.Is(err, out.err)) {
		err = outputError(out.err)
	}
	var code Exit
	switch {
	case err == nil:
		return apitype.ExitOK
	case errors.As(err, &code):
		if out.err != nil {
			app.PrintError(outputError(out.err))
		}
		return int(code)
	}
	switch SignalCode(err) {
	case 0:
		err = Worded(err)
		app.PrintError(err)
	case 128 + int(syscall.SIGPIPE): // no reader for a message
	default:
		app.PrintError(bailey.Unavailable.New(err.Error(), app.After))
	}
	return codeOf(err)
}

func outputError(err error) error {
	return bailey.Unavailable.Wrap(err, "cannot write the output", "check where the output goes")
}

// ownArgs returns the arguments before --. The arguments after it belong to a tool.
func ownArgs(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

// SignalCode returns the exit code of a program that was ended by a signal, or 0 for every other error.
func SignalCode(err error) int {
	if errors.Is(err, localapi.ErrUnreachable) {
		return 0
	}
	return terminal.SignalCode(err)
}

// App is the state that all commands share.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	JSON           bool
	Yes            bool // an operator command does not ask
	Local          Local
	Bare           bool   // the platform has no isolation
	After          string // the hint if a signal ends the command
}

// NewRoot returns a root command without subcommands, whose errors and flags are those of all programs of Bailey.
func (a *App) NewRoot(use, short string) *cobra.Command {
	root := &cobra.Command{Use: use, Short: short, Version: apitype.Version, SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return bailey.Invalid.New(plainFlag(err.Error()), "run bailey help for commands and flags")
	})
	return root
}

// Root returns the table of all commands of bailey.
func (a *App) Root() *cobra.Command {
	root := a.NewRoot("bailey", "The gate between AI agents and everything they could break")
	root.AddCommand(a.runVerb(), a.capabilitiesVerb(), a.toolsVerb(), a.serveVerb(), a.sessionVerb(), a.modelVerb(), a.receiptsVerb(),
		a.policyVerb(), a.budgetVerb(), a.killVerb(), a.resumeVerb(), a.agentVerb(), a.tokensVerb(),
		a.allowVerb(), a.denyRuleVerb(), a.approvalsVerb(), a.approveVerb(), a.denyVerb(), a.grantsVerb(), a.notifyVerb(), a.teamVerb(), a.enrollVerb(), a.unenrollVerb(), a.tuiVerb(), a.judgeVerb(),
		a.shimVerb(),
		a.benchVerb(), a.initVerb(), a.packVerb(), a.profileVerb(), a.redactVerb(), a.hooksVerb(), a.sandboxVerb(), a.sourceVerb(), a.sshCAVerb(), a.statusVerb(), a.metricsVerb(), a.manVerb())
	a.Local.Add(a, root)
	groupCommands(root)
	Groups(root)
	root.PersistentPreRunE = ForInside
	return root
}

// commandGroups is the order of the commands in the help: twelve for every day, then the others by subject.
var commandGroups = []struct{ title, commands string }{
	{"Everyday commands:", "init doctor status run capabilities wrap approvals approve deny receipts kill resume"},
	{"Rules and packs:", "allow deny-rule policy pack profile hooks shim source image sandbox ssh-ca"},
	{"Agents and their interfaces:", "agent token session serve model judge tools"},
	{"People:", "grants notify tui team enroll unenroll"},
	{"Records and secrets:", "audit broker budget metrics redact"},
	{"This machine:", "gateway jail bench man completion help"},
}

func groupCommands(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range strings.Fields(g.commands) {
			for _, c := range root.Commands() {
				if c.Name() == name {
					c.GroupID = g.title
				}
			}
		}
	}
	last := commandGroups[len(commandGroups)-1].title
	root.SetHelpCommandGroupID(last)
	root.SetCompletionCommandGroupID(last)
}

// SaysWhy is "no" in programs that tests build (go build -ldflags "-X bailey/internal/cli.SaysWhy=no"). On a busy
// machine a command may have to wait for the gateway, and a line with the reason would become part of the output that
// the tests compare.
var SaysWhy = "yes"

// Client connects to the gateway of the home and starts one if none is running.
func (a *App) Client() (*localapi.Client, error) {
	return localapi.Here(spawnGateway, func(s string) {
		if SaysWhy == "yes" {
			fmt.Fprintln(a.Stderr, "bailey: "+s)
		}
	})
}

// Ask sends a request to the gateway and returns its answer.
func Ask[Request, Answer any](ctx context.Context, a *App, e localapi.Endpoint[Request, Answer], r Request) (out Answer,
	err error) {
	c, err := a.Client()
	if err != nil {
		return out, err
	}
	return e.Ask(ctx, c, r)
}

// Show sends a request to the gateway and prints the answer, as JSON or with inWords.
func Show[Request, Answer any](ctx context.Context, a *App, e localapi.Endpoint[Request, Answer], r Request,
	inWords func(io.Writer, Answer)) error {
	answer, err := Ask(ctx, a, e, r)
	if err != nil {
		return err
	}
	return PrintAnswer(a, answer, inWords)
}

// PrintAnswer prints v, as JSON or with inWords.
func PrintAnswer[Answer any](a *App, v Answer, inWords func(io.Writer, Answer)) error {
	if a.JSON {
		return a.Print(v)
	}
	inWords(a.Stdout, v)
	return nil
}

// PrintLine prints v as JSON, or else the text that format describes.
func (a *App) PrintLine(v any, format string, args ...any) error {
	return PrintAnswer(a, v, func(w io.Writer, _ any) { fmt.Fprintf(w, format, args...) })
}

// ExitUnless returns err or, if the command was carried out but its result is not ok, the exit code.
func ExitUnless(ok bool, code Exit, err error) error {
	if err == nil && !ok {
		return code
	}
	return err
}

// PrintTable prints rows in columns, below the names of the columns, which a tab separates, unless there are none. cells
// returns the cells of a row, or nil to leave it out. A cell may contain another line, as [CureLine] returns it.
func PrintTable[Row any](w io.Writer, columns string, rows []Row, cells func(Row) []any) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	if columns != "" {
		fmt.Fprintln(t, columns)
	}
	for _, row := range rows {
		if list := cells(row); list != nil {
			fmt.Fprintf(t, strings.TrimSuffix(strings.Repeat("%v\t", len(list)), "\t")+"\n", list...)
		}
	}
}

// CureLine returns a line of a table with a cure in the third column, or "" without a cure.
func CureLine(cure string) string {
	if cure == "" {
		return ""
	}
	return "\n\t\t→ " + terminal.Shown(cure)
}

// GroupVerb returns a command that only has subcommands.
func GroupVerb(use, short, long string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	cmd.AddCommand(verbs...)
	return cmd
}

// QueryVerb makes cmd send a request to the gateway and print the answer, as JSON or with inWords. request makes the
// request of the arguments; if it is nil, there are no arguments, and the request is empty.
func QueryVerb[Request, Answer any](a *App, cmd *cobra.Command, e localapi.Endpoint[Request, Answer],
	request func(args []string) (Request, error), inWords func(io.Writer, Answer)) *cobra.Command {
	if request == nil {
		cmd.Args, request = cobra.NoArgs, func([]string) (r Request, err error) { return r, nil }
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := request(args)
		if err != nil {
			return err
		}
		return Show(cmd.Context(), a, e, r, inWords)
	}
	return cmd
}

// OneID is the request about the object that the only argument names.
func OneID(args []string) (apitype.ID, error) { return apitype.ID{ID: args[0]}, nil }

// Print writes v to Stdout as one line of JSON, with characters that could control a terminal escaped.
func (a *App) Print(v any) error { return writeJSON(a.Stdout, v) }

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

// PrintError prints an error and its hint.
func (a *App) PrintError(err error) {
	if a.JSON && a.Print(map[string]any{"ok": false, "error": bailey.KindOf(err), "reason": err.Error(), "hint": bailey.HintOf(err)}) == nil {
		return // otherwise use standard error
	}
	a.Say(string(bailey.KindOf(err)), err.Error(), bailey.HintOf(err))
}

// Say writes an event, its reason and, if it is not empty, a hint to Stderr.
func (a *App) Say(what, why, hint string) { terminal.Say(a.Stderr, what, why, hint) }

// codeOf maps an error that is not the result of a call to an exit code.
func codeOf(err error) int {
	switch code := SignalCode(err); {
	case code != 0:
		return code
	case errors.Is(err, localapi.ErrUnreachable):
		return apitype.ExitUnreachable
	case errors.Is(err, bailey.Invalid):
		return apitype.ExitInput
	case bailey.KindOf(err) == bailey.Internal && isUsage(err):
		return apitype.ExitInput
	}
	return apitype.ExitDenied
}

// isUsage reports whether err is one of cobra's own errors about arguments and flags. They have no kind.
func isUsage(err error) bool {
	var e *bailey.Error
	var path *os.PathError
	var sys syscall.Errno
	return !errors.As(err, &e) && !errors.As(err, &path) && !errors.As(err, &sys)
}

// Local is the work that commands do in their own process instead of asking the gateway. cmd/bailey passes the
// implementation, so that this package links neither the jail nor the ledger.
type Local interface {
	// Add adds the commands that work this way to the table of commands.
	Add(a *App, root *cobra.Command)
	// Begun reports whether the directory holds a ledger.
	Begun(dir string) bool
	// Ledger opens a ledger: if copied, a copy from another place, whose last line may be cut off.
	Ledger(a *App, dir string, copied bool) (ReceiptReader, error)
	// Catalog returns the packs that a gateway of the home would use, and what is wrong with packs and keys.
	Catalog(home localapi.Home) (*pack.Catalog, []packstore.Finding, error)
	// Verify verifies the ledger of the home, as bailey audit verify does, and prints the verdict.
	Verify(ctx context.Context, a *App) error
}

// ReceiptReader reads the receipts of a ledger from its files.
type ReceiptReader interface {
	Find(ctx context.Context, f receipts.Filter) (receipts.Page, error)
	Each(ctx context.Context, f receipts.Filter, begin func(origin string, head audit.Head) error,
		do func(receipts.Record) error) error
	Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error)
	Close()
}

// insideVerbs are the commands that are available inside the agent jail.
var insideVerbs = []string{"run", "serve", "capabilities", "search", "judge", "status", "help", "completion",
	"__complete", "__completeNoDesc"}

// AgentVerbs are the commands that an agent may use outside the agent jail, where its hook asks. They call, query or
// stop. All others require operator rights.
var AgentVerbs = []string{"run", "capabilities", "serve", "status", "doctor", "metrics", "kill", "deny", "judge",
	"help", "completion", "session",
	"receipts list", "receipts show", "receipts report", "approvals list", "approvals show", "audit verify",
	"policy check", "policy explain", "policy show",
	"budget", "jail explain", "pack list", "pack show", "shim list", "shim activate", "shim check", "source check", "source list", "source show", "source run", "source read", "image list", "image show",
	"sandbox create", "sandbox list", "sandbox show", "sandbox exec", "sandbox start", "sandbox stop", "sandbox pause", "sandbox snapshot",
	"sandbox snapshots", "sandbox restore", "sandbox branch", "sandbox extend",
	"enroll status", "sandbox diff", "sandbox export", "sandbox verify", "sandbox destroy"}

// TopVerbs returns the names of all top-level commands, from the command table.
func (a *App) TopVerbs() (names []string) {
	for _, cmd := range a.Root().Commands() {
		names = append(names, cmd.Name())
	}
	return names
}

// ForInside refuses every other command inside the agent jail. It must run before any effect.
func ForInside(cmd *cobra.Command, _ []string) error {
	words := strings.Fields(cmd.CommandPath())
	if localapi.Inside() == "" || len(words) < 2 || slices.Contains(insideVerbs, words[1]) {
		return nil
	}
	return staysOutside(strings.Join(words[1:], " "))
}

func staysOutside(verb string) error {
	return bailey.Denied.Errorf("inside the agent jail, use bailey run, serve and capabilities; other commands are for a person in a terminal outside",
		"bailey %s: operator commands are refused inside the agent jail", verb)
}

// errWriter remembers write errors, because a command whose output was lost must not report success.
type errWriter struct {
	w   io.Writer
	err error
}

func (s *errWriter) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// Groups makes a command that only has subcommands reject unknown ones. Otherwise a misspelled subcommand, for example
// in a script, would print the help and succeed.
func Groups(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		Groups(c)
	}
	if !cmd.HasSubCommands() || cmd.RunE != nil {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cmd.HasParent() {
			return cmd.Help()
		}
		return unknownVerb(cmd, args)
	}
}

func unknownVerb(cmd *cobra.Command, args []string) error {
	var verbs []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	slices.Sort(verbs)
	hint := cmd.CommandPath() + " has " + strings.Join(verbs, ", ")
	if len(args) == 0 {
		return bailey.Invalid.New(cmd.CommandPath()+" needs a subcommand", hint)
	}
	if !cmd.HasParent() && strings.Contains(args[0], ".") {
		hint = "to call a capability, use: bailey run " + args[0]
	}
	if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		hint = "did you mean " + strings.Join(close, ", ") + "?"
	}
	return bailey.Invalid.Errorf(hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

// plainFlag removes the name of the Go parser from the error for an invalid flag value.
func plainFlag(why string) string {
	what, _, found := strings.Cut(why, ": strconv.")
	if !found {
		return why
	}
	return what + ": the value has the wrong type for this flag"
}

// Worded adds a kind and a hint to cobra's own errors about arguments and flags.
func Worded(err error) error {
	if err == nil || bailey.KindOf(err) != bailey.Internal || !isUsage(err) {
		return err
	}
	return bailey.Invalid.New(err.Error(), "run bailey help for commands and flags")
}

// benchProgram is the name of the program with the benchmarks.
const benchProgram = "bailey-bench"

// benchVerb starts bailey-bench, which is a program of its own so that the benchmarks are no part of the product.
func (a *App) benchVerb() *cobra.Command {
	return &cobra.Command{
		Use: "bench", Short: "Measure the gate on this machine", DisableFlagParsing: true,
		Long: `Measure the gate on this machine. The benchmarks are in a separate program, bailey-bench, which this
command starts with all its arguments: see bailey bench --help.`,
		RunE: func(_ *cobra.Command, args []string) error { return a.execBench(args) },
	}
}

func (a *App) execBench(args []string) error {
	program, err := ProgramBeside(benchProgram)
	if err != nil {
		return bailey.NotFound.Wrap(err, "cannot start "+benchProgram,
			"Install it beside bailey: go install bailey/cmd/bailey-bench")
	}
	return execProgram(program, append([]string{benchProgram}, args...))
}

// ProgramBeside returns the absolute path of another program of Bailey: the one beside this program, whose version is the
// same, or else the one in PATH.
func ProgramBeside(name string) (string, error) {
	name += programSuffix
	self, _ := os.Executable() // "" if unknown
	for _, path := range []string{self, os.Args[0]} {
		dir, _ := filepath.Split(path)
		if dir == "" { // a bare name was found in PATH; the current directory may be an agent's
			continue
		}
		if beside := filepath.Join(dir, name); isFile(beside) {
			return filepath.Abs(beside)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
