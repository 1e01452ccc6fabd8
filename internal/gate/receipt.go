package gate

import (
	"context"
	"errors"
	"slices"
	"time"

	"bailey"
)

// openReceipt writes the intent. If it returns an error, no part of the call has happened.
func (c *callState) openReceipt(ctx context.Context) (seal func(bailey.Outcome) error, err error) {
	err = c.runStage("intent", ctx, func(ctx context.Context) (err error) {
		seal, err = c.Ledger.Open(ctx, c.buildIntent())
		return err
	})
	return seal, err
}

func (c *callState) buildIntent() bailey.Intent {
	p := c.call.Principal
	i := bailey.Intent{
		Receipt: c.receipt, Capability: bailey.CapabilityID(clipText(c.redactText(string(c.call.Capability)), 200)),
		Agent: p.Agent, Person: p.Person, Roles: p.Roles,
		Organisation: p.Organisation, Token: p.Token, Host: c.Host, Session: c.call.Session.ID,
		Unattended: c.call.Session.Unattended,
		Door:       c.call.Door, Client: clipText(c.redactText(c.call.Client), 200),
		Dir: clipText(c.redactText(c.call.Dir), 4096), DryRun: c.call.DryRun, StartedAt: c.started.UTC(),
	}
	if w := c.call.Within; w != nil {
		i.Within, i.Step = w.Receipt, w.Step
	}
	if len(c.call.Input) > 0 {
		var whole []byte
		if i.Input, whole = inlineJSON(c.Redactor.Input(c.call.Session.ID, c.call.Input)); i.Input == nil {
			i.InputBytes, i.InputBody = len(whole), &bailey.Body{Length: len(whole), Bytes: whole}
		}
	}
	return i
}

// unrecordedResult returns the result of a call whose intent could not be made durable.
func (c *callState) unrecordedResult(err error) bailey.Result {
	return bailey.Result{Status: bailey.Failed, DryRun: c.call.DryRun,
		Err: bailey.Unavailable.Wrap(err, "the call was not made, because it could not be recorded",
			bailey.HintOf(err))}
}

// sealReceipt writes the outcome and returns the result. The caller gets nothing that the ledger does not contain.
func (c *callState) sealReceipt(seal func(bailey.Outcome) error, panicked any) bailey.Result {
	switch {
	case panicked != nil:
		c.err = c.panicError(panicked)
	case c.err == nil && !c.finished: // runtime.Goexit in a stage
		c.err = c.panicError("a stage ended without an answer")
	}
	o := c.buildOutcome()
	start := time.Now()
	err := seal(o)
	c.Observe(Step{c.receipt, "outcome", start, time.Since(start)})
	if err != nil {
		return c.notDurable(err)
	}
	return c.buildResult(o)
}

// usedLeases returns the leases of the broker, the login that the run made by itself, and the key that signed for it.
func (c *callState) usedLeases() []string {
	used := append(slices.Clone(c.lease.IDs), c.signatureRecord()...)
	if c.exit.Login != "" {
		used = append(used, c.exit.Login)
	}
	return used
}

func (c *callState) buildOutcome() bailey.Outcome {
	o := bailey.Outcome{
		Receipt: c.receipt, Status: c.callStatus(), Rules: c.decision.Rules, Executed: new(c.executed),
		Restored: c.restored, Leases: c.usedLeases(), Approval: c.approval, Standing: c.answer.Standing,
		EndedAt: time.Now().UTC(), TimedOut: c.exit.TimedOut,
		PolicyDigest: c.decision.Policy, Egress: c.egress, HooksAt: c.hooksAt,
	}
	o.Hooks, o.HooksAsked = c.askedHooks()
	if c.err != nil {
		o.Reason = clipText(c.redactMessage(c.err.Error()), bailey.InlineCap)
	}
	// a rule decided, or a built-in check refused before policy was asked
	if c.decision.Made() || o.Status == bailey.Refused {
		o.Decision = c.decision.Effect.String()
	}
	if c.manifest != nil {
		o.ManifestDigest, o.Dev, o.Profile, o.Environment = c.manifest.Digest, c.manifest.Dev, c.profile.Name, c.profile.Environment
	}
	if c.run != nil {
		cage := c.receiptCage()
		if ch, ok := c.run.(*workflowRun); ok {
			o.Steps = ch.done
		}
		o.Reaches = c.reachableTargets(func(e bailey.Endpoint) string { return c.redactText(e.String()) })
		o.Cage, o.Cwd, o.EnvNames = &cage, c.redactText(c.job.Dir), variableNames(c.job.Env, c.lease.Env)
		argv, _ := c.Redactor.Value(c.call.Session.ID, argvValues(c.job.Command, c.argv)).([]any)
		if short, _ := inlineJSON(argv); short != nil {
			o.Argv = toStrings(argv)
		}
	}
	for _, p := range c.places {
		o.Paths = append(o.Paths, c.redactText(p.Path))
	}
	if c.stdout != nil && c.executed {
		o.ExitCode, o.RanMillis, o.CPUMillis = &c.exit.Code, c.ran.Milliseconds(), c.cpu.Milliseconds()
		o.StdoutBytes, o.StderrBytes = c.stdout.seen, c.stderr.seen
		o.StdoutBody, o.StderrBody = c.stdout.receiptBody(), c.stderr.receiptBody()
		o.Truncated = c.stdout.cut || c.stderr.cut
		o.Redactions, o.Model = c.stdout.redactionCount()+c.stderr.redactionCount(), c.exit.Model
	}
	return o
}

