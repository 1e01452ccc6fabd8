package main

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

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/wire"
	"bailey/internal/wrap"
)

// wrapped is one agent on its way into the wall.
type wrapped struct {
	*app
	wrapping
	op      wire.Operator
	client  *wire.Client
	agent   wrap.Agent
	program string
	project bailey.Place
	before  wrap.Found
	state   wrap.State
	run     *wrap.Run
	network gateway.Network
	secret  []string // NAME=value
	job     bailey.Job

	model, named []string // host:port, see the starter policy's rule wrap
}

// wrap plans the cage, has policy decide and the ledger say so, runs the agent in this very process, and puts in quarantine
// what it left.
func (a *app) wrap(ctx context.Context, words wrapping, argv []string) (err error) {
	w := &wrapped{app: a, wrapping: words}
	if w.op, err = a.operator("wrap", words.yes); err != nil {
		return err
	}
	if w.client, err = a.client(); err != nil {
		return err
	}
	if err := w.look(ctx, argv); err != nil {
		return err
	}
	defer closePlaces([]bailey.Place{w.project})
	cages, err := openJail(gateway.Masks(w.client.Home, gateway.Homes()), nil)
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
	exit, err := w.inside(ctx, cages, home, argv)
	return errors.Join(w.settle(exit), err)
}

// look finds the project and the agent, and nothing is made yet.
func (w *wrapped) look(ctx context.Context, argv []string) (err error) {
	if w.state, err = wrap.FindState(); err != nil {
		return err
	}
	w.agent = wrap.Known(argv[0])
	if w.program, err = exec.LookPath(argv[0]); err == nil {
		w.program, err = filepath.Abs(w.program)
	}
	if err != nil {
		return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("%s is not installed", argv[0]), Hint: "install it, or name it by its path", Err: err}
	}
	var st gateway.SettingsState
	if err := w.client.Look(ctx, wire.Query{Verb: "settings"}, &st); err != nil {
		return err
	}
	w.network = st.Applied.Network
	top, err := workRoot()
	if err != nil {
		return err
	}
	if err := gateway.NewWorkspaces(gateway.Masks(w.client.Home, gateway.Homes()), gateway.Homes()).Fit(top); err != nil {
		return err
	}
	w.project, err = gateway.OpenPlace(top, true)
	return err
}

// workRoot is the top of the repository that the current directory lies in, or that directory. A repository that is a whole
// home is nobody's project.
func workRoot() (string, error) {
	here, err := os.Getwd()
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	if err != nil {
		return "", err
	}
	homes := gateway.Homes()
	for dir := here; dir != "/" && !slices.Contains(homes, dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, nil
		}
	}
	return here, nil
}

// leftOver does for runs that were killed what they could not do.
func (w *wrapped) leftOver() error {
	runs, err := w.state.Left(w.project.Path)
	for _, r := range runs {
		s, serr := r.Settle()
		w.tell(s, r.Project)
		err = errors.Join(err, serr)
	}
	return err
}

// endpoints are what it may reach: what an agent of its name needs, what settings list for wrap, and what was named. The flags
// of a place are those that it has where it was named last.
func (w *wrapped) endpoints() (list []bailey.Endpoint, err error) {
	add := func(e bailey.Endpoint) {
		list = append(slices.DeleteFunc(list, func(o bailey.Endpoint) bool { return o.String() == e.String() }), e)
	}
	model := slices.Clone(w.agent.Endpoints)
	var named []bailey.Endpoint
	if base := os.Getenv(w.agent.Base); w.agent.Base != "" && base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Hostname() == "" {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: w.agent.Base + " is no URL", Hint: "correct it, or unset it"}
		}
		e, err := bailey.ParseEndpoint(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], "443")))
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
	named = append(named, w.network.For(gateway.ForWrap)...)
	for _, text := range w.egress {
		e, err := parseReach(text)
		if err != nil {
			return nil, err
		}
		named = append(named, widened(e, w.network.With(e)))
	}
	for _, e := range named {
		add(e)
	}
	w.model, w.named = nil, nil
	for _, e := range list {
		if slices.Contains(named, e) {
			w.named = append(w.named, e.String())
		} else {
			w.model = append(w.model, e.String())
		}
	}
	return list, nil
}

// widened has the flags of both: what settings say of a place holds wherever it is named.
func widened(e, o bailey.Endpoint) bailey.Endpoint {
	e.Private, e.Plain, e.NoSNI, e.ECH, e.Inspect = e.Private || o.Private, e.Plain || o.Plain, e.NoSNI || o.NoSNI, e.ECH || o.ECH, e.Inspect || o.Inspect
	return e
}

// claudeState is where Claude Code keeps what it knows of its user.
const claudeState = ".claude.json"

// furnish makes what the agent finds in its home, where it does not have it yet.
func (w *wrapped) furnish(ctx context.Context, home string) error {
	files := map[string]string{".gitconfig": w.gitIdentity(ctx)}
	for name, text := range w.agent.Files {
		files[name] = text
	}
	if _, own := files[claudeState]; own && len(w.secret) > 0 { // who brings a key need not be led through a login, which asks hosts that are not listed
		files[claudeState] = strings.Replace(files[claudeState], "{", `{"hasCompletedOnboarding":true,`, 1)
	}
	return wrap.Furnish(home, files)
}

// gitIdentity is who commits are by: of the user's own configuration these two lines and no more. A git that lies in the project
// is an agent's to write, and this runs outside of the wall.
func (w *wrapped) gitIdentity(ctx context.Context) string {
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

// tell says what a run left.
func (w *wrapped) tell(s wrap.Settled, project string) {
	for _, line := range s.Words(project) {
		fmt.Fprintln(w.stderr, "bailey: "+visible(line))
	}
}
