package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/agenthook"
	"bailey/internal/egress"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
	"bailey/internal/settings"
	"bailey/internal/terminal"
	"bailey/internal/toolchain"
	"bailey/internal/workspace"
	"bailey/internal/wrap"
)

// agentRun is an agent that is started in the agent jail.
type agentRun struct {
	*commands
	wrapFlags
	op      localapi.Operator
	client  *localapi.Client
	agent   wrap.Agent
	program string
	project bailey.Place
	before  wrap.Found
	state   wrap.State
	run     *wrap.Run
	network settings.Network
	through settings.Model // whether, and with which keys, requests to the model pass the model proxy
	written []string       // workspaces of the home
	secret  []string       // NAME=value
	job     bailey.Job

	model, named []string // host:port, see the rule wrap of the starter policy
}

// wrapAgent plans the cage, lets the policy decide, records the start in the ledger, runs the agent from this process, and
// moves new files with guarded names into quarantine.
func (a *commands) wrapAgent(ctx context.Context, words wrapFlags, argv []string) (err error) {
	w := &agentRun{commands: a, wrapFlags: words}
	if w.op, w.client, err = a.OperatorClient("wrap"); err != nil {
		return err
	}
	if err := w.findAgent(ctx, argv); err != nil {
		return err
	}
	defer closePlaces([]bailey.Place{w.project})
	cages, err := server.OpenJail(workspace.Masks(string(w.client.Home), workspace.Homes()), nil)
	if err != nil {
		return err
	}
	defer cages.Close()
	if err := w.leftOver(); err != nil {
		return err
	}
	if w.before, err = wrap.Guarded(w.project.Path, string(w.state)); err == nil {
		err = w.before.Refused(w.project.Path)
	}
	if err == nil && !w.anyCase {
		err = w.before.AnyCase(w.project.Path)
	}
	if err != nil {
		return err
	}
	run, home, err := w.state.Begin(w.agent.Name, w.project.Path, w.before, w.keepHome)
	if err != nil {
		return err
	}
	w.run = run
	exit, err := w.runAgent(ctx, cages, home, argv)
	return errors.Join(w.settleRun(exit), err)
}

// findAgent finds the project and the agent. It creates nothing.
func (w *agentRun) findAgent(ctx context.Context, argv []string) (err error) {
	if w.state, err = wrap.FindState(); err != nil {
		return err
	}
	w.agent = wrap.Known(argv[0])
	if w.program, err = exec.LookPath(argv[0]); err == nil {
		w.program, err = filepath.Abs(w.program)
	}
	if err != nil {
		return bailey.NotFound.Wrapf(err, "install it, or give its path", "%s is not installed", argv[0])
	}
	st, err := apitype.ShowSettings.Ask(ctx, w.client, apitype.SettingsQuery{})
	if err != nil {
		return err
	}
	w.network, w.written, w.through = st.Applied.Network, st.Applied.Workspaces, st.Applied.Model
	top, err := workRoot()
	if err != nil {
		return err
	}
	if err := workspace.NewWorkspaces(workspace.Masks(string(w.client.Home), workspace.Homes()),
		workspace.Homes()).Fit(top); err != nil {
		return err
	}
	w.project, err = workspace.OpenPlace(top, true)
	return err
}

// workRoot returns the top of the repository that contains the current directory or, without a repository, the current
// directory. A home directory does not count as a repository.
func workRoot() (string, error) {
	here, err := os.Getwd()
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	if err != nil {
		return "", err
	}
	homes := workspace.Homes()
	for dir := here; dir != "/" && !slices.Contains(homes, dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, nil
		}
	}
	return here, nil
}

// leftOver completes the cleanup of earlier runs that were killed.
func (w *agentRun) leftOver() error {
	runs, err := w.state.Left(w.project.Path)
	for _, r := range runs {
		s, serr := r.Settle()
		w.printSettled(s, r.Project)
		err = errors.Join(err, serr)
	}
	return err
}

