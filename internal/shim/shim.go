// Package shim runs a tool under its own name. It sends the arguments to the gateway, which maps them to a capability,
// and copies the tool's output byte for byte. If Bailey itself causes exit code 77, 126 or 127, stderr says so. Every
// other exit code and byte is the tool's.
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
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

// Exit codes (README.md).
const (
	blocked     = 77
	noMatch     = 126
	unreachable = 127
)

// Main runs the program. A shim is an interpreter script, so the first argument must be its path, followed by the
// arguments of the tool (execve(2)).
func Main() {
	if len(os.Args) < 2 || !strings.ContainsRune(os.Args[1], '/') {
		terminal.Say(os.Stderr, "invalid", "bailey-shim must be started by a file that bailey shim install created",
			"use one of those: bailey shim list")
		os.Exit(2)
	}
	os.Exit(runTool(os.Args[1], os.Args[2:]))
}

func runTool(path string, words []string) int {
	ctx, stop := terminal.UntilSignal(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGPIPE)
	defer stop()
	if dir, name := filepath.Split(filepath.Dir(path)); os.Getenv("BAILEY_HOME") == "" && name == "shims" &&
		filepath.IsAbs(dir) {
		os.Setenv("BAILEY_HOME", filepath.Clean(dir)) // a shim belongs to one home, for example ~/.bailey
	}
	code, err := callGateway(ctx, append([]string{filepath.Base(path)}, words...))
	if err == nil {
		return code
	}
	if !errors.Is(err, localapi.ErrUnreachable) {
		switch code := terminal.SignalCode(err); code {
		case 0:
		case 128 + int(syscall.SIGPIPE): // a message would have no reader
			return code
		default:
			terminal.Say(os.Stderr, string(bailey.Unavailable), err.Error(),
				"bailey receipts list shows the outcome of an open call")
			return code
		}
	}
	terminal.Say(os.Stderr, string(bailey.KindOf(err)), err.Error(), bailey.HintOf(err))
	return exitCode(err)
}

// exitCode is the only mapping from an error to an exit code.
func exitCode(err error) int {
	switch {
	case errors.Is(err, localapi.ErrUnreachable):
		return unreachable
	case errors.Is(err, bailey.NotFound), errors.Is(err, bailey.Invalid):
		return noMatch
	}
	return blocked
}

func callGateway(ctx context.Context, argv []string) (int, error) {
	for _, w := range argv {
		if !utf8.ValidString(w) { // JSON would replace the invalid bytes
			return 0, bailey.Invalid.Errorf("rename the file: capabilities accept only text",
				"the argument %q is not UTF-8", w)
		}
	}
	argv, carried, err := carryVariables(argv, os.Environ())
	if err != nil {
		return 0, err
	}
	c, err := localapi.Here(spawnGateway, func(s string) { fmt.Fprintln(os.Stderr, "bailey: "+s) })
	if err != nil {
		return 0, err
	}
	c.Waits = func(n localapi.Notice) { n.Tell(os.Stderr) }
	c.Stdin = readStdin
	out, errs := &counter{w: os.Stdout}, &counter{w: os.Stderr}
	r, err := c.Call(ctx, localapi.CallQuery{Argv: argv, Text: true, Wait: true}, out, errs)
	if err != nil {
		if len(carried) > 0 {
			fmt.Fprintf(os.Stderr, "bailey: the line includes the meaning of %s: %s\n", strings.Join(carried, ", "),
				strings.Join(argv, " "))
		}
		return 0, err
	}
	r.TellWalls(os.Stderr)
	// If more than OutputCap was streamed, only the copy in the receipt is truncated.
	cut := r.Result != nil && r.Result.Truncated && max(out.n, errs.n) <= bailey.OutputCap
	own := r.Result != nil && r.Error == bailey.ToolFailed && r.Result.ExitCode > 0
	switch {
	case cut:
		return 0, bailey.Denied.Errorf("narrow the call; receipt "+string(r.ReceiptID),
			"a hook reads this output, which limits it to %d bytes; the rest is lost", bailey.OutputCap)
	case r.OK || own:
		return r.Result.ExitCode, nil
	}
	terminal.Say(os.Stderr, r.Word(), r.Reason, r.Hint)
	fmt.Fprintf(os.Stderr, "  receipt %s\n", r.ReceiptID)
	return exitCode(r.Error), nil
}

// spawnGateway starts the bailey beside this program as the home's gateway.
func spawnGateway(h localapi.Home, ready *os.File) (*os.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), "bailey")
	if _, err := os.Stat(program); err != nil {
		return nil, bailey.Unavailable.Wrap(err, "no gateway is running, and there is no bailey beside bailey-shim to start one",
			"install both into one directory")
	}
	return localapi.Spawn(h, program, ready)
}

// readStdin reads standard input up to its end, at most most bytes. If ctx ends, it returns without waiting for the read.
func readStdin(ctx context.Context, most int) ([]byte, error) {
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
			return nil, bailey.Invalid.Errorf("pass less", "stdin has more than %d bytes", most)
		}
		return r.text, r.err
	}
}

// counter counts the bytes that it passes on.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}