// maxAsked limits the number of hooks in a receipt, and maxAskedText the size of each text in bytes. The text of a hook
// must not make the outcome too large for its reserved space, and JSON may need six bytes for one.
const maxAsked, maxAskedText = 16, 128

// askedHooks returns the hooks that were asked, for the receipt. If there are too many, all is their number, and hooks that
// changed nothing are left out first.
func (c *callState) askedHooks() (list []bailey.AskedHook, all int) {
	for _, a := range c.asked {
		a.Program, a.Reason = clipText(c.redactText(a.Program), maxAskedText), clipText(c.redactMessage(a.Reason),
			maxAskedText)
		list = append(list, a)
	}
	for len(list) > maxAsked {
		all = len(c.asked)
		i := max(0, slices.IndexFunc(list, func(a bailey.AskedHook) bool { return a.Effect == "kept" }))
		list = slices.Delete(list, i, i+1)
	}
	return list, all
}

// receiptCage returns the cage of the call. If the text of the plan contains a secret, for example in a path, the text is left
// out. The digest stays, and cannot be recomputed without the text.
func (c *callState) receiptCage() bailey.Cage {
	cage := c.run.Cage()
	if c.redactText(cage.Plan) != cage.Plan {
		cage.Plan = ""
	}
	return cage
}

func (c *callState) callStatus() bailey.Status {
	switch {
	case c.err == nil && c.call.DryRun && c.decision.Effect == bailey.Ask:
		return bailey.Pending
	case c.err == nil:
		return bailey.OK
	case c.pending:
		return bailey.Pending
	case errors.Is(c.err, context.Canceled), errors.Is(c.err, context.DeadlineExceeded):
		return bailey.Killed
	case errors.Is(c.err, bailey.Denied), errors.Is(c.err, bailey.Blocked):
		return bailey.Refused
	}
	return bailey.Failed
}

func (c *callState) buildResult(o bailey.Outcome) bailey.Result {
	r := bailey.Result{
		Receipt: c.receipt, Status: o.Status, Decision: c.decision, Approval: c.approval, DryRun: c.call.DryRun,
		Executed: c.executed, Cage: o.Cage, Argv: o.Argv, Truncated: o.Truncated, Refused: c.refused,
		Notices: c.notices, Err: c.redactError(c.err),
	}
	// The text is withheld. If an attacker can guess the rest of it, the digest would reveal the secret.
	if r.Cage != nil && r.Cage.Plan == "" {
		cage := *r.Cage
		cage.PlanDigest, r.Cage = "", &cage
	}
	if c.stdout != nil {
		r.Stdout, r.Stderr, r.ExitCode = c.stdout.kept, c.stderr.kept, c.exit.Code
		r.Structured = c.structured
	}
	if c.manifest != nil {
		r.Promised = c.manifest.OutputSchema() != nil
	}
	if r.Truncated {
		r.Narrow = c.manifest.Narrow()
	}
	return r
}

// notDurable returns the result of a call whose outcome could not be written to the ledger.
func (c *callState) notDurable(err error) bailey.Result {
	c.Log.Error("the outcome is not durable", "receipt", c.receipt, "executed", c.executed, "err", err)
	message := "executed: no, receipt: not durable"
	if c.executed {
		message = "executed: yes, receipt: not durable"
	}
	return bailey.Result{Receipt: c.receipt, Status: bailey.Failed, Executed: c.executed, NotDurable: true,
		DryRun: c.call.DryRun,
		Err: bailey.Unavailable.Wrap(err, message,
			"check the ledger's disk, then run bailey gateway stop; the next start records the call as interrupted")}
}

// redactText redacts one text.
func (c *callState) redactText(s string) string {
	s, _ = c.Redactor.Value(c.call.Session.ID, s).(string)
	return s
}

// redactMessage redacts a text of the gateway about the call, which may already contain tokens.
func (c *callState) redactMessage(s string) string {
	return string(c.Redactor.Again(c.call.Session.ID, []byte(s)))
}

// redactError returns err as the caller may see it. It keeps the kind and, if nothing was redacted, the error chain.
func (c *callState) redactError(err error) error {
	if err == nil {
		return nil
	}
	text, hint := c.redactMessage(err.Error()), c.redactMessage(bailey.HintOf(err))
	if text == err.Error() && hint == bailey.HintOf(err) {
		return err
	}
	return bailey.KindOf(err).New(clipText(text, bailey.InlineCap), hint)
}

// clipText limits a text so that it fits into a ledger entry, which has 64 KiB in total.
func clipText(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func variableNames(lists ...[]string) []string {
	var out []string
	for _, env := range lists {
		for _, pair := range env {
			for i := range len(pair) {
				if pair[i] == '=' {
					out = append(out, pair[:i])
					break
				}
			}
		}
	}
	return out
}