// allowedEndpoints returns the places that the agent may reach: those that this kind of agent needs, those that the settings
// list for wrap, and those of --egress. If a place is named several times, the last flags apply.
func (w *agentRun) allowedEndpoints() (list []bailey.Endpoint, err error) {
	add := func(e bailey.Endpoint) {
		list = append(slices.DeleteFunc(list, func(o bailey.Endpoint) bool { return o.String() == e.String() }), e)
	}
	model := slices.Clone(w.agent.Endpoints)
	var named []bailey.Endpoint
	if base := os.Getenv(w.agent.Base); w.agent.Base != "" && base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Hostname() == "" {
			return nil, bailey.Invalid.New(w.agent.Base+" is not a URL", "correct it, or unset it")
		}
		e, err := bailey.ParseEndpoint(net.JoinHostPort(u.Hostname(),
			cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], "443")))
		if err != nil {
			return nil, err
		}
		named, model = append(named, w.network.With(e)), model[1:]
	}
	for _, text := range model {
		e, err := bailey.ParseEndpoint(text)
		if err != nil {
			return nil, err
		}
		add(w.network.With(e))
	}
	named = append(named, w.network.For(settings.ForWrap)...)
	for _, text := range w.egress {
		e, err := parseReach(text)
		if err != nil {
			return nil, err
		}
		named = append(named, mergeEndpointFlags(e, w.network.With(e)))
	}
	for _, e := range named {
		add(e)
	}
	list = w.markModels(list)
	w.model, w.named = nil, nil
	for _, e := range list {
		if slices.ContainsFunc(named, func(o bailey.Endpoint) bool { return o.String() == e.String() }) {
			w.named = append(w.named, e.String())
		} else {
			w.model = append(w.model, e.String())
		}
	}
	return list, nil
}

// mergeEndpointFlags combines the flags of both: flags of the settings apply wherever a place is named.
func mergeEndpointFlags(e, o bailey.Endpoint) bailey.Endpoint {
	e.Private, e.Plain, e.NoSNI, e.ECH, e.Inspect = e.Private || o.Private, e.Plain || o.Plain, e.NoSNI ||
		o.NoSNI, e.ECH || o.ECH, e.Inspect || o.Inspect
	return e
}

// claudeState is the file in which Claude Code stores what it knows about its user.
const claudeState = ".claude.json"

// fillHome creates the initial files in the home of the agent. It keeps existing files.
func (w *agentRun) fillHome(ctx context.Context, home string) error {
	files := map[string]string{".gitconfig": w.gitIdentity(ctx)}
	for name, text := range w.agent.Files {
		files[name] = text
	}
	// with a key no login is needed, which would contact hosts that are not allowed
	if _, own := files[claudeState]; own && len(w.secret) > 0 {
		files[claudeState] = strings.Replace(files[claudeState], "{", `{"hasCompletedOnboarding":true,`, 1)
	}
	return wrap.Furnish(home, files)
}

// gitIdentity returns a git configuration with only the user's name and email. It does not run a git from the project:
// the agent could have written it, and this code runs outside the agent jail.
func (w *agentRun) gitIdentity(ctx context.Context) string {
	var b strings.Builder
	b.WriteString("[user]\n")
	git, err := exec.LookPath("git")
	if err != nil {
		return b.String()
	}
	for _, path := range []func(string) (string, error){filepath.Abs, filepath.EvalSymlinks} {
		if at, err := path(git); err != nil || at == w.project.Path || strings.HasPrefix(at, w.project.Path+"/") {
			return b.String()
		}
	}
	for _, key := range []string{"name", "email"} {
		cmd := exec.CommandContext(ctx, git, "config", "--global", "--get", "user."+key)
		cmd.Dir = "/"
		if out, err := cmd.Output(); err == nil {
			if v := strings.TrimSpace(string(out)); v != "" && !strings.ContainsAny(v, "\"\\\n") {
				fmt.Fprintf(&b, "\t%s = \"%s\"\n", key, v)
			}
		}
	}
	return b.String()
}

// printSettled prints the files that a run left.
func (w *agentRun) printSettled(s wrap.Settled, project string) {
	for _, line := range s.Words(project) {
		fmt.Fprintln(w.Stderr, "bailey: "+terminal.CutLine(line))
	}
}

