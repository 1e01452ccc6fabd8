package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"bailey"
	"bailey/internal/readonly"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
)

// Runner runs calls on source hosts. The arguments of a job are the verb (run, read, list, request or apply), the host, and the
// command line, the path or the playbook.
type Runner struct {
	bailey.PlainRunner
	Registry *Registry
	// Access opens the authority at the first call, since most gateways have none.
	Access func() (*Access, error)
}

// Plan validates the command and returns a run of exactly the rendered line.
func (r *Runner) Plan(_ context.Context, job bailey.Job) (bailey.Run, error) {
	if len(job.Args) != 3 {
		return nil, bailey.Internal.Errorf("", "a call of a source host has %d arguments, not 3", len(job.Args))
	}
	h, err := r.Registry.Find(job.Args[1])
	if err != nil {
		return nil, err
	}
	if !h.Prepared() {
		return nil, bailey.Denied.Errorf("an operator runs: bailey source prepare "+h.Name, "the host %s is not prepared", h.Name)
	}
	if job.Args[0] == "apply" {
		return r.planApply(h, job.Args[2], job.Timeout)
	}
	line, err := lineOf(job.Args[0], job.Args[2])
	if err != nil {
		return nil, err
	}
	v := readonly.Verdict{Text: line}
	// If the kernel enforced Landlock at the preparation, the receipt says so, and the shell must refuse a kernel without.
	request := readonlyshell.Request{WithoutLandlock: h.WithoutLandlock && h.LandlockABI == 0}
	if job.Args[0] == "request" {
		if strings.ContainsFunc(line, func(c rune) bool { return !unicode.IsPrint(c) }) || len(line) > readonly.MaxLine {
			return nil, bailey.Invalid.Errorf("write one line of printable characters",
				"the requested line has a control character, or more than %d bytes", readonly.MaxLine)
		}
		request.Approved = readonlyshell.Digest(line)
	} else if v, request.Own, err = r.checkLine(h, line); err != nil {
		return nil, err
	}
	timeout := job.Timeout
	if timeout == 0 {
		timeout = bailey.DefaultTimeout
	}
	request.Timeout = timeout
	return newHostRun(r, h, v, request), nil
}

// checkLine validates a line, also with the commands that the operator added. It returns the digest of their file if the
// line uses one of them.
func (r *Runner) checkLine(h Host, line string) (v readonly.Verdict, digest string, err error) {
	own, err := r.Registry.OwnCommands()
	if err != nil {
		return v, "", err
	}
	v = readonly.Check(line, readonly.Options{Rules: own.Rules})
	if !v.Accepted() {
		return v, "", bailey.Denied.New("the command does not only read: "+v.Reason, v.Hint)
	}
	if !slices.ContainsFunc(v.Commands, func(c readonly.Command) bool { return c.Added }) {
		return v, "", nil
	}
	if own.Digest != h.OwnCommands {
		return v, "", bailey.Denied.Errorf("an operator runs: bailey source prepare "+h.Name,
			"the host %s does not have the commands of %s as they are now: prepare it again", h.Name, OwnFile)
	}
	return v, own.Digest, nil
}

// lineOf returns the command line of a verb.
func lineOf(verb, text string) (string, error) {
	if verb != "run" && verb != "request" && !strings.HasPrefix(text, "/") {
		return "", bailey.Invalid.Errorf("write an absolute path, for example /var/log/syslog", "the path %q is not absolute", text)
	}
	quoted := "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	switch verb {
	case "run", "request":
		return text, nil
	case "read":
		return "cat -- " + quoted, nil
	case "list":
		return "ls -la -- " + quoted, nil
	}
	return "", bailey.Internal.Errorf("", "source hosts have no verb %q", verb)
}

// hostRun is a planned command on a host.
type hostRun struct {
	bailey.PlainRun
	runner  *Runner
	host    Host
	line    string
	request readonlyshell.Request
	cage    bailey.Cage
	parsed  []readonly.Command
}

// ownMark marks runs with a command that the operator added, among the layers of the receipt.
const ownMark = "own-commands"

