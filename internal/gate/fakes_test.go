package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/pack"
)

// world is a gate whose stages a test controls, and which records what was done.
type world struct {
	t  *testing.T
	mu sync.Mutex

	checkout    pack.Checkout
	checkoutErr error
	person      pack.GitPerson
	around      func(bailey.Place) ([]bailey.Place, error) // places of a repository

	did      []string // the stages and actions, in order
	intents  []bailey.Intent
	outcomes []bailey.Outcome

	profile Profile
	leads   string // inserted into the path of every place

	takeErr error
	left    Allowance // without Settle
	taken   bailey.Request
	settled []Use

	openErr, sealErr, placeErr, planErr, runErr, lendErr, askErr, restoreErr, preErr, postErr error

	decide  func(n int, r bailey.Request) bailey.Decision // n counts from 1
	asked   int
	verdict Verdict
	answer  func(q bailey.Question) bailey.Answer
	post    func(Output) Output
	holds   bool
	edition string                  // of the hooks
	parked  map[string]bailey.Heard // by what they were asked about
	views   []bailey.Call           // that hooks were shown
	lease   bailey.Lease
	run     func(lent bailey.Lent, s bailey.Streams) (bailey.Exit, error)
	runs    func(ctx context.Context, s bailey.Streams) (bailey.Exit, error) // used instead of run if it is set
	panicAt string
	looking func(n int, job bailey.Job, s bailey.Streams) (bailey.Exit, error) // runs previews; n counts from 1
	looked  int
	changed bool            // a program has changed
	below   map[string]bool // the names that places contain
	readErr error           // error when standard input is read
	hasErr  error
	loads   map[string]string // the files below places
	loadErr error
	jobs    []bailey.Job                                 // the planned jobs
	stdin   *string                                      // the input that the tool read
	freeze  func(p bailey.Place) (*bailey.Frozen, error) // nil: nothing can be frozen
	binary  string                                       // digest of every program
	placed  string                                       // file behind every path; "": a directory
	closed  int
	plan    string // of every cage
	ttys    int    // jobs and runs that were given a terminal
	lesser  string // the reason for a lesser cage
	bare    bool   // calls run without a cage
	way     *fakeWay
	scopes  []bailey.LeaseScope
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, parked: map[string]bailey.Heard{}}
	w.decide = func(int, bailey.Request) bailey.Decision {
		return bailey.Decision{Effect: bailey.Allow, Rules: []bailey.Rule{{ID: "r1", Source: "t.cedar:1"}}, Policy: "p1"}
	}
	w.verdict = Verdict{Effect: bailey.Allow}
	w.answer = func(q bailey.Question) bailey.Answer {
		var a bailey.Answer
		for _, r := range q.Rules {
			a.Granted = append(a.Granted, r.ID)
		}
		return a
	}
	w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
		io.WriteString(s.Stdout, "out")
		io.WriteString(s.Stderr, "err")
		return bailey.Exit{}, nil
	}
	w.post = func(o Output) Output { return o }
	return w
}