// planJob prepares the job for the cage of the agent.
func (w *agentRun) planJob(ctx context.Context, home string, argv []string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	j := wrap.Job(w.program, argv[1:])
	if w.mem != "" {
		if j.Limits.MemoryBytes, err = ParseSize(w.mem); err != nil {
			return err
		}
	}
	if w.tasks < 0 {
		return bailey.Invalid.New("--tasks must be above zero", "leave it out for the default, 1024")
	}
	if w.tasks > 0 {
		j.Limits.Tasks = w.tasks
	}
	open, secret := w.agent.Variables(os.LookupEnv)
	named, err := resolveEnv(w.env, os.LookupEnv)
	if err != nil {
		return err
	}
	w.secret = append(w.withoutModelKeys(secret), named...)
	for _, v := range w.secret {
		name, _, _ := strings.Cut(v, "=")
		j.EnvNames = append(j.EnvNames, name)
	}
	places, err := w.allowedEndpoints()
	if err != nil {
		return err
	}
	if j.Network, err = egress.Plan(places); err != nil {
		return err
	}
	j.Network.Listen = append(j.Network.Listen, bailey.Listen{Network: "unix", Address: localapi.CallsSocket})
	j.Env = open
	j.TTY = terminal.Is(os.Stdin) && terminal.Is(os.Stdout)
	j.Dir, j.Places = startDir([]bailey.Place{w.project}), []bailey.Place{w.project}
	if err := w.fillHome(ctx, home); err != nil {
		return err
	}
	own, err := workspace.OpenPlace(home, true)
	if err != nil {
		return err
	}
	j.Wall.Home, j.Wall.Keep = &own, w.before.Keep(w.project.Path)
	j.Wall.Trees, j.Wall.Path = wrap.Trees(self, w.program, w.project.Path, os.Getenv("PATH"), exec.LookPath,
		w.selectedToolchains()...)
	w.job = j
	return nil
}

// selectedToolchains returns the directories of the versions that the project selects, and says which are not used.
func (w *agentRun) selectedToolchains() (dirs []string) {
	list, errs := toolchain.NewFinder(func() []string { return append(w.written, w.project.Path) }).All(w.project.Path)
	for _, err := range errs {
		fmt.Fprintln(w.Stderr, "bailey: "+terminal.Shown(err.Error()+"; "+bailey.HintOf(err)))
	}
	for _, t := range list {
		dirs = append(dirs, t.Dir)
	}
	return dirs
}

// runAgent runs the agent. Its exit code is returned as an error, as in `jail run`.
func (w *agentRun) runAgent(ctx context.Context, cages *jail.Jail, home string, argv []string) (bailey.Exit, error) {
	never := bailey.Exit{Code: bailey.NeverRan}
	if err := w.planJob(ctx, home, argv); err != nil {
		return never, err
	}
	defer w.job.Wall.Home.File.Close()
	run, err := cages.Plan(ctx, w.job)
	if err != nil {
		return never, err
	}
	defer run.Close()
	cage := run.Cage()
	begun, err := w.recordStart(ctx, cage, argv)
	if err != nil {
		return never, err
	}
	refusals := &refusals{}
	way, err := w.openProxy(begun, refusals)
	if err != nil {
		return never, err
	}
	if w.job.TTY && !w.JSON {
		w.printJailLimits(cage)
	}
	if words := begun.Unasked.Summary(); words != "" {
		fmt.Fprintln(w.Stderr, "bailey: "+terminal.Shown(words))
	}
	stop := w.reportRefusals(ctx, refusals)
	alive, forget := w.untilKilled(ctx)
	alive, stopAgent := context.WithCancelCause(alive)
	defer stopAgent(nil)
	watching := w.watchLinks(stopAgent)
	exit, err := w.commands.runInCage(alive, run, w.job.TTY, bailey.Lent{Env: w.secret, Way: way})
	// an agent that was told to stop may exit normally
	if why := context.Cause(alive); why != nil && context.Cause(ctx) == nil {
		err = cmp.Or(err, why)
	}
	forget()
	watching()
	stop()
	end := apitype.WrapEnding{ID: w.run.ID, ExitCode: exit.Code, Egress: way.Report().EgressTotals}
	s, serr := w.run.Settle()
	w.run = nil
	w.printSettled(s, w.project.Path)
	if n := end.Egress.Refused; n > 0 && !w.JSON {
		fmt.Fprintf(w.Stderr, "bailey: %s of its connections were refused; run bailey wrap --log to see them and how to allow each\n", apitype.Counts(int(n), "connection"))
	}
	end.Moved, end.Dir, end.Unseen, end.Changed = s.Moved, s.Dir, s.Unseen, s.Changed
	end.Hide(w.secretReplacer())
	end.Bound()
	_, eerr := apitype.EndWrap.Do(context.WithoutCancel(ctx), w.client, w.op, end)
	if err = errors.Join(err, serr, eerr); err != nil {
		return exit, err
	}
	return exit, w.reportExit(cage, exit)
}

