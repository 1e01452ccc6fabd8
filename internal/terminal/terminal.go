// Package terminal has the rules for output to a terminal and a shell: text without control sequences, errors with
// hints, and the exit codes that shells expect after a signal.
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

// Shown makes s safe for one line of a terminal. It escapes control characters and invisible characters, with which a
// text from a caller could forge lines, erase lines or control the terminal.
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

// Strange reports whether c is invisible or can control a terminal.
func Strange(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) || c == unicode.ReplacementChar
}

// List formats a text and its items, each on a line after two spaces, for a terminal. Quoted text in an item cannot
// begin a line that looks like one of Bailey's own.
func List(text string) string {
	items := strings.Split(text, "\n  ")
	for i := range items {
		items[i] = Shown(items[i])
	}
	return strings.Join(items, "\n  - ")
}

// JSON makes lines of JSON safe for a terminal, as Shown does. The result is JSON with the same value.
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

// Say writes an event, its reason and a hint.
func Say(w io.Writer, what, why, hint string) {
	fmt.Fprintf(w, "bailey: %s: %s\n", what, List(why))
	if hint != "" {
		fmt.Fprintf(w, "  %s\n", Shown(hint))
	}
}

// Bell returns the character that rings a terminal's bell, or "" if NO_BELL is set or stderr is not a terminal.
func Bell() string {
	if os.Getenv("NO_BELL") == "" && Is(os.Stderr) {
		return "\a"
	}
	return ""
}

// Signal is the error of a command that a signal ended. Its exit code is that of a shell: 128+n.
type Signal struct{ Number syscall.Signal }

func (s Signal) Error() string        { return "ended by a signal (" + s.Number.String() + ")" }
func (s Signal) Is(target error) bool { return target == context.Canceled }

// UntilSignal returns a context that ends at the first of these signals, with a Signal as its cause. If a signal was
// ignored when the program started, it stays ignored, as nohup(1) requires.
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

// SignalCode returns the exit code if a signal caused err, otherwise 0. EPIPE, from a reader that is gone, counts as
// SIGPIPE.
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
