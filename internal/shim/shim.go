// Package shim is the door of a tool's own name: the words that a shell starts it with go to the gateway, which finds what they mean, and
// what the tool writes comes back byte for byte. What ends with 77, 126 or 127 for Bailey's own reasons says so on stderr;
// every other exit code, and every other byte, is the tool's.
package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"bailey"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// Exit codes (design.md, section 2).
const (
	blocked     = 77
	noMatch     = 126
	unreachable = 127
)

// Main runs the program: the kernel names the shim that was called, then come the tool's words (execve(2), interpreter scripts).
func Main() {
	if len(os.Args) < 2 || !strings.ContainsRune(os.Args[1], '/') {
		terminal.Say(os.Stderr, "invalid", "bailey-shim is started by the files that bailey shim install makes", "call one of those: bailey shim list")
		os.Exit(2)
	}
	os.Exit(run(os.Args[1], os.Args[2:]))
}

func run(path string, words []string) int {
	ctx, stop := terminal.UntilSignal(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	if dir, name := filepath.Split(filepath.Dir(path)); os.Getenv("BAILEY_HOME") == "" && name == "shims" && filepath.IsAbs(dir) {
		os.Setenv("BAILEY_HOME", filepath.Clean(dir)) // it is of one home, whoever calls it
	}
	code, err := call(ctx, append([]string{filepath.Base(path)}, words...))
	if err == nil {
		return code
	}
	if !errors.Is(err, wire.ErrUnreachable) {
		switch code := terminal.SignalCode(err); code {
		case 0:
		case 128 + int(syscall.SIGPIPE): // nobody would read it
			return code
		default:
			terminal.Say(os.Stderr, string(bailey.Unavailable), err.Error(), "bailey receipts list shows what became of an open call")
			return code
		}
	}
	terminal.Say(os.Stderr, string(bailey.KindOf(err)), err.Error(), bailey.HintOf(err))
	return exitCode(err)
}

// exitCode is the one table from an error to an exit code.
func exitCode(err error) int {
	switch {
	case errors.Is(err, wire.ErrUnreachable):
		return unreachable
	case errors.Is(err, bailey.NotFound), errors.Is(err, bailey.Invalid):
		return noMatch
	}
	return blocked
}

func call(ctx context.Context, argv []string) (int, error) {
	for _, w := range argv {
		if !utf8.ValidString(w) { // JSON would make another word of it
			return 0, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the word %q is not UTF-8", w), Hint: "rename what it names; capabilities take text"}
		}
	}
	c, err := wire.Here(spawn, func(s string) { fmt.Fprintln(os.Stderr, "bailey: "+s) })
	if err != nil {
		return 0, err
	}
	c.Waits = func(n wire.Notice) { n.Tell(os.Stderr) }
	c.Stdin = stdin
	out, errs := &counter{w: os.Stdout}, &counter{w: os.Stderr}
	r, err := c.Call(ctx, wire.CallQuery{Argv: argv, Text: true, Wait: true}, out, errs)
	if err != nil {
		return 0, err
	}
	r.TellWalls(os.Stderr)
	cut := r.Result != nil && r.Result.Truncated && max(out.n, errs.n) <= bailey.OutputCap // else the receipt's copy alone is
	own := r.Result != nil && r.Error == bailey.ToolFailed && r.Result.ExitCode > 0
	switch {
	case cut:
		return 0, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("a hook reads this output, which holds it to %d bytes, and the rest is gone", bailey.OutputCap), Hint: "narrow the call; receipt " + string(r.ReceiptID)}
	case r.OK || own:
		return r.Result.ExitCode, nil
	}
	terminal.Say(os.Stderr, r.Word(), r.Reason, r.Hint)
	fmt.Fprintf(os.Stderr, "  receipt %s\n", r.ReceiptID)
	return exitCode(r.Error), nil
}

// spawn starts the bailey beside this program as the home's gateway.
func spawn(h wire.Home, ready *os.File) (*os.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), "bailey")
	if _, err := os.Stat(program); err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "no gateway runs, and there is no bailey beside bailey-shim to start one", Hint: "install both into one directory", Err: err}
	}
	return wire.Spawn(h, program, ready)
}

// stdin reads what there is, at most so many bytes; a signal does not wait for its end.
func stdin(ctx context.Context, most int) ([]byte, error) {
	type read struct {
		text []byte
		err  error
	}
	got := make(chan read, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, int64(most)+1))
		got <- read{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-got:
		if len(r.text) > most {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("stdin is more than %d bytes", most), Hint: "pass less"}
		}
		return r.text, r.err
	}
}

// counter counts what it passes on, in bytes.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}