func (w *world) gate() *Gate {
	w.t.Helper()
	catalog, err := pack.LoadBuiltin(fstest.MapFS{"t/pack.yaml": {Data: []byte(manifest + hubs + repositories + fetching + promising + chained + remote)}})
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := New(Config{
		Ledger: w, Catalog: shelf{catalog, w}, Places: placesOf{w}, Policy: w, Hooks: w, Approver: approverOf{w}, Budgets: budgetsOf{w}, Lender: w, Egress: egressOf{w}, Redactor: w,
		Runners: map[pack.Isolation]bailey.Runner{pack.Jail: w}, Host: "h", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// shelf is a catalog with the profile of the world.
type shelf struct {
	*pack.Catalog
	w *world
}

func (s shelf) Profile() Profile { return s.w.profile }

const manifest = `
name: t
version: 1.0.0
description: a tool for tests
capabilities:
  - name: echo
    description: say something
    backend: {type: subprocess, command: echo, args: ["--", "{{ input.word }}"], cwdFromInput: dir}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    inputSchema:
      type: object
      properties: {word: {type: string}, dir: {type: string, format: path}}
      required: [word]
  - name: put
    description: put something
    backend: {type: subprocess, command: put, args: ["--", "{{ input.word }}"], cwdFromInput: dir}
    preview: {args: [[--look, "{{ input.word }}"], [--look, "{{ input.file }}"]]}
    risk: low
    sideEffectClass: mutating
    reversibility: reversible
    isolation: jail
    credentials: [{name: token, env: TOKEN}]
    sandboxProfile: {fs: {rw: ["{{ input.dir }}"]}}
    inputSchema:
      type: object
      properties: {word: {type: string}, dir: {type: string, format: path}, file: {type: string, format: path}, other: {type: string, format: path}}
      required: [word]
  - name: send
    description: send what was shown
    backend: {type: subprocess, command: send, args: ["--", "{{ input.word }}"]}
    preview:
      args: [[--look, "{{ input.word }}"], [--look, "about={{ shown }}"]]
      bind: [{look: 1, pattern: 'is (\w+)\n', argument: "{{ input.word }}", as: "id={{ shown }}"}]
    risk: low
    sideEffectClass: mutating
    reversibility: reversible
    isolation: jail
    inputSchema: {type: object, properties: {word: {type: string}}, required: [word]}
`

// hubs is a capability that takes its repository from the checkout.
const hubs = `
  - name: hub
    description: show a repository
    backend: {type: subprocess, command: hub, args: ["--repo={{ input.repo }}"]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    checkout: {repository: repo}
    inputSchema: {type: object, properties: {repo: {type: string, pattern: '^[a-z]+/[a-z]+$'}}}
`

// repositories is a capability that works in the git repository around a directory.
const repositories = `
  - name: work
    description: work in a repository
    backend: {type: subprocess, command: work, args: ["--file={{ input.repo }}/.git/config", "{{ input.repo }}", "{{ input.options }}"], cwdFromInput: repo, repository: repo, signs: commit, env: {GIT_WORK_TREE: ., GIT_AUTHOR_NAME: Bailey}}
    risk: low
    sideEffectClass: mutating
    reversibility: reversible
    isolation: jail
    sandboxProfile: {fs: {rw: ["{{ input.repo }}"], keep: ["{{ input.repo }}/.git/HEAD", "{{ input.repo }}/.git/refs/tags"]}}
    inputSchema: {type: object, properties: {repo: {type: string, format: path}, options: {type: array, items: {type: string, x-bailey: {allow: [option]}}}}}
`

// fetching is a capability with a network and with a credential that its tool does not get.
const fetching = `
  - name: fetch
    description: fetch something
    backend: {type: subprocess, command: fetch, args: ["--", "{{ input.url }}"]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    sandboxProfile: {network: {egress: ["api.example:443", "{{ input.url }}"]}}
    credentials:
      - {name: plain, env: PLAIN}
      - {name: token, env: TOKEN, inject: {to: ["api.example:443"], headers: [Authorization], query: [key]}}
    inputSchema: {type: object, properties: {url: {type: string, format: url}}, required: [url]}
  - name: sign
    description: ask an account
    backend: {type: subprocess, command: fetch, args: [account]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    sandboxProfile: {network: {egress: ["*.api.example:443"]}}
    credentials:
      - {name: keys, env: KEYS, file: true, inject: {to: ["*.api.example:443"], sign: aws}}
    inputSchema: {type: object, properties: {}}
  - name: tokens
    description: ask a registry
    backend: {type: subprocess, command: fetch, args: [registry]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    sandboxProfile: {network: {egress: ["api.example:443"]}}
    credentials:
      - {name: npmrc, env: NPMRC, file: true, inject: {to: ["api.example:443"], tokens: npmrc}}
    inputSchema: {type: object, properties: {}}
`

// promising are capabilities that declare their input and output.
const promising = `
  - name: sort
    description: sort a text
    backend: {type: subprocess, command: sort, cwd: workspace}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    stdin: text
    inputSchema: {type: object, properties: {stdin: {type: string}}}
  - name: feed
    description: read a file
    backend: {type: subprocess, command: feed, args: ["{{ input.word }}"], cwdFromInput: dir}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    stdin: file
    validators: [{type: RequiredPath, path: .git}, {type: RequiredPath, input: stdin}, {type: DenyArgs, args: [evil]}]
    inputSchema: {type: object, properties: {stdin: {type: string, format: path}, dir: {type: string, format: path}, word: {type: string}}}
  - name: json
    description: say it in JSON
    backend: {type: subprocess, command: json}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    outputSchema: {type: object, required: [a], properties: {a: {type: integer}}}
    output: {page: {limit: limit}}
    inputSchema: {type: object, properties: {limit: {type: integer}}}
  - name: sorting
    description: has a step that reads a text
    backend: {type: workflow, steps: [{id: one, call: t.sort, input: {stdin: "{{ input.word }}"}}]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    inputSchema: {type: object, properties: {word: {type: string}}, required: [word]}
  - name: apart
    description: what runs elsewhere
    backend: {type: subprocess, command: apart}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: microvm
  - name: bare
    description: what nothing holds
    backend: {type: subprocess, command: bare}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: none
`

// chained are workflows, for example one whose steps are known beforehand, and one whose last step takes the output of
// the first.
const chained = `
  - name: both
    description: say two things
    backend:
      type: workflow
      steps:
        - {id: one, call: t.echo, input: {word: "{{ input.word }}", dir: "{{ input.dir }}"}}
        - {id: two, call: t.echo, input: {word: "and {{ input.word }}"}}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    inputSchema: {type: object, properties: {word: {type: string}, dir: {type: string, format: path}}, required: [word]}
  - name: relay
    description: say what was said
    backend:
      type: workflow
      steps:
        - {id: one, call: t.echo, input: {word: "{{ input.word }}"}, onFailure: continue}
        - {id: two, call: t.echo, input: {word: "{{ steps.one.stdout }}"}}
        - {id: three, call: t.echo, input: {word: last}}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    inputSchema: {type: object, properties: {word: {type: string}}, required: [word]}
  - name: fixed
    description: names a path that is no input
    backend: {type: workflow, steps: [{id: one, call: t.echo, input: {word: x, dir: /there}}]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
  - name: nested
    description: a workflow of workflows
    backend: {type: workflow, steps: [{id: one, call: t.both, input: {word: x}}]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
  - name: meek
    description: says less of itself than its step does
    backend: {type: workflow, steps: [{id: one, call: t.put, input: {word: x}}]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
  - name: opening
    description: has a step that nothing holds
    backend: {type: workflow, steps: [{id: one, call: t.bare}]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
  - name: putting
    description: has a step that shows what it would do
    backend: {type: workflow, steps: [{id: one, call: t.put, input: {word: x}}]}
    risk: low
    sideEffectClass: mutating
    reversibility: reversible
`

// remote is a capability whose address is in the configuration of a repository.
const remote = `
  - name: push
    description: push something
    backend: {type: subprocess, command: push, args: ["{{ input.options }}", "{{ input.remote }}"], cwdFromInput: repo}
    risk: low
    sideEffectClass: mutating
    reversibility: externallyReversible
    remote: {repo: repo, name: remote, url: url, options: options, for: push}
    sandboxProfile: {network: {egress: ["{{ input.url }}"]}}
    credentials:
      - {name: token, env: TOKEN, inject: {to: ["github.com:443"], headers: [Authorization], below: url}}
    inputSchema:
      type: object
      required: [repo]
      properties:
        repo: {type: string, format: path}
        remote: {type: string}
        url: {type: string, format: url, x-bailey: {allow: [url]}}
        options: {type: array, items: {type: string, x-bailey: {allow: [option, url]}}}
`

func call() bailey.Call {
	return bailey.Call{Capability: "t.echo", Input: map[string]any{"word": "hello"}, Door: "test", Dir: "/w",
		Principal: bailey.Principal{Agent: "a", Person: "p", Roles: []string{"r"}, Organisation: "o"},
		Session:   bailey.Session{ID: "s-1"}}
}

func (w *world) note(what string) {
	w.mu.Lock()
	w.did = append(w.did, what)
	w.mu.Unlock()
	if w.panicAt == what {
		panic("boom at " + what)
	}
}

func (w *world) happened(what string) bool { return slices.Contains(w.did, what) }

// one fails the test unless there is exactly one intent and one outcome, of the same receipt.
func (w *world) one() bailey.Outcome {
	w.t.Helper()
	if len(w.intents) != 1 || len(w.outcomes) != 1 || w.intents[0].Receipt != w.outcomes[0].Receipt || w.intents[0].Receipt == "" {
		w.t.Fatalf("want one intent and its one outcome, got %d and %d: %v", len(w.intents), len(w.outcomes), w.did)
	}
	return w.outcomes[0]
}

func (w *world) Open(_ context.Context, i bailey.Intent) (func(bailey.Outcome) error, error) {
	w.note("intent")
	if w.openErr != nil {
		return nil, w.openErr
	}
	w.intents = append(w.intents, i)
	return func(o bailey.Outcome) error {
		w.note("outcome")
		w.outcomes = append(w.outcomes, o)
		return w.sealErr
	}, nil
}

func (w *world) Decide(r bailey.Request) bailey.Decision {
	w.note("decide")
	w.asked++
	return w.decide(w.asked, r)
}

func (w *world) Pre(_ context.Context, view bailey.Call) (Verdict, error) {
	w.note("pre")
	w.views = append(w.views, view)
	return w.verdict, w.preErr
}

func (w *world) Edition() string { return w.edition }

func (w *world) Holds(bailey.CapabilityID) bool { return w.holds }

func (w *world) Post(_ context.Context, view bailey.Call, o Output) (Output, error) {
	w.note("post")
	w.views = append(w.views, view)
	return w.post(o), w.postErr
}

func (w *world) Ask(_ context.Context, q bailey.Question) (bailey.Answer, error) {
	w.note("ask")
	return w.answer(q), w.askErr
}

func (w *world) Scope(context.Context, []bailey.Want) ([]bailey.LeaseScope, error) {
	return w.scopes, nil
}

func (w *world) Lend(context.Context, bailey.Loan) (bailey.Lease, error) {
	w.note("lend")
	return w.lease, w.lendErr
}

func (w *world) Learn(_ bailey.SessionID, secrets []bailey.Secret) {
	if len(secrets) > 0 {
		w.note("learn")
	}
}

func (w *world) Value(_ bailey.SessionID, v any) any { return masked(v) }

// masked simulates redaction: SECRET becomes [R].
func masked(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "SECRET", "[R]")
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = masked(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = masked(v[k])
		}
		return out
	}
	return v
}

type masking struct {
	w   io.Writer
	buf bytes.Buffer
}

func (m *masking) Write(b []byte) (int, error) { return m.buf.Write(b) }
func (m *masking) Close() error {
	_, err := io.WriteString(m.w, masked(m.buf.String()).(string))
	return err
}
func (m *masking) Count() int { return strings.Count(m.buf.String(), "SECRET") }

func (w *world) ForPerson(_ bailey.SessionID, v any) any { return masked(v) }

func (w *world) Input(s bailey.SessionID, v any) any { return w.Value(s, v) }

func (w *world) Writer(_ bailey.SessionID, to io.Writer) RedactingWriter { return &masking{w: to} }

func (w *world) Again(_ bailey.SessionID, b []byte) []byte { return []byte(masked(string(b)).(string)) }

func (w *world) Restore(_ bailey.SessionID, _ *pack.Capability, in map[string]any) (map[string]any, []string, error) {
	w.note("restore")
	return in, nil, w.restoreErr
}

// budgetsOf is the world as Budgets.
type budgetsOf struct{ *world }

func (b budgetsOf) Take(r bailey.Request) (Allowance, error) {
	b.note("take")
	b.taken = r
	a := b.left
	a.Settle = func(u Use) { b.settled = append(b.settled, u) }
	return a, b.takeErr
}

func (b budgetsOf) End(bailey.SessionID) { b.note("end budget") }

func (w *world) End(bailey.SessionID) { w.note("end") }

// approverOf is the world as Approver. It also ends sessions and keeps the hooks' verdict on a pending call.
type approverOf struct{ *world }

func (a approverOf) Ask(ctx context.Context, q bailey.Question) (bailey.Answer, error) {
	answer, err := a.world.Ask(ctx, q)
	if answer.Pending && q.Heard.Of != "" {
		a.parked[q.Heard.Of] = q.Heard
	}
	return answer, err
}

func (a approverOf) Parked(of string) (bailey.Heard, bool) {
	h, ok := a.parked[of]
	return h, ok
}

func (a approverOf) End(bailey.SessionID) { a.note("end questions") }

// egressOf is the world as Egress. It plans exactly the endpoints that are requested.
type egressOf struct{ *world }

func (e egressOf) Plan(_ *pack.Capability, places []string) (*bailey.Network, error) {
	if len(places) == 0 {
		return nil, nil
	}
	n := &bailey.Network{}
	for _, p := range places {
		to, err := bailey.ParseEndpoint(p)
		if err != nil {
			return nil, err
		}
		n.Endpoints = append(n.Endpoints, to)
	}
	return n, nil
}

func (e egressOf) Open(_ *bailey.Network, inject []bailey.Injection) (bailey.Way, error) {
	e.note("open")
	if e.way == nil {
		return nil, errBroken
	}
	e.way.inject = inject
	return e.way, nil
}

// fakeWay returns the report that a test sets.
type fakeWay struct {
	bailey.Way
	inject []bailey.Injection
	report bailey.EgressReport
}

func (f *fakeWay) Report() bailey.EgressReport { return f.report }

// placesOf is the world as Places. It opens the test's own directory for any path.
type placesOf struct{ *world }

func (p placesOf) Open(_ bailey.Call, in pack.PathInput, path string) (bailey.Place, error) {
	p.note("place " + path)
	if p.placeErr != nil {
		return bailey.Place{}, p.placeErr
	}
	name := p.placed
	if name == "" {
		name = p.t.TempDir()
	}
	f, err := os.Open(name)
	return bailey.Place{Input: in.Name, Path: "/real" + p.leads + path, File: f, Write: in.Write}, err
}

func (p placesOf) Has(in bailey.Place, below string) (bool, error) {
	p.note("has " + in.Path + " " + below)
	return p.below[below], p.hasErr
}

func (p placesOf) Read(in bailey.Place) (io.ReadCloser, error) {
	p.note("read " + in.Path)
	if p.readErr != nil {
		return nil, p.readErr
	}
	return io.NopCloser(strings.NewReader("what the file holds")), nil
}

func (p placesOf) Repository(_ bailey.Call, _ pack.PathInput, at bailey.Place) ([]bailey.Place, error) {
	p.note("repository " + at.Path)
	if p.around == nil {
		return []bailey.Place{at}, nil
	}
	return p.around(at)
}

func (p placesOf) GitPerson([]bailey.Place) pack.GitPerson { return p.person }

func (p placesOf) Checkout(bailey.Call) (pack.Checkout, error) {
	p.note("checkout")
	return p.checkout, p.checkoutErr
}

func (p placesOf) Load(in bailey.Place, below string, _ int64) ([]byte, bool, error) {
	p.note("load " + in.Path + " " + below)
	text, there := p.loads[below]
	return []byte(text), there, p.loadErr
}

func (p placesOf) Freeze(in bailey.Place) (*bailey.Frozen, func(), error) {
	if p.freeze == nil {
		return nil, nil, nil
	}
	p.note("freeze " + in.Input)
	f, err := p.freeze(in)
	return f, func() { p.note("thaw " + in.Input) }, err
}

func (w *world) Plan(_ context.Context, j bailey.Job) (bailey.Run, error) {
	w.note("plan")
	w.mu.Lock()
	w.jobs = append(w.jobs, j)
	w.mu.Unlock()
	if j.TTY {
		w.ttys++
	}
	if w.planErr != nil {
		return nil, w.planErr
	}
	return &fakeRun{w: w, job: j}, nil
}

type fakeRun struct {
	bailey.PlainRun
	w   *world
	job bailey.Job
}

func (r *fakeRun) Cage() bailey.Cage {
	if r.w.bare {
		return bailey.Cage{Kind: bailey.Uncaged, BinaryDigest: r.w.binary}
	}
	cage := bailey.Cage{Kind: "full", Enforced: true, Layers: []string{"userns"}, PlanDigest: "d", BinaryDigest: r.w.binary, Plan: r.w.plan, Lesser: r.w.lesser}
	if r.w.changed {
		cage.Programs = []bailey.Program{{Path: "/bin/put", Copied: true, Was: "another"}}
	}
	return cage
}

func (r *fakeRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	r.w.note("run " + strings.Join(r.job.Args, " "))
	if s.TTY != nil || s.Stdin != nil && r.w.stdin == nil {
		r.w.ttys++
	}
	if s.Stdin != nil && r.w.stdin != nil {
		b, err := io.ReadAll(s.Stdin)
		if *r.w.stdin = string(b); err != nil {
			return bailey.Exit{}, err
		}
	}
	if r.w.looking != nil && slices.Contains(r.job.Args, "--look") {
		r.w.mu.Lock()
		r.w.looked++
		n := r.w.looked
		r.w.mu.Unlock()
		return r.w.looking(n, r.job, s)
	}
	if r.w.runErr != nil {
		return bailey.Exit{}, r.w.runErr
	}
	if r.w.runs != nil {
		return r.w.runs(ctx, s)
	}
	return r.w.run(lent, s)
}

func (r *fakeRun) Close() error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.closed++
	return nil
}

func (w *world) EndSession(context.Context, bailey.SessionID) error { w.note("end runner"); return nil }

var errBroken = errors.New("broken")
