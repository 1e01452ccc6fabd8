package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/pack"
)

// callState is the state of one call. Only one goroutine uses it.
type callState struct {
	*Gate
	call     bailey.Call
	receipt  bailey.ReceiptID
	started  time.Time
	manifest *pack.Capability
	profile  Profile

	input    map[string]any // tokens restored; typed by the manifest after check
	text     bool           // the values in input are still untyped text
	restored []string
	places   []bailey.Place
	person   pack.GitPerson // settings of git, for a call in a repository
	signing  Signing        // signs commits or tags of the call; nil if it signs nothing
	signs    *pack.Signing  // what it signs; nil if nothing
	argv     []string
	job      bailey.Job
	run      bailey.Run

	files   []bailey.FrozenFile // snapshots of files that the call names, from the time of the question
	thaw    []func()            // functions that release the snapshots
	looks   []bailey.Job        // jobs that show the effect of the call
	preview bailey.Preview      // their command lines and output, until a person is asked
	seen    [sha256.Size]byte   // digest of that output

	decision bailey.Decision
	verdict  Verdict
	heard    bailey.Heard     // the verdict to keep if the call becomes pending
	hooksAt  bailey.ReceiptID // the call at which the hooks were asked, if this call reuses their verdict
	changed  bool             // a hook changed the input
	granted  []bailey.RuleID
	answer   bailey.Answer
	scopes   []bailey.LeaseScope // scopes of the credentials to lend
	approval bailey.ApprovalID
	pending  bool
	allowed  Allowance
	ran, cpu time.Duration // wall and CPU time of the tool
	lease    bailey.Lease
	inject   []bailey.Injection // credentials that were lent as placeholders
	way      bailey.Way         // outer side of the network of the cage; nil if it has no network
	egress   *bailey.EgressReport
	refused  []string // refused connections, one line each

	asked   []bailey.AskedHook
	notices []string // of hooks, for the person

	executed       bool
	structured     json.RawMessage // output as JSON, if the manifest promises it
	failed         error           // error of a tool that ran, until the hooks have seen the output
	held           bool            // output is held back until then
	exit           bailey.Exit
	stdout, stderr *capture

	finished bool // all stages are done
	err      error
}

func (g *Gate) newCallState(call bailey.Call) *callState {
	return &callState{
		Gate: g, call: call, receipt: bailey.NewReceiptID(), started: time.Now(),
		input: call.Input, text: call.Text, lease: bailey.Lease{Return: func() {}},
		allowed: Allowance{Settle: func(Use) {}},
	}
}

func (c *callState) runStage(stage string, ctx context.Context, do func(context.Context) error) error {
	start := time.Now()
	defer func() { c.Observe(Step{c.receipt, stage, start, time.Since(start)}) }()
	err := do(ctx)
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(cause, context.Canceled) &&
		!errors.As(err, new(*bailey.Error)) {
		return cause // a library may return only "context canceled"; the cause gives the reason
	}
	return err
}

// failWith ends the call with err. The deferred seal builds the result.
func (c *callState) failWith(err error) bailey.Result {
	c.err = err
	return bailey.Result{}
}

func (c *callState) lookupCapability(context.Context) error {
	c.profile = c.Catalog.Profile() // read before Lookup, so that check detects a change of the profile
	m, err := c.Catalog.Lookup(c.call.Capability)
	if err == nil {
		c.manifest, err = m.Quoting(c.redactMessage).WithTimeout(c.call.Timeout)
		return err
	}
	if hidden := bailey.CapabilityID(c.redactMessage(string(c.call.Capability))); hidden != c.call.Capability {
		if _, of := c.Catalog.Lookup(hidden); of != nil {
			err = of // its message shortens the name after redaction, not before
		}
	}
	return err
}

func (c *callState) restoreTokens(context.Context) (err error) {
	c.input, c.restored, err = c.Redactor.Restore(c.call.Session.ID, c.manifest, c.input)
	return err
}