// watchLinks removes links from git's directories while the agent runs, and stops the agent if that is not enough. The
// caller must call end after the agent has ended.
func (w *agentRun) watchLinks(stop context.CancelCauseFunc) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { w.run.Watch(ctx, stop) })
	return func() { cancel(); watching.Wait() }
}

// settleRun cleans up a run that did not complete.
func (w *agentRun) settleRun(bailey.Exit) error {
	if w.run == nil {
		return nil
	}
	s, err := w.run.Settle()
	w.printSettled(s, w.project.Path)
	return err
}

// recordStart asks the policy and records the start in the ledger.
func (w *agentRun) recordStart(ctx context.Context, cage bailey.Cage,
	argv []string) (begun apitype.WrapBegun, err error) {
	j := w.job
	q := apitype.WrapQuery{Model: w.model, Named: w.named, Plan: cage.Plan,
		WrapStarting: apitype.WrapStarting{ID: w.run.ID, Agent: w.agent.Name, Program: w.program, Argv: argv,
			Project: w.project.Path, KeepHome: w.keepHome, AnyCase: w.anyCase,
			EnvNames: slices.Clone(j.EnvNames), Limits: j.Limits, Run: j.Wall.Run, TTY: j.TTY, Cage: cage, Egress: []string{}}}
	for _, e := range j.Network.Endpoints {
		q.Egress = append(q.Egress, e.Words())
	}
	return apitype.StartWrap.Do(ctx, w.client, w.op, q)
}

// printJailLimits prints the limits of the agent jail before the terminal is handed over.
func (w *agentRun) printJailLimits(cage bailey.Cage) {
	var reach []string
	for _, e := range w.job.Network.Endpoints {
		reach = append(reach, e.Words())
	}
	fmt.Fprintln(w.Stderr, "bailey: "+terminal.Shown(fmt.Sprintf("%s in the agent jail: cage %s, %d layers; %s is writable; it reaches %s; to see refusals, run bailey wrap --log in another terminal",
		w.agent.Name, cage.Kind, len(cage.Layers), w.project.Path, cmp.Or(strings.Join(reach, ", "), "no host"))))
}

// killPatience is the maximum time that an agent may run after the kill switch is set.
const killPatience = time.Second

// untilKilled returns a context that ends when ctx ends or when the kill switch is set. It does not start a gateway:
// without a gateway the switch cannot be set, and a gateway that starts later answers the next query.
func (w *agentRun) untilKilled(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	client := *w.client
	client.Start = nil
	watch := everyTick(killPatience, func(last bool) {
		if last || ctx.Err() != nil {
			return
		}
		if now, err := apitype.ShowKilled.Ask(ctx, &client, localapi.None{}); err == nil && now.On() {
			cancel(bailey.Denied.New(apitype.KilledText(now), "run bailey resume, then wrap the agent again"))
		}
	})
	return ctx, func() { cancel(nil); watch() }
}

