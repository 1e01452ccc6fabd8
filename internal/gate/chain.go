package gate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"bailey"
	"bailey/pack"
)

// workflowRun is the run of a workflow. Each step is a call of its own and passes all stages from intent to outcome, so a
// workflow can do nothing that its steps could not do alone. Steps that are known in advance are decided in advance, so
// a person is asked only once, about all of them. A step gets its own approval when its turn comes if it uses the
// output of an earlier step, has a preview, reads files or needs credentials.
type workflowRun struct {
	bailey.PlainRun
	*callState
	steps []workflowStep
	asks  []bailey.Rule // rules of the steps that are approved together with the workflow
	done  []bailey.StepDone
}

// workflowStep is a step and the result of its advance check.
type workflowStep struct {
	pack.Step
	decision bailey.Decision
	subject  [sha256.Size]byte
	digest   string // of the manifest
	bound    bool   // the approval of the workflow covers the step completely
	places   bool
}

// planWorkflow plans a workflow instead of a single run.
func (c *callState) planWorkflow(ctx context.Context) error {
	if c.call.Within != nil {
		return bailey.Invalid.Errorf("use the steps of that workflow instead",
			"%s is a workflow and cannot be a step of another", c.manifest.ID)
	}
	paths, ch := c.inputPaths(), &workflowRun{callState: c}
	c.argv = nil
	// A workflow runs in no directory: the working directory that a client states must not influence the decision.
	c.job = bailey.Job{Capability: c.manifest.ID, Command: "workflow", Session: c.call.Session.ID}
	for i := range c.manifest.StepCount() {
		s, err := c.manifest.Step(i, c.input, paths, nil)
		l := workflowStep{Step: s}
		said := "with the output of an earlier step"
		if err == nil && !s.Late {
			said, err = ch.previewStep(ctx, &l)
		}
		if err == nil {
			l.digest, err = ch.checkDeclaredImpact(s.Call)
		}
		if err != nil {
			return bailey.KindOf(err).Wrapf(err, bailey.HintOf(err), "step %s, %s", s.ID, s.Call)
		}
		ch.steps = append(ch.steps, l)
		c.argv = append(c.argv, fmt.Sprintf("%s: %s: %s", s.ID, s.Call, said))
	}
	c.closeRun()
	c.run = ch
	return nil
}

// checkDeclaredImpact refuses a workflow that declares a lower class, risk or reversibility than one of its steps. It returns the
// digest of the manifest of the step.
func (ch *workflowRun) checkDeclaredImpact(id bailey.CapabilityID) (digest string, err error) {
	m, err := ch.Catalog.Lookup(id)
	if err != nil {
		return "", err
	}
	if what := ch.manifest.Milder(m); what != "" {
		return "", bailey.Invalid.New("the workflow declares "+what, "declare at least as much as its steps do")
	}
	return m.Digest, nil
}