// checkInput types the input, opens every path, resolves the remote of a repository, renders the arguments once and plans the run.
func (c *callState) checkInput(ctx context.Context) (err error) {
	c.closePlan()
	find := func() (pack.Checkout, error) { return c.Places.Checkout(c.call) }
	if c.input, err = c.manifest.FillCheckout(c.input, find); err != nil {
		return err
	}
	if c.input, err = c.manifest.Check(c.input, c.text); err != nil {
		return err
	}
	c.text = false
	for _, in := range c.manifest.PathInputs() {
		if err = c.openInput(in); err != nil {
			return err
		}
	}
	if err = c.openWorkspace(); err != nil {
		return err
	}
	if c.input, err = c.resolveRemote(c.input); err != nil {
		return err
	}
	if c.argv, err = c.manifest.Render(c.input, c.inputPaths()); err != nil {
		return err
	}
	if err = c.usePerson(ctx); err != nil {
		return err
	}
	return c.planRun(ctx)
}

// inputPaths returns the paths of the opened places by input name.
func (c *callState) inputPaths() map[string]string { return pack.InputPaths(c.places) }

// oneProfile refuses a call if the profile has changed since the lookup. Otherwise rights from one profile could be
// judged under another one.
func (c *callState) oneProfile() error {
	if c.Catalog.Profile() != c.profile {
		return bailey.Conflict.New("the profiles were changed while this call was planned", "call again")
	}
	return nil
}

// planRun plans the run of the rendered arguments and the opened places. It replaces an earlier plan.
func (c *callState) planRun(ctx context.Context) error {
	if err := c.prepareRun(ctx); err != nil {
		return err
	}
	return c.oneProfile()
}

func (c *callState) prepareRun(ctx context.Context) error {
	if c.manifest.Isolation == pack.Workflow && !c.call.Own {
		return c.planWorkflow(ctx)
	}
	isolation := c.manifest.Isolation
	if c.call.Own {
		isolation = pack.Agent
	}
	runner, ok := c.Runners[isolation]
	if !ok {
		return bailey.Unavailable.Errorf("use a capability that runs in the jail, or a host that supports this isolation",
			"%s requires isolation %s, which this gateway does not support", c.manifest.ID, isolation)
	}
	c.job = c.manifest.Job(c.argv, c.places)
	c.manifest.SetPerson(&c.job, c.person)
	c.manifest.SetUnlent(&c.job, c.input)
	c.job.Session, c.job.Principal = c.call.Session.ID, c.call.Principal
	places, err := c.manifest.Egress(c.input)
	if err != nil {
		return err
	}
	if c.job.Network, err = c.Egress.Plan(c.manifest, places); err != nil {
		return err
	}
	if c.job.Network == nil && c.manifest.Loopback() {
		c.job.Network = &bailey.Network{}
	}
	if c.signing != nil {
		c.manifest.SetSigning(&c.job, c.signing.Key())
	}
	run, err := runner.Plan(ctx, c.job)
	if err != nil {
		return err
	}
	c.closeRun()
	c.run = run
	return nil
}

func (c *callState) policyRequest() bailey.Request {
	cage := c.run.Cage()
	r := bailey.Request{
		Capability: c.manifest.ID, Manifest: c.manifest.Digest, Principal: c.call.Principal, Session: c.call.Session,
		Target: c.manifest.Target(c.input), Labels: cage.Labels, Commands: cage.Commands, Input: c.input, Paths: map[string]string{},
		Dir: c.job.Dir, Cage: cage.Kind, Absent: cage.Absent, Changed: cage.Changed(),
		Restores: c.restored, Waivers: c.manifest.Waivers(), Writes: c.manifest.Uncaged(), Time: time.Now(),
		Approvals: c.granted, Profile: c.profile.Name, Environ: c.profile.Environment,
	}
	for _, p := range c.places {
		if p.Input != "" { // the workspace is in r.Dir
			r.Paths[p.Input] = p.Path
		}
		r.Writes = r.Writes || p.Write
	}
	r.Egress = c.reachableTargets(bailey.Endpoint.String)
	return r
}

