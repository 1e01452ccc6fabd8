package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"bailey"
	"bailey/internal/wire"
	"bailey/pack"
)

// shimLook asks the gateway what a command line means.
const shimLook = "shim"

// meant is the answer.
type meant struct {
	Capability bailey.CapabilityID `json:"capability"`
	Input      map[string]any      `json:"input"`
	Reads      bool                `json:"reads,omitempty"` // its stdin is an input
}

// prompts are words by which tools are asked to talk to a person, and nobody can answer in a cage.
var prompts = []string{"-i", "-it", "-ti", "--interactive", "--edit"}

// mean finds the one capability that a command line means.
func (s *stack) mean(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	argv, err := lineOf(q.Args["argv"])
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(s.shelf.Active(), func(m *pack.Capability) bool { return m.Isolation == pack.Agent })
	found := pack.Meanings(list, argv)
	switch {
	case len(found) == 0:
		return nil, meansNothing(argv, pack.Near(list, argv))
	case len(found) > 1:
		var ids []string
		for _, m := range found {
			ids = append(ids, string(m.ID))
		}
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: "these words may mean " + strings.Join(ids, " or "), Hint: "say which: bailey run " + ids[0] + " …; bailey capabilities show " + ids[0] + " has its inputs"}
	case len(found[0].Inputs) != 1:
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("these words are %d calls of %s", len(found[0].Inputs), found[0].ID), Hint: "make them one by one"}
	}
	m := meant{Capability: found[0].ID, Input: found[0].Inputs[0]}
	if _, given := m.Input[pack.StdinInput]; !given {
		_, m.Reads = found[0].Stdin(map[string]any{pack.StdinInput: ""})
	}
	return m, nil
}

// meansNothing names what comes near, and how to see it.
func meansNothing(argv []string, near []*pack.Capability) error {
	e := &bailey.Error{Kind: bailey.NotFound, Message: "no capability does what these words of " + argv[0] + " would", Hint: "bailey capabilities list has what there is"}
	if i := slices.IndexFunc(argv[1:], func(w string) bool { return slices.Contains(prompts, w) || w == "--" }); i >= 0 && argv[i+1] != "--" {
		e.Message = fmt.Sprintf("%s %s may ask a person, whom nobody can be in a cage, and no capability does it", argv[0], argv[i+1])
	}
	if len(near) > 0 {
		var ids []string
		for _, m := range near {
			ids = append(ids, string(m.ID))
		}
		e.Hint = "near are " + strings.Join(ids, ", ") + "; bailey capabilities show " + ids[0] + " has its inputs, and bailey run calls it"
	}
	return e
}

// runAsTool is this program under a tool's name: path is the shim, as the kernel found it. What ends with 77, 126 or 127 for
// Bailey's own reasons says so on stderr; every other exit code, and every other byte, is the tool's.
func runAsTool(ctx context.Context, stop func(), path string, words []string) int {
	defer stop()
	os.Unsetenv("BAILEY_OPERATOR")
	if dir, name := filepath.Split(filepath.Dir(path)); os.Getenv("BAILEY_HOME") == "" && name == "shims" && filepath.IsAbs(dir) {
		os.Setenv("BAILEY_HOME", filepath.Clean(dir)) // it is of one home, whoever calls it
	}
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, after: "bailey receipts list shows what became of an open call"}
	ctx, done := untilSignal(ctx, syscall.SIGPIPE)
	defer done()
	code, err := a.asTool(ctx, append([]string{filepath.Base(path)}, words...))
	if err == nil {
		return code
	}
	switch code := signalCode(err); code {
	case 0:
		a.complain(err)
		return shimCode(err)
	case 128 + int(syscall.SIGPIPE):
		return code
	default:
		a.complain(&bailey.Error{Kind: bailey.Unavailable, Message: err.Error(), Hint: a.after})
		return code
	}
}

// shimCode is the one table from an error to the exit code of a shim.
func shimCode(err error) int {
	switch {
	case errors.Is(err, wire.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, bailey.NotFound), errors.Is(err, bailey.Invalid):
		return exitNoMatch
	}
	return exitBlocked
}

func (a *app) asTool(ctx context.Context, argv []string) (int, error) {
	for _, w := range argv {
		if !utf8.ValidString(w) { // JSON would make another word of it
			return 0, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the word %q is not UTF-8", w), Hint: "rename what it names; capabilities take text"}
		}
	}
	c, err := a.client()
	if err != nil {
		return 0, err
	}
	c.Waits = a.waits
	var m meant
	if err := c.Look(ctx, wire.Query{Verb: shimLook, Args: map[string]any{"argv": argv}}, &m); err != nil {
		return 0, err
	}
	if m.Reads {
		if m.Input[pack.StdinInput], err = a.readAll(ctx); err != nil {
			return 0, err
		}
	}
	out, errs := &counter{w: a.stdout}, &counter{w: a.stderr}
	r, err := c.Call(ctx, wire.CallQuery{Capability: m.Capability, Input: m.Input, Text: true, Wait: true, Shim: true}, out, errs)
	if err != nil {
		return 0, err
	}
	cut := r.Result != nil && r.Result.Truncated && max(out.n, errs.n) <= bailey.OutputCap // else the receipt's copy alone is
	own := r.Result != nil && r.Error == bailey.ToolFailed && r.Result.ExitCode > 0
	switch {
	case cut:
		return 0, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("a hook reads this output, which holds it to %d bytes, and the rest is gone", bailey.OutputCap), Hint: "narrow the call; receipt " + string(r.ReceiptID)}
	case r.OK || own:
		for _, line := range r.Refused {
			fmt.Fprintf(a.stderr, "bailey: refused on the way out: %s\n", shown(line))
		}
		if r.Cage != nil && r.Cage.Kind == bailey.Uncaged {
			fmt.Fprintln(a.stderr, "bailey: it ran without a cage: nothing but policy held it")
		}
		return r.Result.ExitCode, nil
	}
	a.say(word(r), r.Reason, r.Hint)
	fmt.Fprintf(a.stderr, "  receipt %s\n", r.ReceiptID)
	if r.Error == bailey.Invalid || r.Error == bailey.NotFound {
		fmt.Fprintf(a.stderr, "  bailey capabilities show %s has its inputs, and bailey run calls it\n", m.Capability)
		return exitNoMatch, nil
	}
	return exitBlocked, nil
}

// readAll reads stdin for a call that takes it as text; a signal does not wait for its end.
func (a *app) readAll(ctx context.Context) (string, error) {
	type read struct {
		text []byte
		err  error
	}
	got := make(chan read, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(a.stdin, pack.MaxStdin+1))
		got <- read{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-got:
		switch {
		case r.err != nil:
			return "", r.err
		case len(r.text) > pack.MaxStdin:
			return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("stdin is more than %d bytes", pack.MaxStdin), Hint: "pass less"}
		case !utf8.Valid(r.text):
			return "", &bailey.Error{Kind: bailey.Invalid, Message: "stdin is not UTF-8", Hint: "capabilities take text"}
		}
		return string(r.text), nil
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
