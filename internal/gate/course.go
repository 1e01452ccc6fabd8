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

// course is one call on its way: what is known of it so far. One goroutine walks it.
type course struct {
	*Gate
	call     bailey.Call
	receipt  bailey.ReceiptID
	started  time.Time
	manifest *pack.Capability
	profile  Profile

	input    map[string]any // restored, typed by the manifest after check
	text     bool           // input still holds words
	restored []string
	places   []bailey.Place
	argv     []string
	job      bailey.Job
	run      bailey.Run

	files   []bailey.FrozenFile // what the call names, as it was when a person was asked
	thaw    []func()            // gives those up
	looks   []bailey.Job        // that show what the call would do
	preview bailey.Preview      // what they showed, until somebody is asked
	seen    [sha256.Size]byte   // of that

	decision bailey.Decision
	verdict  Verdict
	heard    bailey.Heard     // what that is kept as, should the call be parked
	hooksAt  bailey.ReceiptID // the call at which hooks were asked, where this one was
	changed  bool             // a hook changed the input
	granted  []bailey.RuleID
	answer   bailey.Answer
	scopes   []bailey.LeaseScope // of what would be lent
	approval bailey.ApprovalID
	pending  bool
	allowed  Allowance
	ran, cpu time.Duration // of the tool
	lease    bailey.Lease
	inject   []bailey.Injection // of what was lent as placeholders
	way      bailey.Way         // out of the cage; nil where it has no network
	egress   *bailey.EgressReport
	refused  []string // of it, a line each

	asked []bailey.AskedHook

	executed       bool
	structured     json.RawMessage // the output, where the manifest promises one
	failed         error           // of a tool that ran, until hooks have seen what it wrote
	held           bool            // what it writes goes out after that
	exit           bailey.Exit
	stdout, stderr *capture

	finished bool // the line was walked to its end
	err      error
}

func (g *Gate) begin(call bailey.Call) *course {
	return &course{
		Gate: g, call: call, receipt: bailey.NewReceiptID(), started: time.Now(),
		input: call.Input, text: call.Text, lease: bailey.Lease{Return: func() {}}, allowed: Allowance{Settle: func(Use) {}},
	}
}

func (c *course) timed(stage string, ctx context.Context, do func(context.Context) error) error {
	start := time.Now()
	defer func() { c.Observe(Step{c.receipt, stage, start, time.Since(start)}) }()
	err := do(ctx)
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(cause, context.Canceled) && !errors.As(err, new(*bailey.Error)) {
		return cause // says why, where a library says "context canceled"
	}
	return err
}

// stop ends the line with err; the deferred seal makes the result.
func (c *course) stop(err error) bailey.Result {
	c.err = err
	return bailey.Result{}
}

func (c *course) lookup(context.Context) error {
	c.profile = c.Catalog.Profile() // of before: a swap since then shows in check
	m, err := c.Catalog.Lookup(c.call.Capability)
	if err == nil {
		c.manifest = m.Quoting(c.again)
		return nil
	}
	if hidden := bailey.CapabilityID(c.again(string(c.call.Capability))); hidden != c.call.Capability {
		if _, of := c.Catalog.Lookup(hidden); of != nil {
			err = of // its complaint cuts what is hidden already
		}
	}
	return err
}

func (c *course) restore(context.Context) (err error) {
	c.input, c.restored, err = c.Redactor.Restore(c.call.Session.ID, c.manifest, c.input)
	return err
}

// check types the input, opens every path, renders the arguments once and plans the run.
func (c *course) check(ctx context.Context) (err error) {
	c.closePlan()
	if c.input, err = c.manifest.Check(c.input, c.text); err != nil {
		return err
	}
	c.text = false
	paths := map[string]string{}
	for _, in := range c.manifest.PathInputs() {
		given, present := c.input[in.Name]
		if !present {
			continue // Check has refused a missing required one
		}
		value, ok := given.(string)
		if !ok { // what is not opened must not reach the tool
			return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s is no path", in.Name), Hint: "pass one path as text"}
		}
		place, err := c.Places.Open(c.call, in, value)
		if err != nil {
			return err
		}
		c.places = append(c.places, place)
		paths[in.Name] = place.Path
	}
	if err = c.furnish(); err != nil {
		return err
	}
	if c.argv, err = c.manifest.Render(c.input, paths); err != nil {
		return err
	}
	return c.plan(ctx)
}

