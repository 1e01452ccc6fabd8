package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

// Operator commands change how the gate behaves. No interface for agents offers them, and the command line requires
// either a terminal on standard input and output, or both BAILEY_OPERATOR=1 and --yes. A process with the user's uid
// can fake both: this protects only against accidents.

// OperatorVerb makes cmd an operator command: it says so in the help, and adds the flag --yes.
func (a *App) OperatorVerb(cmd *cobra.Command) *cobra.Command {
	cmd.Long += "\n\nThis is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes."
	return a.YesFlag(cmd, "do not ask for confirmation")
}

// YesFlag adds the flag --yes.
func (a *App) YesFlag(cmd *cobra.Command, usage string) *cobra.Command {
	cmd.Flags().BoolVar(&a.Yes, "yes", false, usage)
	return cmd
}

// Operator returns the right by which an operator command may run (terminal or environment), or an error.
func (a *App) Operator(verb string) (localapi.Operator, error) {
	switch {
	case localapi.Inside() != "":
		return "", staysOutside(verb)
	case os.Getenv("BAILEY_OPERATOR") == "1" && a.Yes:
		return localapi.Env, nil
	case terminal.Is(os.Stdin) && terminal.Is(os.Stdout):
		return localapi.Terminal, nil
	case os.Getenv("BAILEY_OPERATOR") == "1":
		return "", noYes(verb)
	}
	return "", bailey.Denied.Errorf("use it in a terminal, with input and output not redirected; in your own script set BAILEY_OPERATOR=1 and give --yes",
		"%s needs a person at a terminal, and this is not one: %s", verb, noTerminal())
}

// noYes is the error for a script that sets BAILEY_OPERATOR=1 without --yes.
func noYes(verb string) error {
	return bailey.Denied.New(verb+" needs --yes with BAILEY_OPERATOR=1, and --yes is missing",
		"give --yes; there is no terminal for the confirmation")
}

// noTerminal says which standard stream is not a terminal.
func noTerminal() string {
	switch in, out := terminal.Is(os.Stdin), terminal.Is(os.Stdout); {
	case in && !out:
		return "stdout is redirected"
	case out && !in:
		return "stdin is redirected"
	}
	return "stdin and stdout are redirected"
}

// OperatorClient returns the right to an operator command and the client that sends it.
func (a *App) OperatorClient(verb string) (op localapi.Operator, c *localapi.Client, err error) {
	if op, err = a.Operator(verb); err != nil {
		return op, nil, err
	}
	c, err = a.Client()
	return op, c, err
}

// Operate sends a command to the gateway, after the operator has answered the question, if there is one. words is the
// command as the user types it.
func Operate[Request, Answer any](ctx context.Context, a *App, words string, e localapi.Endpoint[Request, Answer],
	r Request, question string) (out Answer, err error) {
	op, c, err := a.OperatorClient(words)
	if err == nil && question != "" {
		err = a.Confirm(ctx, question)
	}
	if err != nil {
		return out, err
	}
	return e.Do(ctx, c, op, r)
}

// propose compares what an operator command would change, shows the difference, asks the question, and applies the change.
// words is the command as the user types it. differs reports whether there is a difference to ask about, with its summary
// and the request that makes the change; without a request nothing is sent.
func propose[Request, Change, Proposal any](ctx context.Context, a *App, words, question string,
	compare localapi.Endpoint[Request, Proposal], r Request, apply localapi.Endpoint[Change, Proposal],
	differs func(Proposal) (differs bool, summary string, change *Change), result func(Proposal) string) error {
	op, c, err := a.OperatorClient(words)
	if err != nil {
		return err
	}
	seen, err := compare.Ask(ctx, c, r)
	if err != nil {
		return err
	}
	ask, summary, change := differs(seen)
	if ask {
		a.Explain(summary)
		if err := a.Confirm(ctx, question); err != nil {
			return err
		}
	}
	if change != nil {
		if seen, err = apply.Do(ctx, c, op, *change); err != nil {
			return err
		}
	}
	return a.PrintLine(seen, "%s\n", result(seen))
}