// stepsDigest returns a digest of all planned steps. A workflow that waited for its approval returns as another call. That
// call must be the approved one, including the manifests, cages and programs of the steps. The digest is never shown,
// because an argument may contain a secret.
func (ch *workflowRun) stepsDigest() string {
	sum := sha256.New()
	for _, l := range ch.steps {
		fmt.Fprintf(sum, "%s\n%x\n", l.digest, l.subject)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// callOf returns the call that runs a step.
func (ch *workflowRun) callOf(s pack.Step) bailey.Call {
	call := ch.callState.call
	call.Capability, call.Input, call.Text = s.Call, s.Input, false
	call.Stdout, call.Stderr = nil, nil
	// wait for the answer: if the step returned as another call, the steps before it would run twice
	call.Patience = bailey.Endless
	call.Within = &bailey.Within{Receipt: ch.receipt, Step: s.ID}
	return call
}

// previewStep runs the first stages of a step, which have no effects, and returns a description of the command that it
// would run.
func (ch *workflowRun) previewStep(ctx context.Context, l *workflowStep) (said string, err error) {
	err = ch.planCall(ctx, ch.callOf(l.Step), func(c *callState) {
		l.decision, l.subject, l.places = c.Policy.Decide(c.policyRequest()), c.subjectDigest(), len(c.places) > 0
		_, reads := c.manifest.Stdin(c.input) // the command line does not show standard input
		l.bound = !reads && len(c.manifest.Previews()) == 0 && len(c.manifest.WantsFor(c.input)) == 0 &&
			!slices.ContainsFunc(c.places, isFile)
		said = strings.Join(append([]string{c.job.Command}, c.argv...), " ")
		if c.job.Dir != "" {
			said += " in " + c.job.Dir
		}
		if c.run.Cage().Kind == bailey.Uncaged {
			said += ", without a jail"
		}
	})
	return said, err
}

// isFile reports whether a place is a file, so that an approval would have to bind its content. It also returns true if
// the place cannot be examined.
func isFile(p bailey.Place) bool {
	info, err := p.File.Stat()
	return err != nil || !info.IsDir()
}

// subjectDigest returns a digest of everything in a planned call that an approval covers. If the subject of a step differs
// when its turn comes, the step needs a new approval.
func (c *callState) subjectDigest() [sha256.Size]byte {
	var paths []string
	for _, p := range c.places {
		paths = append(paths, p.Input+"="+p.Path)
	}
	stdin, _ := c.manifest.Stdin(c.input)
	// Marshal cannot fail: all values are text.
	text, _ := json.Marshal([]any{stdin, c.manifest.ID, c.manifest.Digest, c.job.Command, c.argv, c.job.Dir, c.job.Env,
		paths, c.run.Cage().PlanDigest, c.run.Cage().BinaryDigest})
	return sha256.Sum256(text)
}

// combineDecisions combines the decision on the workflow with the decisions on its steps. The strictest one applies.
func (ch *workflowRun) combineDecisions(d bailey.Decision) bailey.Decision {
	ch.asks = nil
	for _, l := range ch.steps {
		switch {
		case l.Late || d.Effect == bailey.Deny:
		case l.decision.Effect == bailey.Deny:
			d = l.decision
			d.Reason = "step " + l.ID + ": " + cmp.Or(d.Reason, "no rule allows this")
		case l.decision.Effect == bailey.Ask && l.bound:
			for _, rule := range l.decision.Asks {
				if !slices.ContainsFunc(ch.asks, rule.Same) {
					ch.asks = append(ch.asks, rule)
				}
			}
		}
	}
	if len(ch.asks) == 0 {
		return d
	}
	return stricterDecision(d,
		bailey.Decision{Effect: bailey.Ask, Rules: ch.asks, Asks: ch.asks, Reason: ch.asks[0].Reason})
}

// workflowGrants returns the rules that a person granted for this step together with the workflow. It returns nil if the step
// has changed since, or if a rule outside the grant asks.
func (c *callState) workflowGrants() (granted []bailey.RuleID) {
	w := c.call.Within
	if w == nil || c.changed || w.Subject != c.subjectDigest() || len(w.Granted) == 0 {
		return nil
	}
	for _, rule := range c.decision.Asks {
		if !slices.ContainsFunc(w.Granted, rule.Same) {
			return nil
		}
		granted = append(granted, rule.ID)
	}
	return granted
}

func (ch *workflowRun) Cage() bailey.Cage { return bailey.Cage{Kind: "workflow"} }

func (ch *workflowRun) Close() error { return nil }

// Start runs the steps in order. It stops at the first step that fails, unless that step lets the workflow continue.
func (ch *workflowRun) Start(ctx context.Context, _ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if ch.manifest.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ch.manifest.Timeout)
		defer cancel()
	}
	wrote := map[string]string{}
	for i, l := range ch.steps {
		res := ch.runStep(ctx, i, l, wrote)
		ch.done = append(ch.done, bailey.StepDone{Step: l.ID, Receipt: res.Receipt, Status: res.Status})
		wrote[l.ID] = string(res.Stdout)
		if err := writeStepResult(s.Stdout, l, res); err != nil {
			return bailey.Exit{Code: 1}, err
		}
		switch cause := context.Cause(ctx); {
		case cause == context.DeadlineExceeded:
			return bailey.Exit{Code: 1, TimedOut: true}, nil
		case cause != nil:
			return bailey.Exit{Code: 1}, cause
		case res.Err != nil && !l.Continue:
			_, err := fmt.Fprintf(s.Stdout, "the workflow ends with step %s; %d of %d were done\n", l.ID, i,
				len(ch.steps))
			return bailey.Exit{Code: 1}, err
		}
	}
	return bailey.Exit{}, nil
}

func (ch *workflowRun) runStep(ctx context.Context, i int, l workflowStep, wrote map[string]string) bailey.Result {
	one := l.Step
	if one.Late {
		var err error
		if one, err = ch.manifest.Step(i, ch.input, ch.inputPaths(),
			func(id string) (string, error) { return wrote[id], nil }); err != nil {
			return bailey.Result{Status: bailey.Failed, Err: err}
		}
	}
	call := ch.callOf(one)
	if l.bound && !l.Late {
		call.Within.Approval, call.Within.Subject = ch.approval, l.subject
		for _, rule := range ch.asks {
			if slices.Contains(ch.granted, rule.ID) {
				call.Within.Granted = append(call.Within.Granted, rule)
			}
		}
	}
	return ch.Gate.Do(ctx, call)
}

// writeStepResult writes the result of a step to w. The result is already redacted.
func writeStepResult(w io.Writer, l workflowStep, res bailey.Result) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "step %s: %s: %s", l.ID, l.Call, res.Status)
	if res.Receipt != "" {
		fmt.Fprintf(&b, ", receipt %s", res.Receipt)
	}
	b.WriteByte('\n')
	for _, out := range [][]byte{res.Stdout, res.Stderr} {
		if b.Write(out); len(out) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
			b.WriteByte('\n')
		}
	}
	if res.Err != nil {
		fmt.Fprintf(&b, "%s\n", res.Err)
		if hint := bailey.HintOf(res.Err); hint != "" {
			fmt.Fprintf(&b, "what to do: %s\n", hint)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// redactedWriter passes on text that is already redacted. A second redaction would treat the tokens of this session as text that
// only looks like tokens.
type redactedWriter struct{ io.Writer }

func (redactedWriter) Close() error { return nil }
func (redactedWriter) Count() int   { return 0 }
