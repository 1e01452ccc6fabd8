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

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/server"
	"bailey/internal/settings"
	"bailey/internal/terminal"
	"bailey/internal/workspace"
	"bailey/internal/wrap"
)

// wrapped is an agent that is started in the agent jail.
type wrapped struct {
	*commands
	wrapping
	op      localapi.Operator
	client  *localapi.Client
	agent   wrap.Agent
	program string
	project bailey.Place
	before  wrap.Found
	state   wrap.State
	run     *wrap.Run
	network settings.Network
	secret  []string // NAME=value
	job     bailey.Job

	model, named []string // host:port, see the rule wrap of the starter policy
}

// wrap plans the cage, lets the policy decide, records the start in the ledger, runs the agent from this process, and
// moves new files with guarded names into quarantine.
func (a *commands) wrap(ctx context.Context, words wrapping, argv []string) (err error) {
	w := &wrapped{commands: a, wrapping: words}
	if w.op, err = a.Operator("wrap", words.yes); err != nil {
		return err
	}
	if w.client, err = a.Client(); err != nil {
		return err
	}
	if err := w.look(ctx, argv); err != nil {
		return err
	}
	defer closePlaces([]bailey.Place{w.project})
	cages, err := server.OpenJail(workspace.Masks(w.client.Home, workspace.Homes()), nil)
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

// look finds the project and the agent. It creates nothing.
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
	var st settings.State
	if err := w.client.Look(ctx, localapi.Query{Verb: "settings"}, &st); err != nil {
		return err
	}
	w.network = st.Applied.Network
	top, err := workRoot()
	if err != nil {
		return err
	}
	if err := workspace.NewWorkspaces(workspace.Masks(w.client.Home, workspace.Homes()), workspace.Homes()).Fit(top); err != nil {
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
func (w *wrapped) leftOver() error {
	runs, err := w.state.Left(w.project.Path)
	for _, r := range runs {
		s, serr := r.Settle()
		w.tell(s, r.Project)
		err = errors.Join(err, serr)
	}
	return err
}

// endpoints returns the places that the agent may reach: those that this kind of agent needs, those that the settings
// list for wrap, and those of --egress. If a place is named several times, the last flags apply.
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
	named = append(named, w.network.For(settings.ForWrap)...)
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

// widened combines the flags of both: flags of the settings apply wherever a place is named.
func widened(e, o bailey.Endpoint) bailey.Endpoint {
	e.Private, e.Plain, e.NoSNI, e.ECH, e.Inspect = e.Private || o.Private, e.Plain || o.Plain, e.NoSNI || o.NoSNI, e.ECH || o.ECH, e.Inspect || o.Inspect
	return e
}

// claudeState is the file in which Claude Code stores what it knows about its user.
const claudeState = ".claude.json"

// furnish creates the initial files in the home of the agent. It keeps existing files.
func (w *wrapped) furnish(ctx context.Context, home string) error {
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

// tell prints the files that a run left.
func (w *wrapped) tell(s wrap.Settled, project string) {
	for _, line := range s.Words(project) {
		fmt.Fprintln(w.Stderr, "bailey: "+terminal.CutLine(line))
	}
}