// paths are those of the opened places, by input.
func (c *course) paths() map[string]string {
	paths := map[string]string{}
	for _, p := range c.places {
		paths[p.Input] = p.Path
	}
	return paths
}

// oneProfile refuses a call whose lookup and plan may have met two profiles: what one lends would be judged as the other's.
func (c *course) oneProfile() error {
	if c.Catalog.Profile() != c.profile {
		return &bailey.Error{Kind: bailey.Conflict, Message: "another profile was put to use while this call was planned", Hint: "call again"}
	}
	return nil
}

// plan plans the run of the rendered arguments and the opened places, in place of one that was planned before.
func (c *course) plan(ctx context.Context) error {
	if err := c.prepareRun(ctx); err != nil {
		return err
	}
	return c.oneProfile()
}

func (c *course) prepareRun(ctx context.Context) error {
	if c.manifest.Isolation == pack.Workflow && !c.call.Own {
		return c.chain(ctx)
	}
	isolation := c.manifest.Isolation
	if c.call.Own {
		isolation = pack.Agent
	}
	runner, ok := c.Runners[isolation]
	if !ok {
		return &bailey.Error{Kind: bailey.Unavailable,
			Message: fmt.Sprintf("%s wants isolation %s, which this gateway cannot give", c.manifest.ID, isolation),
			Hint:    "use a capability that runs in the jail, or a host that can give this isolation"}
	}
	c.job = c.manifest.Job(c.argv, c.places)
	c.job.Session = c.call.Session.ID
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
	run, err := runner.Plan(ctx, c.job)
	if err != nil {
		return err
	}
	c.closeRun()
	c.run = run
	return nil
}

func (c *course) request() bailey.Request {
	cage := c.run.Cage()
	r := bailey.Request{
		Capability: c.manifest.ID, Manifest: c.manifest.Digest, Principal: c.call.Principal, Session: c.call.Session,
		Target: bailey.Target{Kind: "local"}, Input: c.input, Paths: map[string]string{},
		Dir: c.job.Dir, Cage: cage.Kind, Absent: cage.Absent, Changed: cage.Changed(),
		Restores: c.restored, Waivers: c.manifest.Waivers(), Writes: c.manifest.Uncaged(), Time: time.Now(), Approvals: c.granted, Profile: c.profile.Name, Environ: c.profile.Environment,
	}
	for _, p := range c.places {
		if p.Input != "" { // the workspace is r.Dir
			r.Paths[p.Input] = p.Path
		}
		r.Writes = r.Writes || p.Write
	}
	r.Egress = c.reaches(bailey.Endpoint.String)
	return r
}

func (c *course) decide(context.Context) error {
	c.decision = c.Policy.Decide(c.request())
	if ch, ok := c.run.(*chain); ok {
		c.decision = ch.foreseen(c.decision)
	}
	return c.denial(c.decision)
}

// maxHookReason bounds what a hook says to whoever called, in bytes.
const maxHookReason = 1 << 10

// view is the call as hooks may see it.
func (c *course) view() bailey.Call {
	view := c.call
	view.Input, _ = c.Redactor.Value(c.call.Session.ID, c.input).(map[string]any)
	view.Dir, view.Client, view.Stdout, view.Stderr = c.hide(c.call.Dir), "", nil, nil
	return view
}

