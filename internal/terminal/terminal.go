// Package terminal is what a program owes to the terminal and the shell that it is started from: texts that address no terminal, errors
// with their cures, and an end by a signal that shells know.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf16"
)

// Shown makes a text safe for a terminal and for a line of its own: what a caller chose could otherwise
// forge lines, erase them or address the terminal. Controls and what cannot be seen come out escaped.
func Shown(s string) string {
	if !strings.ContainsFunc(s, Strange) {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		if Strange(c) {
			q := strconv.QuoteRuneToASCII(c)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Strange tells what cannot be seen, or addresses a terminal.
func Strange(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) || c == unicode.ReplacementChar
}

// List is a sentence and what it lists, an item a line behind two spaces, as a terminal may show them. What is quoted
// in there cannot begin a line that looks like another of Bailey's own.
func List(text string) string {
	items := strings.Split(text, "\n  ")
	for i := range items {
		items[i] = Shown(items[i])
	}
	return strings.Join(items, "\n  - ")
}

// JSON makes JSON in lines safe for a terminal, as Shown does, and leaves it JSON of the same value.
func JSON(lines string) string {
	if !strings.ContainsFunc(lines, func(c rune) bool { return c != '\n' && Strange(c) }) {
		return lines
	}
	var b strings.Builder
	for _, c := range lines {
		if c == '\n' || !Strange(c) {
			b.WriteRune(c)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.String()
}

// Say writes what happened, why, and what to do now.
func Say(w io.Writer, what, why, hint string) {
	fmt.Fprintf(w, "bailey: %s: %s\n", what, List(why))
	if hint != "" {
		fmt.Fprintf(w, "  %s\n", Shown(hint))
	}
}

// Bell rings a terminal's bell, unless NO_BELL is set; it is empty where stderr is no terminal.
func Bell() string {
	if os.Getenv("NO_BELL") == "" && Is(os.Stderr) {
		return "\a"
	}
	return ""
}

// Signal is why a verb ended that a signal ended; its exit code is what a shell would say, 128+n.
type Signal struct{ Number syscall.Signal }

func (s Signal) Error() string        { return "ended by a signal (" + s.Number.String() + ")" }
func (s Signal) Is(target error) bool { return target == context.Canceled }

// UntilSignal is a context that ends with the first of these signals and has it as its cause. One that
// was ignored when the program started stays so: nohup(1).
func UntilSignal(ctx context.Context, signals ...syscall.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	came := make(chan os.Signal, 1)
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(came, s)
		}
	}
	go func() {
		select {
		case s := <-came:
			n, _ := s.(syscall.Signal)
			cancel(Signal{n})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(came); cancel(nil) }
}

// SignalCode is the exit code of an error that a signal is behind, 0 of any other. A reader that went away is SIGPIPE.
func SignalCode(err error) int {
	var s Signal
	switch {
	case errors.As(err, &s):
		return 128 + int(s.Number)
	case errors.Is(err, syscall.EPIPE):
		return 128 + int(syscall.SIGPIPE)
	}
	return 0
}