// newHostRun describes the run: its plan names the host, its labels, and each command of the line.
func newHostRun(r *Runner, h Host, v readonly.Verdict, request readonlyshell.Request) *hostRun {
	var text strings.Builder
	first := "validator"
	if request.Approved != "" {
		first = "approved-line"
	}
	layers := []string{first, "certificate", readonlyshell.Name, "account"}
	if h.LandlockABI > 0 {
		layers = append(layers, "landlock")
	}
	layers = append(layers, "seccomp", "rlimits")
	if request.Own != "" {
		layers = append(layers, ownMark) // each receipt shows that the grammar was the operator's
	}
	lines := []string{""}
	fmt.Fprintf(&text, "bailey host plan 1\n")
	add := func(layer, format string, args ...any) {
		fmt.Fprintf(&text, format+"\n", args...)
		lines = append(lines, layer)
	}
	add("certificate", "host %q principal %q", h.Name, Account)
	for _, l := range h.Labels {
		add("", "label %q", l)
	}
	add(first, "line %q", v.Text)
	if request.Own != "" {
		add(ownMark, "own-commands sha256 %s", request.Own)
	}
	for _, c := range v.Commands {
		if c.Added {
			add(ownMark, "own-command %q program %q", append([]string{c.Name}, c.Args...), c.Path)
			continue
		}
		add("validator", "command %q network %t", append([]string{c.Name}, c.Args...), c.Network)
	}
	add(readonlyshell.Name, "force-command %q", request.Command(ShellPath))
	sum := sha256.Sum256([]byte(text.String()))
	cage := bailey.Cage{Kind: "host", Enforced: h.LandlockABI > 0, Layers: layers, Labels: h.Labels,
		Plan: text.String(), PlanLayers: lines, PlanDigest: hex.EncodeToString(sum[:])}
	if h.LandlockABI == 0 {
		cage.Absent = []string{"landlock"}
	}
	return &hostRun{runner: r, host: h, line: v.Text, request: request, cage: cage, parsed: v.Commands}
}

// Describe lists the commands of the line, one a line with its arguments. A command that another one runs is indented. An
// approved line is not parsed, so there is no list.
func (r *hostRun) Describe() (check []string, text string) {
	var b strings.Builder
	for _, c := range r.parsed {
		words := []string{cmp.Or(c.Path, c.Name)}
		for _, a := range c.Args {
			words = append(words, quoteShown(a))
		}
		if c.Inside != "" {
			b.WriteString("  ") // the arguments of the command before contain it too
		}
		b.WriteString(strings.Join(words, " "))
		if c.Added {
			b.WriteString("   (added by the operator)")
		}
		b.WriteByte('\n')
	}
	return []string{"bailey", "source", "check", r.line}, b.String()
}

// quoteShown quotes an argument if a person could read it as several, or as none.
func quoteShown(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(`'"()`, c) }) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// Cage returns the layers on the host.
func (r *hostRun) Cage() bailey.Cage { return r.cage }

// Close releases nothing: the connection stays open for the next call.
func (r *hostRun) Close() error { return nil }

// Start runs the line once.
func (r *hostRun) Start(ctx context.Context, _ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	fail := func(err error) (bailey.Exit, error) { return bailey.Exit{Code: bailey.NeverRan}, err }
	access, err := r.runner.Access()
	if err != nil {
		return fail(err)
	}
	pinned, err := r.host.Pinned()
	if err != nil {
		return fail(err)
	}
	t := access.targetFor(r.host, pinned, r.request)
	res, err := access.Pool.Run(ctx, t, remote.Command{Line: r.line, Stdout: orDiscard(s.Stdout), Stderr: orDiscard(s.Stderr), Timeout: r.request.Timeout})
	switch {
	case err != nil && !res.Sent:
		return fail(err)
	case err != nil:
		return bailey.Exit{Code: 255, Login: res.Login}, err // it may have run: not NeverRan
	}
	return bailey.Exit{Code: res.Code, TimedOut: res.Code == readonlyshell.ExitTimeout, Login: res.Login}, nil
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