func (c *course) preHooks(ctx context.Context) (err error) {
	c.verdict, err = c.verdictOf(ctx, c.view())
	c.asked = append(c.asked, c.verdict.Asked...)
	c.verdict.Rule.Reason = clip(c.again(c.verdict.Rule.Reason), maxHookReason)
	if err != nil {
		return &bailey.Error{Kind: bailey.Denied, Message: "a hook before the call failed", Hint: "mend the hook, or take it out", Err: err}
	}
	switch {
	case c.verdict.Input == nil:
	case c.call.Own: // what was asked for is what it will do, whatever the answer was about
		c.verdict.Effect = bailey.Deny
		c.verdict.Rule = bailey.Rule{ID: "hook", Reason: "a hook changed the input, and who asks acts by itself"}
	default:
		c.input, c.changed = c.verdict.Input, true
	}
	c.decision = tighten(c.decision, bailey.Decision{
		Effect: c.verdict.Effect, Reason: c.verdict.Rule.Reason, Asks: []bailey.Rule{c.verdict.Rule},
		Rules: []bailey.Rule{c.verdict.Rule},
	})
	return denial(c.decision)
}

// onceMore walks restore, check and decide once more for an input that a hook changed. The stricter
// decision holds.
func (c *course) onceMore(ctx context.Context) error {
	if !c.changed {
		return nil
	}
	first := c.decision
	for _, do := range []func(context.Context) error{c.restore, c.check, c.decide} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	c.decision = tighten(first, c.decision)
	return denial(c.decision)
}

func (c *course) approve(ctx context.Context) error {
	if c.call.Own || c.manifest.Isolation == pack.Agent {
		return theirs(c.manifest.ID) // before anybody is asked
	}
	if c.decision.Effect != bailey.Ask {
		return nil
	}
	if c.granted = c.vouched(); len(c.granted) > 0 {
		c.approval = c.call.Within.Approval
		return nil
	}
	err := c.foresee(ctx)
	if err != nil {
		return err
	}
	wants := c.manifest.Wants()
	if c.scopes, err = c.Lender.Scope(ctx, wants); err != nil {
		return err
	}
	for i := range c.scopes {
		c.scopes[i].Inject = wants[i].Inject
	}
	q := c.question()
	c.approval = q.ID
	answer, err := c.Approver.Ask(ctx, q)
	if answer.Question != "" { // one that the same call asked before
		c.approval = answer.Question
	}
	if err != nil {
		return err
	}
	c.answer, c.granted = answer, answer.Granted
	if answer.Pending {
		c.pending = true
		return &bailey.Error{Kind: bailey.Denied,
			Message: "a person has to approve this: " + c.decision.Reason,
			Hint:    fmt.Sprintf("approval %s is open until %s; once it is granted, the same call runs, once", c.approval, answer.Expires.UTC().Format(time.RFC3339))}
	}
	for _, rule := range c.decision.Asks {
		if !slices.Contains(c.granted, rule.ID) {
			return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("rule %s asks for an approval: %s", rule.ID, answer.Reason),
				Hint: "tell the person you work for: " + cmp.Or(rule.Reason, string(rule.ID))}
		}
	}
	return nil
}

// confirm lets the policy of now decide, with the grants in hand: a new forbid, a new ask or a later
// hour still stops the call. A hook's own question counts as answered only by a grant of its rule,
// which approve has seen.
func (c *course) confirm(ctx context.Context) error {
	policy, err := c.stillAsked()
	if err != nil {
		return err
	}
	d := c.Policy.Decide(c.request())
	if len(c.granted) > 0 && d.Effect != bailey.Deny && d.Policy != policy {
		return &bailey.Error{Kind: bailey.Conflict, Message: "the policy changed while this call was decided", Hint: "call again"}
	}
	if d.Effect == bailey.Ask {
		d.Effect = bailey.Deny
		d.Reason = "the rules ask for another approval now: " + d.Reason
		d.Hint = "call again"
	}
	c.decision = d
	if err := c.denial(d); err != nil {
		return err
	}
	return c.stillShown(ctx)
}

// budget takes what the call may use; release settles it.
func (c *course) budget(context.Context) error {
	a, err := c.Budgets.Take(c.request())
	if err != nil {
		return err
	}
	if a.Settle == nil {
		a.Settle = func(Use) {}
	}
	c.allowed = a
	return nil
}