func (c *callState) decideCall(context.Context) error {
	c.decision = c.Policy.Decide(c.policyRequest())
	if ch, ok := c.run.(*workflowRun); ok {
		c.decision = ch.combineDecisions(c.decision)
	}
	return c.denialWithHint(c.decision)
}

// maxHookReason limits the text of a hook that the caller gets, in bytes.
const maxHookReason = 1 << 10

// maxNotices limits the notices of a call.
const maxNotices = 16

// addNotices adds texts of hooks, which may hold anything.
func (c *callState) addNotices(list []string) {
	for _, text := range list[:min(len(list), maxNotices-len(c.notices))] {
		c.notices = append(c.notices, clipText(c.redactMessage(text), maxHookReason))
	}
}

// redactedCall returns the call as hooks may see it.
func (c *callState) redactedCall() bailey.Call {
	view := c.call
	view.Input, _ = c.Redactor.Value(c.call.Session.ID, c.input).(map[string]any)
	view.Dir, view.Client, view.Stdout, view.Stderr = c.redactText(c.call.Dir), "", nil, nil
	return view
}

func (c *callState) preHooks(ctx context.Context) (err error) {
	c.verdict, err = c.verdictOf(ctx, c.redactedCall())
	c.asked = append(c.asked, c.verdict.Asked...)
	c.addNotices(c.verdict.Notices)
	c.verdict.Rule.Reason = clipText(c.redactMessage(c.verdict.Rule.Reason), maxHookReason)
	if err != nil {
		return bailey.Denied.Wrap(err, "a hook before the call failed", "fix the hook, or remove it")
	}
	switch {
	case c.verdict.Input == nil:
	case c.call.Own: // the agent executes the original input, whatever input the hooks judged
		c.verdict.Effect = bailey.Deny
		c.verdict.Rule = bailey.Rule{ID: "hook", Reason: "a hook changed the input, but the agent executes the original input itself"}
	default:
		c.input, c.changed = c.verdict.Input, true
	}
	c.decision = stricterDecision(c.decision, bailey.Decision{
		Effect: c.verdict.Effect, Reason: c.verdict.Rule.Reason, Asks: []bailey.Rule{c.verdict.Rule},
		Rules: []bailey.Rule{c.verdict.Rule},
	})
	return denialError(c.decision)
}

// redecide repeats restore, check and decide for an input that a hook changed. The stricter decision applies.
func (c *callState) redecide(ctx context.Context) error {
	if !c.changed {
		return nil
	}
	first := c.decision
	for _, do := range []func(context.Context) error{c.restoreTokens, c.checkInput, c.decideCall} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	c.decision = stricterDecision(first, c.decision)
	return denialError(c.decision)
}

func (c *callState) requestApproval(ctx context.Context) error {
	if c.call.Own || c.manifest.Isolation == pack.Agent {
		return advisoryOnlyError(c.manifest.ID) // before a person is asked
	}
	if c.decision.Effect != bailey.Ask {
		return nil
	}
	if c.granted = c.workflowGrants(); len(c.granted) > 0 {
		c.approval = c.call.Within.Approval
		return nil
	}
	err := c.previewCall(ctx)
	if err != nil {
		return err
	}
	wants := c.wantedCredentials()
	if c.scopes, err = c.Lender.Scope(ctx, wants); err != nil {
		return err
	}
	for i := range c.scopes {
		c.scopes[i].Inject = wants[i].Inject
	}
	q := c.buildQuestion()
	c.approval = q.ID
	answer, err := c.Approver.Ask(ctx, q)
	if answer.Question != "" { // an earlier question of the same call
		c.approval = answer.Question
	}
	if err != nil {
		return err
	}
	c.answer, c.granted = answer, answer.Granted
	if answer.Pending {
		c.pending = true
		return bailey.Denied.New("a person must approve this: "+strings.TrimPrefix(c.decision.Reason, "a person must approve this: "),
			fmt.Sprintf("approval %s is open until %s; then repeat the same call; it runs once", c.approval,
				answer.Expires.UTC().Format(time.RFC3339)))
	}
	for _, rule := range c.decision.Asks {
		if !slices.Contains(c.granted, rule.ID) {
			return bailey.Denied.Errorf("tell the person you work for: "+cmp.Or(rule.Reason, string(rule.ID)),
				"rule %s requires an approval: %s", rule.ID, answer.Reason)
		}
	}
	return nil
}

