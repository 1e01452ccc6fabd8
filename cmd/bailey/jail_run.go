package main

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
	"bailey/internal/gateway"
	"bailey/internal/terminal"
)

// jailRun plans a cage, has the ledger say so, and runs the program in this very process: so its streams are
// the person's own.
func (a *app) jailRun(ctx context.Context, c caged, argv []string) error {
	op, err := a.operator("jail run", c.yes)
	if err != nil {
		return err
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	cages, err := openJail(gateway.Masks(client.Home, gateway.Homes()), nil)
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
	if err := act(ctx, client, op, jailRunEvent, map[string]any{"run": newJailQuery(argv, job, cage)}, &struct{}{}); err != nil {
		return err
	}
	if !a.json {
		a.banner(job, cage)
	}
	exit, err := a.inside(ctx, run, job.TTY, bailey.Lent{})
	if err != nil {
		return err
	}
	return a.ended(cage, exit)
}

// inside runs it on the person's streams, or on a terminal of its own that is joined to theirs.
func (a *app) inside(ctx context.Context, run bailey.Run, tty bool, lent bailey.Lent) (bailey.Exit, error) {
	ctx, stop := gently(ctx)
	defer stop()
	if !tty {
		return run.Start(ctx, lent, bailey.Streams{Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr})
	}
	con, err := openConsole(os.Stdin, os.Stdout)
	if err != nil {
		return bailey.Exit{Code: bailey.NeverRan}, &bailey.Error{Kind: bailey.Unavailable, Message: "no terminal could be made for the tool", Err: err,
			Hint: "see that /dev/ptmx can be opened, or give it no terminal: redirect its input"}
	}
	defer con.close()
	return run.Start(ctx, lent, bailey.Streams{TTY: con.slave})
}

// gently is a context that ends as ctx does, or at SIGQUIT, and leaves a tool time to end by itself.
func gently(ctx context.Context) (context.Context, func()) {
	ctx, forget := terminal.UntilSignal(ctx, syscall.SIGQUIT)
	gentle, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() { cancel(bailey.Gentle{Cause: context.Cause(ctx)}) })
	return gentle, func() { unwatch(); forget(); cancel(nil) }
}

// banner says before a terminal is handed over what is behind it, and elsewhere what is lacking.
func (a *app) banner(job bailey.Job, cage bailey.Cage) {
	words := fmt.Sprintf("cage %s, %d layers", cage.Kind, len(cage.Layers))
	if job.TTY {
		words += "; bound: " + bound(job.Places) + "; " + mayRun(job) + "; exit ends it"
	}
	if cage.Lesser != "" {
		words += "; not the full cage: " + cage.Lesser
	}
	if job.TTY || cage.Kind != "full" {
		fmt.Fprintln(a.stderr, "bailey: "+terminal.Shown(words))
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

// caging is what `jail run --json` says on stderr when all is over.
type caging struct {
	OK bool `json:"ok"`
	bailey.Cage
	ExitCode int  `json:"exitCode"`
	TimedOut bool `json:"timedOut,omitempty"`
}

// ended passes the tool's own exit code on.
func (a *app) ended(cage bailey.Cage, e bailey.Exit) error {
	switch {
	case a.json:
		enc := json.NewEncoder(a.stderr)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(caging{OK: e.Code == 0 && !e.TimedOut, Cage: cage, ExitCode: e.Code, TimedOut: e.TimedOut}); err != nil {
			return err
		}
	case e.TimedOut:
		a.say(string(bailey.ToolFailed), "the tool's time was up and it was ended", "--timeout bounds it")
	}
	if e.Code != 0 {
		return exit(e.Code)
	}
	return nil
}