// changeIf returns the request if something differs, else nil.
func changeIf[Change any](differs bool, change Change) *Change {
	if !differs {
		return nil
	}
	return &change
}

// OperatorBeside is like Operator, for a command whose standard input and output carry data. The person must confirm on
// the controlling terminal of the process; the default answer is no. Without such a terminal it returns an error.
func (a *App) OperatorBeside(ctx context.Context, verb, question, otherwise string) (localapi.Operator, error) {
	if os.Getenv("BAILEY_OPERATOR") == "1" && a.Yes {
		return localapi.Env, nil
	}
	tty, err := terminal.Controlling()
	switch {
	case err == nil && terminal.Is(tty):
	case os.Getenv("BAILEY_OPERATOR") == "1":
		return "", noYes(verb)
	default:
		return "", bailey.Denied.New(verb+" needs a person at a terminal, and there is no terminal",
			"use it in a terminal; in your own script set BAILEY_OPERATOR=1 and give --yes")
	}
	defer tty.Close()
	return localapi.Terminal, askYesNo(ctx, tty, tty, tty, question, otherwise)
}

// Explain prints what the operator is asked about. With --yes and --json the output has it.
func (a *App) Explain(text string) {
	if !a.Yes || !a.JSON {
		fmt.Fprint(a.Dialog(), text)
	}
}

// Confirm asks the person at standard input and output, unless --yes is given.
func (a *App) Confirm(ctx context.Context, question string) error {
	if a.Yes {
		return nil
	}
	return askYesNo(ctx, os.Stdin, a.Stdin, a.Dialog(), question, "nothing was changed")
}

// askYesNo asks a question. The answer is yes only if y or yes and Enter are typed.
func askYesNo(ctx context.Context, tty *os.File, in io.Reader, out io.Writer, question, otherwise string) error {
	word, err := askWord(ctx, tty, in, out, question)
	if err == nil && !isYes(word) {
		err = errNotConfirmed(otherwise)
	}
	return err
}

func isYes(word string) bool { return word == "y" || word == "yes" }

// errNotConfirmed is the error after a no. otherwise says what that means.
func errNotConfirmed(otherwise string) error {
	return bailey.Denied.New("not confirmed: "+otherwise, "")
}

// askWord asks a question and returns the typed word in lower case. Escape, the end of the input and any other key mean "".
// Input that was typed before the question is discarded.
func askWord(ctx context.Context, tty *os.File, in io.Reader, out io.Writer, question string) (string, error) {
	restore := terminal.OneByOne(tty)
	defer restore()
	fmt.Fprintf(out, "%s [y/N] ", question)
	said := make(chan string, 1)
	go func() { said <- readAnswer(in, out) }()
	var word string
	select {
	case word = <-said:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	fmt.Fprintln(out)
	return strings.ToLower(word), nil
}

// Dialog returns the stream for dialogs, which must not be mixed with JSON.
func (a *App) Dialog() io.Writer {
	if a.JSON {
		return a.Stderr
	}
	return a.Stdout
}

// readAnswer reads a line key by key and echoes it. It returns "" on Escape and at the end of the input.
func readAnswer(in io.Reader, echo io.Writer) string {
	const escape, endOfText, backspace, del = 0x1b, 0x04, 0x08, 0x7f
	var word []byte
	key := make([]byte, 1)
	for {
		if n, err := in.Read(key); n == 0 || err != nil {
			return ""
		}
		switch k := key[0]; {
		case k == escape || k == endOfText:
			return ""
		case k == '\n' || k == '\r':
			return string(word)
		case k == backspace || k == del:
			if len(word) > 0 {
				word = word[:len(word)-1]
				io.WriteString(echo, "\b \b")
			}
		case k >= ' ' && k < del && len(word) < 16:
			word = append(word, k)
			echo.Write(key)
		default:
			return "" // not part of a valid answer
		}
	}
}
