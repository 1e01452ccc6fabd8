package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/redact"
	"bailey/internal/terminal"
)

// redactFlags holds the parsed arguments of `bailey redact`.
type redactFlags struct {
	session                string
	restore, report, lines bool
	resumed, yes           bool // --session is given, even if empty; --yes is given
	words                  []string
}

func (a *App) redactVerb() *cobra.Command {
	var r redactFlags
	cmd := &cobra.Command{
		Use: "redact", Short: "Replace secrets in a text by tokens, and restore them in the answer",
		Long: `Read a text from stdin and print it with tokens in place of secrets and addresses:
[REDACTED_PASSWORD_1], the same token for the same secret. The rest is unchanged, except for
a literal [REDACTED_, which gets a second underscore, so that it cannot be mistaken for a token.
At the end, stderr shows the number of hidden texts, the session that stores the map and the command that
restores them. Ctrl-C ends the input.

The map is only in the gateway's memory: for eight hours from its last use, while the gateway runs
and no newer ones need its space. --session continues a session, so that several files share their tokens.

--restore replaces tokens in stdin by their texts, if they are spelt exactly. It leaves other tokens and those
that are not of the session, and lists the first on stderr with their lines. It is an operator command: it
asks on the terminal, even if stdin and stdout are redirected, or needs BAILEY_OPERATOR=1 and --yes. The
ledger records it (redact.restore) before any output.

--report prints what would be hidden, by category, without any text; nothing is stored.

--jsonl reads lines of {"text":"…"} and answers each with {"text":"…","findings":[{"category":"…","start":0,
"end":9}]}: byte offsets into the input text. Other members of a line are left out, because they were not
redacted. If a line is malformed (a blank one too), or longer than 4 MiB, the command ends with its number and
exit code 2; earlier lines have their answers and their session. A newline at the end does not start a line.

With --json the messages are JSON: on stderr, since stdout is the text; with --report on stdout.

Secrets are recognised by their form or by the text before them; a password in a sentence is not. Check
the output before you pass it on.`,
		Example: "  bailey redact < app.log > clean.log\n  bailey redact --restore --session s-… < answer.txt\n  kubectl config view --raw | bailey redact --report",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.resumed, r.words, r.yes = cmd.Flags().Changed("session"), args, a.Yes
			return a.redactStdin(cmd.Context(), r)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.session, "session", "", "continue the session `ID`")
	f.BoolVar(&r.restore, "restore", false, "restore the texts of the session's tokens")
	f.BoolVar(&r.report, "report", false, "print what would be hidden instead of the text")
	f.BoolVar(&r.lines, "jsonl", false, `read lines of {"text":"…"}`)
	cmd.RegisterFlagCompletionFunc("session", cobra.NoFileCompletions)
	return a.YesFlag(cmd, "with --restore: do not ask for confirmation")
}

// buildQuery checks the combination of flags and returns the query.
func (r redactFlags) buildQuery() (localapi.RedactQuery, error) {
	q := localapi.RedactQuery{Mode: localapi.Hide, Session: bailey.SessionID(r.session)}
	why, cure := "", ""
	switch {
	case len(r.words) > 0:
		why, cure = "redact takes no arguments and reads stdin", "use: bailey redact < "+r.words[0]
	case r.resumed && r.session == "":
		why, cure = "--session is empty", "use the ID that bailey redact printed: --session s-…; omit it for a new session"
	case r.report && (r.restore || r.lines) || r.restore && r.lines:
		why, cure = "--report, --restore and --jsonl cannot be combined", "use one of them"
	case r.restore && r.session == "":
		why, cure = "--restore needs the session of the tokens", "give the ID that bailey redact printed: --session s-…"
	case r.report && r.session != "":
		why, cure = "--report cannot use a session: nothing is stored", "leave --session out"
	case r.yes && !r.restore:
		why, cure = "--yes needs --restore", "leave it out"
	case r.restore:
		q.Mode = localapi.Restore
	case r.report:
		q.Mode = localapi.Report
	case r.lines:
		q.Mode = localapi.Lines
	}
	if why != "" {
		return q, bailey.Invalid.New(why, cure)
	}
	return q, nil
}

// redactStdin streams standard input through the gateway, because the detectors and the maps exist only there.
func (a *App) redactStdin(ctx context.Context, r redactFlags) error {
	out := a.Stdout
	a.After = "" // no call is made
	if a.JSON && !r.report {
		a.Stdout = a.Stderr // for all messages, including errors
	}
	q, err := r.buildQuery()
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	var op localapi.Operator
	if r.restore {
		if op, err = a.mayRestore(ctx, c, q.Session); err != nil {
			return err
		}
	}
	if terminal.Is(os.Stdin) {
		fmt.Fprintln(a.Stderr, "bailey: reading from the terminal until Ctrl-D")
	}
	a.After = "the output is incomplete"
	flow, in, stop := endInputOnInterrupt(ctx, a.Stdin)
	defer stop()
	flow, stop = terminal.UntilSignal(flow, syscall.SIGPIPE) // also ends if the output is closed
	defer stop()
	done, err := apitype.Redact(flow, c, q, op, in, out)
	if err == nil || done.Fault != nil {
		err = cmp.Or(err, a.printSummary(r, done))
	}
	if err == nil && isInterrupted(ctx) {
		return Exit(128 + int(syscall.SIGINT))
	}
	return err
}