// everyTick calls do with each tick, until stop is called, which calls it a last time and waits for its end.
func everyTick(period time.Duration, do func(last bool)) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				do(false)
			case <-end:
				do(true)
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// secretReplacer replaces the values of the variables that were given to the agent by their names, because the agent can create
// files and request hosts with such names.
func (w *agentRun) secretReplacer() *strings.Replacer {
	var pairs []string
	for _, v := range w.secret {
		if name, value, _ := strings.Cut(v, "="); len(value) >= apitype.LeastSecret {
			pairs = append(pairs, value, "["+name+"]", strings.ToLower(value), "["+name+"]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// reportRefusals writes refusals to the ledger, at most twice a second.
func (w *agentRun) reportRefusals(ctx context.Context, r *refusals) (stop func()) {
	ctx, id := context.WithoutCancel(ctx), w.run.ID
	veil := w.secretReplacer()
	return everyTick(500*time.Millisecond, func(bool) {
		if lines, untold := r.takeAll(); len(lines) > 0 || untold > 0 {
			for i := range lines {
				lines[i] = lines[i].Hidden(veil)
			}
			told := apitype.WrapRefusals{ID: id, Lines: lines, Untold: untold}
			if _, err := apitype.ReportRefusals.Do(ctx, w.client, w.op, told); err != nil {
				r.addUntold(untold + int64(len(lines)))
			}
		}
	})
}

// refusals collects the refusals until they are reported.
type refusals struct {
	mu     sync.Mutex // guards the fields below
	lines  []apitype.Refusal
	taken  map[string]refusalShare // by kind
	untold int64
}

// refusalShare counts the refusals of one kind since the last report. One kind may fill at most half of a report, so that many
// refused calls do not displace refused hosts.
type refusalShare struct{ lines, bytes int }

func (r *refusals) addRefusal(l apitype.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l = l.Clipped()
	s := r.taken[l.Kind]
	s.lines, s.bytes = s.lines+1, s.bytes+apitype.EntryBytes(l)
	if s.lines > apitype.MaxRefusals/2 || s.bytes > apitype.MaxRefused/2 {
		r.untold++
		return
	}
	if r.taken == nil {
		r.taken = map[string]refusalShare{}
	}
	r.taken[l.Kind] = s
	r.lines = append(r.lines, l)
}

// addUntold counts refusals that could not be reported. The number is part of the next report that succeeds.
func (r *refusals) addUntold(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.untold += n
}

func (r *refusals) takeAll() (lines []apitype.Refusal, untold int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, untold = r.lines, r.untold
	r.lines, r.taken, r.untold = nil, nil, 0
	return lines, untold
}

// agentProxy is the outside end of the agent jail: the sockets of the network, and last the socket for calls.
type agentProxy struct {
	bailey.Way
	inner *gateway.Inner
}

// openProxy creates the wallWay. The bearer token stays outside.
func (w *agentRun) openProxy(begun apitype.WrapBegun, r *refusals) (bailey.Way, error) {
	client := *w.client
	client.Session = begun.Bearer
	world := egress.WayConfig{Config: egress.Config{Through: w.modelTransports(&client), Limits: egress.Limits{Total: 1 << 30, Bytes: 1 << 50,
		Events: 10_000},
		Event: func(e bailey.EgressEvent) {
			if e.Kind == bailey.EgressRefused || e.Kind == bailey.EgressMisused {
				r.addRefusal(apitype.Refusal{At: e.Time.UTC(), Kind: "egress", Target: e.Target, Reason: e.Reason,
					Hint: wayOut(e)})
			}
		}}}
	way, err := server.EgressPlanner{Settings: func() settings.Network { return w.network }, World: world}.Open(w.job.Network, nil)
	if err != nil {
		return nil, err
	}
	return agentProxy{way, &gateway.Inner{Client: &client, Dir: w.project.Path, Judged: agenthook.Verdict{Silent: true}, Refused: func(reason string) {
		r.addRefusal(apitype.Refusal{At: time.Now().UTC(), Kind: "call", Reason: reason})
	}}}, nil
}

// wayOut returns a hint about the setting that would allow it: a flag, if the place is already named.
func wayOut(e bailey.EgressEvent) string {
	switch {
	case e.Hint == "" || e.Target == "":
		return e.Hint
	case strings.Contains(e.Hint, "private: true"):
		return e.Hint + "; or bailey wrap --egress " + e.Target +
			",private, and plain if it does not use TLS; or the same in settings.yaml under network, for: [wrap]"
	}
	return e.Hint + ": bailey wrap --egress " + e.Target + ", or in settings.yaml under network, for: [wrap]"
}

func (w agentProxy) Serve(ctx context.Context, listeners []net.Listener) error {
	if len(listeners) == 0 {
		return bailey.Internal.New("the jail did not hand over its socket", "")
	}
	last := len(listeners) - 1
	inner := make(chan error, 1)
	go func() { inner <- w.inner.Serve(ctx, listeners[last]) }()
	err := w.Way.Serve(ctx, listeners[:last])
	return errors.Join(err, <-inner)
}
