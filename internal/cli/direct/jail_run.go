package direct

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
	"bailey/internal/terminal"
	"bailey/internal/workspace"
)

// jailRun plans a cage, records it in the ledger, and runs the program from this process, on the user's own streams.
func (a *commands) jailRun(ctx context.Context, c caged, argv []string) error {
	op, err := a.Operator("jail run", c.yes)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	cages, err := server.OpenJail(workspace.Masks(client.Home, workspace.Homes()), nil)
	if err != nil {
		return err
	}
	defer cages.Close()
	job, err := c.job(argv, terminal.Is(os.Stdin) && terminal.Is(os.Stdout))
	if err != nil {
		return err
	}
	defer closePlaces(job.Places)
	run, err := cages.Plan(ctx, job)
	if err != nil {
		return err
	}
	defer run.Close()
	cage := run.Cage()
	if err := cli.Command(ctx, client, op, apitype.JailRunEvent, map[string]any{"run": cli.NewJailQuery(argv, job, cage)}, &struct{}{}); err != nil {
		return err
	}
	if !a.JSON {
		a.banner(job, cage)
	}
	exit, err := a.inside(ctx, run, job.TTY, bailey.Lent{})
	if err != nil {
		return err
	}
	return a.ended(cage, exit)
}

// inside runs the program on the streams of this process or, if tty is set, on a new terminal that is connected to
// them.
func (a *commands) inside(ctx context.Context, run bailey.Run, tty bool, lent bailey.Lent) (bailey.Exit, error) {
	ctx, stop := gently(ctx)
	defer stop()
	if !tty {
		return run.Start(ctx, lent, bailey.Streams{Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr})
	}
	con, err := openConsole(os.Stdin, os.Stdout)
	if err != nil {
		return bailey.Exit{Code: bailey.NeverRan}, &bailey.Error{Kind: bailey.Unavailable, Message: "no terminal could be made for the tool", Err: err,
			Hint: "see that /dev/ptmx can be opened, or give it no terminal: redirect its input"}
	}
	defer con.close()
	return run.Start(ctx, lent, bailey.Streams{TTY: con.slave})
}

// gently returns a context that ends with ctx or on SIGQUIT, and leaves the tool time to exit by itself
// ([bailey.Gentle]).
func gently(ctx context.Context) (context.Context, func()) {
	ctx, forget := terminal.UntilSignal(ctx, syscall.SIGQUIT)
	gentle, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() { cancel(bailey.Gentle{Cause: context.Cause(ctx)}) })
	return gentle, func() { unwatch(); forget(); cancel(nil) }
}

// banner prints the limits of the cage before a terminal is handed over. Otherwise it only reports a cage that is not
// full.
func (a *commands) banner(job bailey.Job, cage bailey.Cage) {
	words := fmt.Sprintf("cage %s, %d layers", cage.Kind, len(cage.Layers))
	if job.TTY {
		words += "; bound: " + bound(job.Places) + "; " + mayRun(job) + "; exit ends it"
	}
	if cage.Lesser != "" {
		words += "; not the full cage: " + cage.Lesser
	}
	if job.TTY || cage.Kind != "full" {
		fmt.Fprintln(a.Stderr, "bailey: "+terminal.Shown(words))
	}
}

func bound(places []bailey.Place) string {
	var list []string
	for _, p := range places {
		list = append(list, p.Path+map[bool]string{false: " (read-only)", true: " (writable)"}[p.Write])
	}
	return cmp.Or(strings.Join(list, ", "), "nothing of yours")
}

func mayRun(job bailey.Job) string {
	if len(job.Exec) == 0 {
		return "only " + filepath.Base(job.Command) + " may run, --exec ls adds more"
	}
	list := []string{filepath.Base(job.Command)}
	for _, e := range job.Exec {
		list = append(list, filepath.Base(e))
	}
	return strings.Join(list, ", ") + " may run, --exec adds more"
}

// caging is the final JSON line of `jail run --json` on standard error.
type caging struct {
	OK bool `json:"ok"`
	bailey.Cage
	ExitCode int  `json:"exitCode"`
	TimedOut bool `json:"timedOut,omitempty"`
}

// ended reports how the program ended and returns its exit code.
func (a *commands) ended(cage bailey.Cage, e bailey.Exit) error {
	switch {
	case a.JSON:
		enc := json.NewEncoder(a.Stderr)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(caging{OK: e.Code == 0 && !e.TimedOut, Cage: cage, ExitCode: e.Code, TimedOut: e.TimedOut}); err != nil {
			return err
		}
	case e.TimedOut:
		a.Say(string(bailey.ToolFailed), "the tool's time was up and it was ended", "--timeout bounds it")
	}
	if e.Code != 0 {
		return cli.Exit(e.Code)
	}
	return nil
}