// confirmDecision asks the current policy again, with the grants. A new forbid rule, a new ask rule or a later time of day
// still stops the call. The question of a hook counts as answered only if its rule was granted, which approve has
// checked.
func (c *callState) confirmDecision(ctx context.Context) error {
	policy, err := c.stillAsked()
	if err != nil {
		return err
	}
	d := c.Policy.Decide(c.policyRequest())
	if len(c.granted) > 0 && d.Effect != bailey.Deny && d.Policy != policy {
		return bailey.Conflict.New("the policy changed while this call was decided", "call again")
	}
	if d.Effect == bailey.Ask {
		d.Effect = bailey.Deny
		d.Reason = "the rules now require another approval: " + d.Reason
		d.Hint = "call again"
	}
	c.decision = d
	if err := c.denialWithHint(d); err != nil {
		return err
	}
	if err := c.stillResolved(); err != nil {
		return err
	}
	return c.stillShown(ctx)
}

// reserveBudget reserves the resources of the call. release settles them.
func (c *callState) reserveBudget(context.Context) error {
	a, err := c.Budgets.Take(c.policyRequest())
	if err != nil {
		return err
	}
	if a.Settle == nil {
		a.Settle = func(Use) {}
	}
	c.allowed = a
	return nil
}

// budgetSpentError is the error of a call that was stopped because its budget is used up.
type budgetSpentError string

func (s budgetSpentError) Error() string {
	return fmt.Sprintf("budget %s is used up, and the tool was killed", string(s))
}

// budgetContext returns a context that ends when the wall time or output budget of the call is used up. The caller must report
// every write of the tool to more, and must call done at the end.
func (c *callState) budgetContext(ctx context.Context) (_ context.Context, more func(n int), done func()) {
	a := c.allowed
	ctx, cancel := context.WithCancelCause(ctx)
	done = func() { cancel(nil) }
	if a.Wall > 0 {
		timer := time.AfterFunc(a.Wall, func() { cancel(bailey.Gentle{Cause: budgetSpentError(a.WallOf)}) })
		done = func() { timer.Stop(); cancel(nil) }
	}
	var wrote atomic.Int64
	return ctx, func(n int) {
		if wrote.Add(int64(n)) > a.Output && a.Output > 0 {
			cancel(budgetSpentError(a.OutputOf))
		}
	}, done
}

// wantedCredentials returns the credentials that the manifest names, and those that the run itself needs.
func (c *callState) wantedCredentials() []bailey.Want {
	wants := c.manifest.WantsFor(c.input)
	if r, ok := c.run.(bailey.WantingRun); ok {
		wants = append(wants, r.Wants()...)
	}
	return wants
}

func (c *callState) lendCredentials(ctx context.Context) error {
	wants := c.wantedCredentials()
	lease, err := c.Lender.Lend(ctx, bailey.Loan{
		Receipt: c.receipt, Capability: c.manifest.ID, Wants: wants, Text: c.answer.Text,
		Signatures: c.answer.Signatures,
	})
	if err != nil {
		return err
	}
	if lease.Return == nil {
		lease.Return = func() {}
	}
	c.lease = lease
	for _, f := range lease.Files {
		lease.Secrets = append(lease.Secrets, f.Value)
	}
	c.Redactor.Learn(c.call.Session.ID, lease.Secrets)
	return c.injectPlaceholders(wants)
}