// spent says that a call was ended since its budget is used up.
type spent string

func (s spent) Error() string {
	return fmt.Sprintf("budget %s is used up, and the tool was ended", string(s))
}

// within ends a run when its wall time is used up. more is to be told of all that the tool writes.
func (c *course) within(ctx context.Context) (_ context.Context, more func(n int), done func()) {
	a := c.allowed
	ctx, cancel := context.WithCancelCause(ctx)
	done = func() { cancel(nil) }
	if a.Wall > 0 {
		timer := time.AfterFunc(a.Wall, func() { cancel(bailey.Gentle{Cause: spent(a.WallOf)}) })
		done = func() { timer.Stop(); cancel(nil) }
	}
	var wrote atomic.Int64
	return ctx, func(n int) {
		if wrote.Add(int64(n)) > a.Output && a.Output > 0 {
			cancel(spent(a.OutputOf))
		}
	}, done
}

func (c *course) lend(ctx context.Context) error {
	wants := c.manifest.Wants()
	lease, err := c.Lender.Lend(ctx, bailey.Loan{
		Receipt: c.receipt, Capability: c.manifest.ID, Wants: wants, Text: c.answer.Text, Signatures: c.answer.Signatures,
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
	return c.withhold(wants)
}

// start runs the planned job. From here on the receipt says executed. That the tool failed is told once hooks have seen
// what it wrote: a failure is no way around them.
func (c *course) start(ctx context.Context) error {
	err := c.execute(ctx)
	if c.executed {
		c.failed, err = err, nil
	}
	return err
}

func (c *course) execute(ctx context.Context) error {
	ctx, more, done := c.within(ctx)
	defer done()
	stdout, stderr := c.call.Stdout, c.call.Stderr
	if c.held = c.Hooks.Holds(c.call.Capability); c.held {
		stdout, stderr = nil, nil
	}
	c.stdout = c.capture(stdout, more)
	c.stderr = c.capture(stderr, more)
	stdin, shut, err := c.stdin()
	if err != nil {
		return err
	}
	defer shut()
	c.executed = true
	begun := time.Now()
	exit, err := c.run.Start(ctx, bailey.Lent{Env: c.lease.Env, Files: c.lease.Files, Way: c.way}, bailey.Streams{Stdin: stdin, Stdout: c.stdout, Stderr: c.stderr})
	c.ran = time.Since(begun)
	c.report()
	var used spent // a tool that is told to end may do so by itself, and then the run is no error
	ended := errors.As(context.Cause(ctx), &used)
	if m, ok := c.run.(bailey.MeteredRun); ok {
		c.cpu = m.CPU()
	}
	if cerr := c.stdout.Close(); err == nil {
		err = cerr
	}
	if cerr := c.stderr.Close(); err == nil {
		err = cerr
	}
	c.exit, c.executed = exit, err == nil || exit.Code != bailey.NeverRan
	if ended && string(used) == c.allowed.WallOf { // what was set is used up, also where the timer was quicker by a little
		c.ran = max(c.ran, c.allowed.Wall)
	}
	switch {
	case ended && (errors.Is(err, used) || err == nil && exit.Code != 0):
		return &bailey.Error{Kind: bailey.ToolFailed, Message: used.Error(), Hint: "bailey budget shows what is left"}
	case err != nil:
		return err
	case exit.TimedOut:
		return &bailey.Error{Kind: bailey.ToolFailed, Message: "the tool's time was up and it was ended",
			Hint: "narrow the call; the capability's timeout bounds it"}
	case exit.Over != "":
		return &bailey.Error{Kind: bailey.ToolFailed, Message: exit.Over + ", and was ended",
			Hint: "narrow the call; the capability's memoryMiB and tasks bound it"}
	case exit.Code != 0:
		return &bailey.Error{Kind: bailey.ToolFailed, Message: fmt.Sprintf("the tool ended with exit code %d", exit.Code), Hint: c.blocked()}
	}
	return nil
}

// postHooks lets hooks see what was kept of the output, and redacts again what they return. Until they have, none of it
// is the caller's, on whatever way out. Where no hook is asked it went out as it came, and there is nothing left to change.
func (c *course) postHooks(ctx context.Context) error {
	seen := Output{Stdout: c.stdout.kept, Stderr: c.stderr.kept, ExitCode: c.exit.Code, Failed: c.failed != nil}
	c.stdout.kept, c.stderr.kept = nil, nil
	out, err := c.Hooks.Post(ctx, c.view(), seen)
	c.asked = append(c.asked, out.Asked...)
	switch {
	case err != nil && ctx.Err() != nil && c.failed != nil:
		return c.failed // cut off, and with it the hook
	case err != nil:
		return &bailey.Error{Kind: bailey.Denied, Message: "a hook after the call failed, and what came of it is withheld", Hint: "mend the hook, or take it out", Err: err}
	}
	c.redactAgain(c.stdout, seen.Stdout, out.Stdout)
	c.redactAgain(c.stderr, seen.Stderr, out.Stderr)
	if c.held {
		err = errors.Join(c.stdout.deliver(c.call.Stdout), c.stderr.deliver(c.call.Stderr))
	}
	return cmp.Or(c.failed, err)
}

// release gives back what the call held, on every way out.
func (c *course) release() {
	c.allowed.Settle(c.use())
	c.lease.Return()
	c.inject = nil
	c.closePlan()
}

// use is what the call used; nothing, where no tool was started.
func (c *course) use() (u Use) {
	if !c.executed {
		return u
	}
	u = Use{Wall: c.ran, CPU: c.cpu}
	if c.stdout != nil && c.stderr != nil {
		u.Output = c.stdout.seen + c.stderr.seen
	}
	return u
}

func (c *course) closePlan() {
	c.closeRun()
	for _, p := range c.places {
		p.File.Close()
	}
	for _, release := range c.thaw {
		release()
	}
	c.places, c.thaw = nil, nil
}

func (c *course) closeRun() {
	if c.run != nil {
		if err := c.run.Close(); err != nil {
			c.Log.Warn("closing a run", "receipt", c.receipt, "err", err)
		}
		c.run = nil
	}
}

// denial turns a decision that denies into an error.
func denial(d bailey.Decision) error {
	if d.Effect != bailey.Deny {
		return nil
	}
	reason := d.Reason
	if reason == "" {
		reason = "no rule allows this"
	}
	return &bailey.Error{Kind: bailey.Denied, Message: reason, Hint: d.Hint}
}

// denial says of a call whose cage is a lesser one than the full how to have that, for it may be why.
func (c *course) denial(d bailey.Decision) error {
	if cage := c.run.Cage(); cage.Lesser != "" {
		words := fmt.Sprintf("this host gives the cage %s alone: %s", cage.Kind, cage.Lesser)
		d.Hint = strings.TrimPrefix(d.Hint+"; "+words, "; ")
	}
	return denial(d)
}

// tighten joins two decisions: the stricter one holds, and two that ask ask for both.
func tighten(a, b bailey.Decision) bailey.Decision {
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

// caught turns a panic into an error and keeps its stack for the operator.
func (c *course) caught(p any) error {
	c.Log.Error("a stage panicked", "receipt", c.receipt, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return &bailey.Error{Kind: bailey.Internal, Message: "a stage of the gate broke", Hint: "report it with the gateway's log"}
}

func words(command string, args []string) []any {
	list := []any{command}
	for _, a := range args {
		list = append(list, a)
	}
	return list
}

func texts(list []any) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, _ := v.(string)
		out = append(out, s)
	}
	return out
}

// inline returns v as JSON, and that again when it is short enough to stand in the ledger.
func inline(v any) (short json.RawMessage, whole []byte) {
	whole, err := json.Marshal(v)
	if err != nil || len(whole) > bailey.InlineCap {
		return nil, whole
	}
	return whole, whole
}
