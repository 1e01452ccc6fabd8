package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/hook"
	"bailey/internal/hooks"
	"bailey/internal/jail"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// hooksLook is the query that lists the hooks. hooksNoteVerb is the command that records a run of hooks by the command
// line.
const hooksLook, hooksNoteVerb = "hooks", "hooks.note"

func (a *app) hooksVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "hooks", Short: "Programs of yours that are asked about prompts, calls and results",
		Long: "List, try and apply the programs that $BAILEY_HOME/hooks.json names. docs/hooks.md is for their authors."}
	cmd.AddCommand(a.hooksList(), a.hooksReload())
	return cmd
}

// hookRow is a hook in the output of `hooks list`.
type hookRow struct {
	Hook    int       `json:"hook"` // position in the file that names it, from 1
	Line    int       `json:"line"`
	Event   hook.Name `json:"event"`
	Argv    []string  `json:"argv"`
	Matcher string    `json:"matcher,omitempty"`
	Applied bool      `json:"applied"`           // it is in use
	Gone    bool      `json:"gone,omitempty"`    // applied, but no longer in the file
	Status  string    `json:"status,omitempty"`  // expected status of a run
	Problem string    `json:"problem,omitempty"` // why it would not start

	// The latest warning in the gateway's log since the hooks were applied.
	Warned *hooks.Warning `json:"warned,omitempty"`
}

type hookList struct {
	File    string       `json:"file"`
	Applied appliedHooks `json:"applied"`
	Drift   string       `json:"drift,omitempty"`
	Fault   string       `json:"fault,omitempty"` // why every call is denied
	Hooks   []hookRow    `json:"hooks"`
}

func (a *app) hooksList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The hooks, what would hold each, and whether they are asked", Args: cobra.NoArgs,
		Long: `List the hooks of $BAILEY_HOME/hooks.json and those that were applied. Only what was applied is asked; bailey hooks
reload applies the file. The status is what a run now would have: FullyEnforced, PartiallyEnforced, PlatformUnsupported,
Disabled ("sandbox": false), or why it would not start.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: hooksLook}, a.hookRows)
		},
	}
}

func (a *app) hookRows(l hookList) {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, h := range l.Hooks {
		state := "asked"
		switch {
		case h.Gone:
			state = "asked, not in the file"
		case !h.Applied:
			state = "NOT APPLIED"
		}
		status := h.Status
		if h.Problem != "" {
			status = strings.TrimSpace(status + " DOES NOT START: " + terminal.Shown(h.Problem))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", h.Hook, h.Event, cell(strings.Join(h.Argv, " ")), cell(h.Matcher), state, status)
		if h.Warned != nil {
			fmt.Fprintf(w, "\t%s\t%s\n", h.Warned.Kind, terminal.Shown(h.Warned.Text))
		}
	}
	w.Flush()
	switch {
	case l.Fault != "":
		fmt.Fprintln(a.stdout, "NOTHING IS ALLOWED: "+terminal.Shown(l.Fault))
	case l.Drift != "":
		fmt.Fprintln(a.stdout, "DRIFT: "+terminal.Shown(l.Drift)+"; bailey hooks reload shows the difference and applies it")
	case len(l.Hooks) == 0:
		fmt.Fprintf(a.stdout, "no hooks: %s names them, bailey hooks reload applies it\n", l.File)
	}
}

// listHooks is the query of hooksLook.
func (s *stack) listHooks(ctx context.Context, _ wire.Query, from bailey.Call) (any, error) {
	b := s.hooks.book
	l := hookList{File: b.path(), Applied: b.Applied(), Drift: b.drift(), Hooks: []hookRow{}}
	if fault := b.Fault(); fault != nil {
		l.Fault = withHint(fault)
	}
	applied := b.Config().Hooks
	_, now, err := b.file()
	if err != nil {
		now.Hooks = nil // drift gives the reason
	}
	for i, h := range now.Hooks {
		at, n := sameHook(applied, h), 0
		if at >= 0 {
			n = sameHook(b.Config().Hooks, h) + 1
			applied = append(applied[:at:at], applied[at+1:]...)
		}
		l.Hooks = append(l.Hooks, s.hookRow(ctx, from.Session.ID, i+1, h, n))
	}
	for _, h := range applied {
		n := sameHook(b.Config().Hooks, h) + 1
		r := s.hookRow(ctx, from.Session.ID, n, h, n)
		r.Gone = true
		l.Hooks = append(l.Hooks, r)
	}
	return l, nil
}

// sameHook returns the index of an equal hook in list, apart from its line, or -1.
func sameHook(list []hook.Hook, h hook.Hook) int {
	for i, o := range list {
		if o.Line = h.Line; reflect.DeepEqual(o, h) {
			return i
		}
	}
	return -1
}

// hookRow returns the row of the hook at a place in the file. applied is its place among the hooks in use, or 0.
func (s *stack) hookRow(ctx context.Context, session bailey.SessionID, place int, h hook.Hook, applied int) hookRow {
	r := hookRow{Hook: place, Line: h.Line, Event: h.Event, Argv: h.Argv, Matcher: h.Matcher, Applied: applied > 0}
	if w, ok := s.hooks.of(applied); ok {
		w.Text, w.Hint = s.redaction.Text(session, w.Text), s.redaction.Text(session, w.Hint)
		r.Warned = &w
	}
	run, _, asked, err := s.hooks.chain.Prepare(ctx, h)
	r.Status = string(asked.Status)
	if err != nil {
		r.Problem = withHint(err)
		return r
	}
	run.Close()
	return r
}

func (a *app) hooksReload() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reload", Short: "Put hooks.json to use, after showing what it changes", Args: cobra.NoArgs,
		Long: `Put $BAILEY_HOME/hooks.json to use, from the next event on. It shows what changes and asks. A file with a fault changes