// runTool runs the planned job. From here on the receipt says executed, unless the runner reports that the tool never
// started. If the tool fails, its error is kept until the hooks have seen the output. A tool therefore cannot bypass
// the hooks by failing.
func (c *callState) runTool(ctx context.Context) error {
	err := c.executeRun(ctx)
	if c.executed {
		c.failed, err = err, nil
	}
	return err
}

func (c *callState) executeRun(ctx context.Context) error {
	ctx, more, done := c.budgetContext(ctx)
	defer done()
	stdout, stderr := c.call.Stdout, c.call.Stderr
	if c.held = c.Hooks.Holds(c.call.Capability); c.held {
		stdout, stderr = nil, nil
	}
	c.stdout = c.newCapture(stdout, more)
	c.stderr = c.newCapture(stderr, more)
	stdin, shut, err := c.openStdin()
	if err != nil {
		return err
	}
	defer shut()
	c.executed = true
	begun := time.Now()
	exit, err := c.run.Start(ctx, bailey.Lent{Env: c.lease.Env, Files: c.lease.Files, Way: c.outerWay()}, bailey.Streams{Stdin: stdin, Stdout: c.stdout, Stderr: c.stderr})
	c.ran = time.Since(begun)
	c.recordEgress()
	var used budgetSpentError // if a tool exits by itself after SIGTERM, Start returns no error
	ended := errors.As(context.Cause(ctx), &used)
	c.cpu = c.run.CPU()
	if cerr := c.stdout.Close(); err == nil {
		err = cerr
	}
	if cerr := c.stderr.Close(); err == nil {
		err = cerr
	}
	c.exit, c.executed = exit, err == nil || exit.Code != bailey.NeverRan
	// The whole limit counts as used, even if the timer fired slightly early.
	if ended && string(used) == c.allowed.WallOf {
		c.ran = max(c.ran, c.allowed.Wall)
	}
	switch {
	case ended && (errors.Is(err, used) || err == nil && exit.Code != 0):
		return bailey.ToolFailed.New(used.Error(), "run bailey budget to see what is left")
	case err != nil:
		return err
	case exit.TimedOut:
		return bailey.ToolFailed.New("the tool timed out and was killed",
			"narrow the call: it exceeded the timeout of the capability")
	case exit.Over != "":
		return bailey.ToolFailed.New(exit.Over+", and was killed",
			"narrow the call: it exceeded memoryMiB or tasks of the capability")
	case exit.Code != 0:
		return bailey.ToolFailed.Errorf(cmp.Or(c.signatureHint(), c.refusedHint()), "the tool exited with code %d", exit.Code)
	}
	return nil
}

// postHooks passes the kept output to the hooks and redacts the text that they return. Until the hooks have seen it,
// the caller gets no output, on any path. If no hook is configured, the output has already been written and stays
// unchanged.
func (c *callState) postHooks(ctx context.Context) error {
	seen := Output{Stdout: c.stdout.kept, Stderr: c.stderr.kept, ExitCode: c.exit.Code, Failed: c.failed != nil}
	c.stdout.kept, c.stderr.kept = nil, nil
	out, err := c.Hooks.Post(ctx, c.redactedCall(), seen)
	c.asked = append(c.asked, out.Asked...)
	c.addNotices(out.Notices)
	switch {
	case err != nil && ctx.Err() != nil && c.failed != nil:
		return c.failed // the cancellation stopped both the tool and the hook
	case err != nil:
		return bailey.Denied.Wrap(err, "a hook after the call failed, so the result is withheld",
			"fix the hook, or remove it")
	}
	c.redactAgain(c.stdout, seen.Stdout, out.Stdout)
	c.redactAgain(c.stderr, seen.Stderr, out.Stderr)
	if c.held {
		err = errors.Join(c.stdout.writeHeld(c.call.Stdout), c.stderr.writeHeld(c.call.Stderr))
	}
	return cmp.Or(c.failed, err)
}