// printSummary prints the summary.
func (a *App) printSummary(r redactFlags, done apitype.Redacted) error {
	switch {
	case r.report:
		return a.printFound(done)
	case r.restore:
		return a.printRestored(done)
	}
	return a.printHidden(done)
}

// mayRestore checks that the session exists and asks a person for confirmation.
func (a *App) mayRestore(ctx context.Context, c *localapi.Client, id bailey.SessionID) (localapi.Operator, error) {
	s, err := apitype.ShowKeptSession.Ask(ctx, c, apitype.KeptQuery{Session: id})
	if err != nil {
		return "", err
	}
	question := fmt.Sprintf("Restore the tokens of session %s (%s)?", terminal.Shown(string(id)),
		apitype.Counts(s.Texts, "text"))
	return a.OperatorBeside(ctx, "redact --restore", question, "nothing was restored")
}

// endInputOnInterrupt treats the first Ctrl-C as the end of the input. So `tail -f | bailey redact`, for example, still
// prints its summary and session; without the session the output could not be restored. The next signal, or any other
// first signal, ends the stream.
func endInputOnInterrupt(ctx context.Context, in io.Reader) (context.Context, io.Reader, func()) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	undo := context.AfterFunc(ctx, func() {
		if !isInterrupted(ctx) {
			cancel(context.Cause(ctx))
			return
		}
		next, _ := terminal.UntilSignal(inner, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		context.AfterFunc(next, func() { cancel(context.Cause(next)) })
		w.Close()
	})
	return inner, r, func() { undo(); cancel(nil) }
}

// isInterrupted reports whether Ctrl-C ended ctx.
func isInterrupted(ctx context.Context) bool {
	var s terminal.Signal
	return errors.As(context.Cause(ctx), &s) && s.Number == syscall.SIGINT
}

// printHidden prints the number of redacted values and the command that restores them.
func (a *App) printHidden(r apitype.Redacted) error {
	back := ""
	if r.Session != "" {
		back = "bailey redact --restore --session " + string(r.Session)
	}
	if a.JSON {
		return a.Print(struct {
			OK bool `json:"ok"`
			apitype.Redacted
			Restore string `json:"restore,omitempty"`
		}{r.Fault == nil, r, back})
	}
	var parts []string
	for _, h := range r.Categories {
		part := fmt.Sprintf("%d %s", h.Finds, h.Category)
		if h.Distinct < h.Finds {
			part += fmt.Sprintf(" (%d different)", h.Distinct)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		fmt.Fprintln(a.Stderr, "bailey: found nothing to hide")
	} else {
		fmt.Fprintf(a.Stderr, "bailey: %d hidden: %s\n", r.Hidden, strings.Join(parts, ", "))
	}
	if r.Escaped > 0 {
		fmt.Fprintf(a.Stderr, "  %s escaped\n", apitype.Counts(r.Escaped, "literal token"))
	}
	if r.Lost > 0 {
		fmt.Fprintf(a.Stderr, "  %d of them cannot be restored: a session stores %d texts, of %d MiB in total\n",
			r.Lost, redact.MaxEntries, redact.MaxBytes>>20)
	}
	if back != "" {
		fmt.Fprintf(a.Stderr, "  to restore them in an answer: %s\n", back)
	}
	return nil
}

func (a *App) printRestored(r apitype.Redacted) error {
	if a.JSON {
		return a.Print(struct {
			OK       bool             `json:"ok"`
			Session  bailey.SessionID `json:"session"`
			Restored int              `json:"restored"`
			Left     int              `json:"left"`
			Missed   []redact.Miss    `json:"missed,omitempty"`
		}{true, r.Session, r.Restored, r.Left, r.Missed})
	}
	fmt.Fprintf(a.Stderr, "bailey: %s restored\n", apitype.Counts(r.Restored, "token"))
	if r.Left == 0 {
		return nil
	}
	as := "they are"
	if r.Left == 1 {
		as = "it is"
	}
	fmt.Fprintf(a.Stderr, "  %s left as %s\n", apitype.Counts(r.Left, "token"), as)
	for _, m := range r.Missed {
		why := "is not an exact token; correct it, or ask the model to copy tokens exactly"
		if m.Spelt {
			why = "is not a token of this session"
		}
		fmt.Fprintf(a.Stderr, "  not restored: line %d %s %s\n", m.Line, terminal.Shown(m.Text), why)
	}
	if more := r.Left - len(r.Missed); more > 0 {
		fmt.Fprintf(a.Stderr, "  and %d more\n", more)
	}
	return nil
}

func (a *App) printFound(r apitype.Redacted) error {
	if a.JSON {
		return a.Print(struct {
			OK         bool             `json:"ok"`
			Found      int              `json:"found"`
			Categories []apitype.Hidden `json:"categories"`
		}{true, r.Hidden, r.Categories})
	}
	if r.Hidden == 0 {
		_, err := fmt.Fprintln(a.Stdout, "found nothing to hide")
		return err
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "category\tmatches\tdistinct\tfirst line\t")
	for _, h := range r.Categories {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", h.Category, h.Finds, h.Distinct, h.Line)
	}
	return w.Flush()
}
