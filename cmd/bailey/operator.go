package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"bailey/internal/terminal"
	"bailey/internal/wire"

	"bailey"
)

// The frame of operator verbs: they change what the gate does, so no agent's door reaches them, and the
// command line wants a terminal on stdin and stdout, or BAILEY_OPERATOR=1 together with --yes. Who
// holds the user's uid can pretend both: this guards against accident.

// operator says by what right an operator verb may go on, or refuses it.
func (a *app) operator(verb string, yes bool) (wire.Operator, error) {
	switch {
	case wire.Inside() != "":
		return "", staysOutside(verb)
	case os.Getenv("BAILEY_OPERATOR") == "1" && yes:
		return wire.Env, nil
	case terminal.Is(os.Stdin) && terminal.Is(os.Stdout):
		return wire.Terminal, nil
	case os.Getenv("BAILEY_OPERATOR") == "1":
		return "", noYes(verb)
	}
	return "", &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s is for a person at a terminal, and this is none: %s", verb, noTerminal()),
		Hint: "use it in a terminal, its input and output not redirected; in a script of your own set BAILEY_OPERATOR=1 and give --yes, both"}
}

// noYes is for a script that says one half.
func noYes(verb string) error {
	return &bailey.Error{Kind: bailey.Denied, Message: verb + " wants --yes beside BAILEY_OPERATOR=1, and --yes is missing", Hint: "give --yes; there is no terminal to ask on"}
}

// noTerminal names the stream that is not one.
func noTerminal() string {
	switch in, out := terminal.Is(os.Stdin), terminal.Is(os.Stdout); {
	case in && !out:
		return "stdout leads elsewhere"
	case out && !in:
		return "stdin comes from elsewhere"
	}
	return "neither stdin nor stdout is one"
}

// act asks the gateway for an operator verb.
func act(ctx context.Context, c *wire.Client, op wire.Operator, verb string, args map[string]any, out any) error {
	return c.Look(ctx, wire.Query{Verb: verb, Args: args, Operator: op}, out)
}

// operate asks the gateway for an operator verb, once the operator has said so.
func (a *app) operate(ctx context.Context, words, verb string, args map[string]any, yes bool, question string, out any) error {
	op, err := a.operator(words, yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if !yes {
		if err := a.confirm(ctx, question); err != nil {
			return err
		}
	}
	return act(ctx, c, op, verb, args, out)
}

// operatorBeside is operator for a verb whose stdin and stdout carry its data: a person confirms on the terminal that
// controls the process, wherever those lead, and no is the default. Nobody there to ask is a refusal.
func operatorBeside(ctx context.Context, verb, question, otherwise string, yes bool) (wire.Operator, error) {
	if os.Getenv("BAILEY_OPERATOR") == "1" && yes {
		return wire.Env, nil
	}
	tty, err := terminal.Controlling()
	switch {
	case err == nil && terminal.Is(tty):
	case os.Getenv("BAILEY_OPERATOR") == "1":
		return "", noYes(verb)
	default:
		return "", &bailey.Error{Kind: bailey.Denied, Message: verb + " is for a person at a terminal, and there is none to ask on",
			Hint: "use it in a terminal; in a script of your own set BAILEY_OPERATOR=1 and give --yes, both"}
	}
	defer tty.Close()
	return wire.Terminal, ask(ctx, tty, tty, tty, question, otherwise)
}

// confirm asks the person at stdin and stdout.
func (a *app) confirm(ctx context.Context, question string) error {
	return ask(ctx, os.Stdin, a.stdin, a.dialog(), question, "nothing was changed")
}

// ask asks a question whose answer is No but for y or yes and Enter. Escape, the end of the input
// and whatever else is typed are No; what was typed before the question does not count.
func ask(ctx context.Context, tty *os.File, in io.Reader, out io.Writer, question, otherwise string) error {
	restore := terminal.OneByOne(tty)
	defer restore()
	fmt.Fprintf(out, "%s [y/N] ", question)
	said := make(chan string, 1)
	go func() { said <- answer(in, out) }()
	var word string
	select {
	case word = <-said:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	fmt.Fprintln(out)
	if word = strings.ToLower(word); word != "y" && word != "yes" {
		return &bailey.Error{Kind: bailey.Denied, Message: "not confirmed: " + otherwise}
	}
	return nil
}

// dialog is where a person reads: beside the JSON, never in it.
func (a *app) dialog() io.Writer {
	if a.json {
		return a.stderr
	}
	return a.stdout
}

// answer reads a line key by key and echoes it; "" is what Escape and the end of the input make of it.
func answer(in io.Reader, echo io.Writer) string {
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
			return "" // no letter of an answer
		}
	}
}

// difference shows what changes between two texts: the lines between their common beginning and end.
func difference(old, now string) string {
	a, b := splitLines(old), splitLines(now)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out strings.Builder
	for _, l := range a {
		whole(&out, '-', l)
	}
	for _, l := range b {
		whole(&out, '+', l)
	}
	return out.String()
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// lineWidth is how much of a line, in characters, stands in one line of a terminal.
const lineWidth = 300

// whole shows a line that comes or goes, a long one in pieces: what is confirmed unseen could say anything.
func whole(out *strings.Builder, sign byte, line string) {
	rest := []rune(escaped(line))
	for mark := " "; ; mark = "…" {
		n := min(len(rest), lineWidth)
		fmt.Fprintf(out, "  %c%s%s\n", sign, mark, string(rest[:n]))
		if rest = rest[n:]; len(rest) == 0 {
			return
		}
	}
}

// visible is a line as a terminal may show it, and it ends.
func visible(line string) string {
	if r := []rune(escaped(line)); len(r) > lineWidth {
		return string(r[:lineWidth]) + "…"
	}
	return escaped(line)
}

// escaped is a line of which nothing moves the cursor or hides.
func escaped(line string) string {
	var out strings.Builder
	for _, r := range line {
		if r == '\t' || r == ' ' || unicode.IsGraphic(r) && !blank(r) {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, "\\u%04x", r)
		}
	}
	return out.String()
}

// blank tells of characters that are graphic by their category and that nobody sees, or takes for a common blank.
func blank(r rune) bool {
	return r != ' ' && unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800'
}