nothing; without a file there are no hooks. What was applied stays in use whatever becomes of the file; that it differs is a
finding of status and doctor. What sessions were warned of, they will be warned of again.

Programs are not copied: who may write one decides what it says.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reloadHooks(cmd.Context(), yes) },
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) reloadHooks(ctx context.Context, yes bool) error {
	op, err := a.operator("hooks reload", yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var p hookProposal
	if err := c.Look(ctx, wire.Query{Verb: "hooks.compare"}, &p); err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.json {
			fmt.Fprintf(a.dialog(), "%s: %s\n%s", visible(p.File), counts(p.Hooks, "hook"), p.Text)
			for _, w := range p.Loud {
				fmt.Fprintf(a.dialog(), "  ! %s\n", visible(w))
			}
		}
		if !yes {
			if err := a.confirm(ctx, "Apply this?"); err != nil {
				return err
			}
		}
	}
	if err := act(ctx, c, op, hooksEvent, map[string]any{"digest": p.Digest, "base": p.Applied.Digest}, &p); err != nil {
		return err
	}
	switch {
	case a.json:
		return a.print(p)
	case !p.Changed:
		fmt.Fprintln(a.stdout, "nothing changes: these hooks are in use")
	default:
		fmt.Fprintf(a.stdout, "applied: %s in use from the next event on\n", counts(p.Hooks, "hook"))
	}
	return nil
}

// applyHooks is the command that applies the hooks. It resets all warnings.
func (s *stack) applyHooks(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	p, err := s.hooks.book.apply(ctx, q, from)
	if err == nil {
		s.hooks.chain.Forget("")
		s.hooks.clear()
	}
	return p, err
}

// hooksRan is the data of the events hooks.test and hooks.exec, which record a run of hooks by a user before it starts.
type hooksRan struct {
	Kind     string        `json:"-"`
	Argv     []string      `json:"argv,omitempty"` // redacted; omitted if over [bailey.InlineCap]
	Digest   string        `json:"digest,omitempty"`
	Hooks    int           `json:"hooks,omitempty"`
	Status   string        `json:"status,omitempty"`
	EnvNames []string      `json:"envNames,omitempty"`
	Cage     *bailey.Cage  `json:"cage,omitempty"`
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

const hooksTestEvent, hooksExecEvent = "hooks.test", "hooks.exec"

// noteHooks is the command with which the command line records a run of hooks before it starts.
func (s *stack) noteHooks(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	var ran hooksRan
	b, err := json.Marshal(q.Args["ran"])
	if err == nil {
		err = strictly(b, &ran)
	}
	kind := text(q.Args, "kind")
	if err != nil || kind != hooksTestEvent && kind != hooksExecEvent {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "no hooks that are run are recorded so", Err: err}
	}
	ran.Operator, ran.Person = q.Operator, from.Principal.Person
	if b, err := json.Marshal(ran.Argv); err != nil || len(b) > bailey.InlineCap {
		ran.Argv = nil
	}
	event, err := s.hidden(from.Session.ID, ran)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.scribe.note(ctx, kind, event)
}

// hooksStatus is the state of the hooks in `bailey status`.
type hooksStatus struct {
	Applied appliedHooks `json:"applied"`
	Drift   string       `json:"drift,omitempty"`
	Fault   string       `json:"fault,omitempty"` // why every call is denied
}

func (b *hookbook) status() *hooksStatus {
	st := &hooksStatus{Applied: b.Applied(), Drift: b.drift()}
	if fault := b.Fault(); fault != nil {
		st.Fault = withHint(fault)
	}
	if st.Applied.Hooks == 0 && st.Drift == "" && st.Fault == "" {
		return nil
	}
	return st
}

func (h *hooksStatus) words() string {
	return fmt.Sprintf("%s, applied %s by %s", counts(h.Applied.Hooks, "hook"), h.Applied.At.Format("2006-01-02T15:04:05Z07:00"), cell(h.Applied.Person))
}

// examineHooks reports whether the applied hooks can be used, and whether the file is unchanged.
func examineHooks(home wire.Home, s status) []finding {
	const name, tried = "hooks", "held what was applied last against " + hooksName
	st := s.Hooks
	if !s.Running {
		b, err := standInHooks(home)
		if err != nil {
			return []finding{wrong(name, missing, "read "+hooksName, err)}
		}
		st = b.status()
	}
	switch {
	case st == nil:
		return nil
	case st.Fault != "":
		return []finding{{name, missing, st.Fault, "bailey hooks reload"}}
	case st.Drift != "":
		return []finding{{name, warning, tried + ": " + st.Drift, "bailey hooks reload shows the difference and applies it; or put the file back"}}
	case jail.Bare:
		return []finding{{name, warning, "this platform has no cage: hooks that are to have one do not start", `"sandbox": false lets one run with all your rights`}}
	}
	return []finding{{name, good, tried + ": " + counts(st.Applied.Hooks, "hook"), ""}}
}