// releaseAll returns everything that the call held, on every exit path.
func (c *callState) releaseAll() {
	c.allowed.Settle(c.resourcesUsed())
	c.lease.Return()
	c.inject = nil
	c.closePlan()
}

// resourcesUsed returns the resources that the call used. It returns zero if no tool was started.
func (c *callState) resourcesUsed() (u Use) {
	if !c.executed {
		return u
	}
	u = Use{Wall: c.ran, CPU: c.cpu}
	u.InputTokens, u.OutputTokens = c.exit.Model.Tokens()
	u.MicroUSD = c.exit.Model.Price()
	if c.stdout != nil && c.stderr != nil {
		u.Output = c.stdout.seen + c.stderr.seen
	}
	return u
}

func (c *callState) closePlan() {
	c.closeRun()
	for _, p := range c.places {
		p.File.Close()
	}
	for _, release := range c.thaw {
		release()
	}
	if c.person.Ignore != nil {
		c.person.Ignore.File.Close()
	}
	c.places, c.thaw, c.person, c.signing, c.signs = nil, nil, pack.GitPerson{}, nil, nil
}

func (c *callState) closeRun() {
	if c.run != nil {
		if err := c.run.Close(); err != nil {
			c.Log.Warn("cannot close a run", "receipt", c.receipt, "err", err)
		}
		c.run = nil
	}
}

// denialError returns an error if the decision denies.
func denialError(d bailey.Decision) error {
	if d.Effect != bailey.Deny {
		return nil
	}
	reason := d.Reason
	if reason == "" {
		reason = "no rule allows this"
	}
	return bailey.Denied.New(reason, d.Hint)
}

// denialWithHint returns the error of a denied call. If the cage is weaker than the full cage, which may be the reason, the
// hint explains how to get the full one.
func (c *callState) denialWithHint(d bailey.Decision) error {
	if cage := c.run.Cage(); cage.Lesser != "" {
		words := fmt.Sprintf("this host supports only the jail %s: %s", cage.Kind, cage.Lesser)
		d.Hint = strings.TrimPrefix(d.Hint+"; "+words, "; ")
	}
	return denialError(d)
}

// stricterDecision combines two decisions. The stricter one applies. If both ask, the result asks for both.
func stricterDecision(a, b bailey.Decision) bailey.Decision {
	switch {
	case a.Effect == bailey.Ask && b.Effect == bailey.Ask:
		a.Asks = slices.Clone(a.Asks)
		for _, r := range b.Asks {
			if !slices.ContainsFunc(a.Asks, r.Same) {
				a.Asks = append(a.Asks, r)
			}
		}
		return a
	case b.Effect.Stricter(a.Effect) == a.Effect:
		return a
	}
	b.Policy = cmp.Or(b.Policy, a.Policy)
	return b
}

// panicError turns a panic into an error and logs its stack for the operator.
func (c *callState) panicError(p any) error {
	c.Log.Error("a stage panicked", "receipt", c.receipt, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return bailey.Internal.New("a stage of the gate failed", "report it with the gateway's log")
}

func argvValues(command string, args []string) []any {
	list := []any{command}
	for _, a := range args {
		list = append(list, a)
	}
	return list
}

func toStrings(list []any) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, _ := v.(string)
		out = append(out, s)
	}
	return out
}

// inlineJSON returns v as JSON in whole. short is the same if it is small enough for the ledger, otherwise nil.
func inlineJSON(v any) (short json.RawMessage, whole []byte) {
	whole, err := json.Marshal(v)
	if err != nil || len(whole) > bailey.InlineCap {
		return nil, whole
	}
	return whole, whole
}
