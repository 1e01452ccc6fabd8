package gate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// push returns a call that names a remote, in a world in which the remote has an address.
func push(t *testing.T, config string) (*world, bailey.Call) {
	w, in := newWorld(t), call()
	in.Capability, in.Input = "t.push", map[string]any{"repo": "/r"}
	w.loads = map[string]string{".git/config": config, ".git/HEAD": "ref: refs/heads/main\n"}
	w.way = &fakeWay{}
	w.lease = bailey.Lease{Env: []string{"TOKEN=sesame"}, Secrets: []bailey.Secret{bailey.NewSecret("sesame")}}
	return w, in
}

const atGitHub = "[remote \"origin\"]\n\turl = git@github.com:a/b.git\n"

// TestRemoteIsDecided checks that policy, the question, the run and the limits of the credential have the address that
// the configuration gives the remote.
func TestRemoteIsDecided(t *testing.T) {
	w, in := push(t, atGitHub)
	ask(w)
	var asked bailey.Request
	decide := w.decide
	w.decide = func(n int, r bailey.Request) bailey.Decision { asked = r; return decide(n, r) }
	var q bailey.Question
	given := w.answer
	w.answer = func(a bailey.Question) bailey.Answer { q = a; return given(a) }
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	const url, rewrite = "https://github.com/a/b.git", "url.https://github.com/a/b.git.insteadOf=git@github.com:a/b.git"
	if asked.Input["url"] != url || asked.Input["remote"] != "origin" || !slices.Equal(asked.Egress, []string{"github.com:443"}) {
		t.Errorf("decided was %v, %q", asked.Input, asked.Egress)
	}
	var argv []string
	for _, a := range q.Argv {
		argv = append(argv, a.Text)
	}
	if !slices.Equal(argv, []string{"push", "-c", rewrite, "origin"}) || !slices.Equal(q.Egress, []string{"github.com:443"}) {
		t.Errorf("asked was %q, %q", argv, q.Egress)
	}
	if !w.happened("run -c "+rewrite+" origin") || len(w.way.inject) != 1 || !slices.Equal(w.way.inject[0].Paths, []string{"github.com:443/a/b.git"}) {
		t.Errorf("%v, %+v", w.did, w.way.inject)
	}
}

// TestRemoteElsewhere checks that a call to another host gets no credential.
func TestRemoteElsewhere(t *testing.T) {
	w, in := push(t, "[remote \"origin\"]\n\turl = https://git.example.org/a/b.git\n")
	w.lease = bailey.Lease{}
	var env []string
	w.run = func(bailey.Lent, bailey.Streams) (bailey.Exit, error) { env = w.jobs[0].Env; return bailey.Exit{}, nil }
	if res := w.gate().Do(t.Context(), in); res.Err != nil || len(w.way.inject) > 0 || !slices.Contains(env, "TOKEN=") || len(w.jobs[0].EnvNames) > 0 {
		t.Errorf("%v, %+v, %q", res.Err, w.way.inject, env)
	}
}

// TestRemoteRefused checks that nothing is decided about a call whose address is not known, or is not the one that the
// caller states.
func TestRemoteRefused(t *testing.T) {
	for name, change := range map[string]func(*world, bailey.Call){
		"rewritten":     func(w *world, _ bailey.Call) { w.loads[".git/config"] += "[url \"ext::x\"]\n\tinsteadOf = git@\n" },
		"no repository": func(w *world, _ bailey.Call) { w.loads = nil },
		"unreadable":    func(w *world, _ bailey.Call) { w.loadErr = errors.New("a fault") },
		"stated":        func(_ *world, c bailey.Call) { c.Input["url"] = "https://evil.example/a" },
		"no directory":  func(_ *world, c bailey.Call) { delete(c.Input, "repo") },
	} {
		w, in := push(t, atGitHub)
		change(w, in)
		if res := w.gate().Do(t.Context(), in); res.Err == nil || w.happened("decide") {
			t.Errorf("%s: %v, %v", name, res.Err, w.did)
		}
	}
}

// TestRemoteChanges checks that a call does not run if its remote has another address after the decision.
func TestRemoteChanges(t *testing.T) {
	for _, to := range []string{strings.Replace(atGitHub, "a/b", "a/c", 1), ""} {
		w, in := push(t, atGitHub)
		ask(w)
		given := w.answer
		w.answer = func(q bailey.Question) bailey.Answer { w.loads[".git/config"] = to; return given(q) }
		res := w.gate().Do(t.Context(), in)
		if bailey.KindOf(res.Err) != bailey.Conflict || res.Executed || w.happened("lend") {
			t.Errorf("%q: %v, %v", to, res.Err, w.did)
		}
	}
}
