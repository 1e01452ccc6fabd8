package gate

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

// fakeSigner has a key, and signs each text of its socket at most once.
type fakeSigner struct {
	err    error
	asked  []pack.Signing
	served bool
	made   int
	says   []string
}

func (f *fakeSigner) Prepare(_ context.Context, _ pack.GitPerson, s pack.Signing) (Signing, error) {
	f.asked = append(f.asked, s)
	if f.err != nil {
		return nil, f.err
	}
	return f, nil
}

func (f *fakeSigner) Key() pack.GitKey {
	return pack.GitKey{Format: "ssh", Public: "key::ssh-ed25519 AAAA", Fingerprint: "SHA256:k", Holder: "ssh agent",
		Program: "/usr/bin/bailey", Address: "127.78.0.1:1"}
}

func (f *fakeSigner) Serve(context.Context, net.Listener) error { f.served = true; return nil }

func (f *fakeSigner) Report() (int, []string) { return f.made, f.says }

// signingWorld is a world whose person wants commits signed, and a call that makes one.
func signingWorld(t *testing.T, f *fakeSigner, options ...any) (*world, *Gate, bailey.Call) {
	w, in := newWorld(t), call()
	w.person = pack.GitPerson{Name: "Ada", Email: "a@b", SignCommits: true,
		Signing: pack.GitSigning{Name: "Ada", Email: "a@b"}}
	in.Capability, in.Input = "t.work", map[string]any{"repo": "/r"}
	if options != nil {
		in.Input["options"] = options
	}
	g := w.gate()
	g.Signer = f
	return w, g, in
}

// TestSignedCall checks that a call which must be signed has a socket of its own to the signer and git's settings for it,
// that the person is told, and that the receipt names the key.
func TestSignedCall(t *testing.T) {
	f := &fakeSigner{made: 1}
	w, g, in := signingWorld(t, f)
	ask := bailey.Rule{ID: "ask", Source: "t.cedar:1"}
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		if len(r.Egress) > 0 {
			t.Errorf("the signer is a destination: %q", r.Egress)
		}
		if len(r.Approvals) > 0 {
			return bailey.Decision{Effect: bailey.Allow, Policy: "p1"}
		}
		return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{ask}, Policy: "p1"}
	}
	impact := ""
	w.answer = func(q bailey.Question) bailey.Answer {
		impact = q.Impact
		return bailey.Answer{Granted: []bailey.RuleID{"ask"}}
	}
	var way bailey.Way
	w.run = func(l bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
		way = l.Way
		io.WriteString(s.Stdout, "")
		return bailey.Exit{}, nil
	}
	if res := g.Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	job := w.jobs[len(w.jobs)-1]
	for _, want := range []string{"GIT_CONFIG_COUNT=5", "GIT_CONFIG_VALUE_0=ssh", "GIT_CONFIG_VALUE_1=key::ssh-ed25519 AAAA"} {
		if !slices.Contains(job.Env, want) {
			t.Errorf("%q lacks %s", job.Env, want)
		}
	}
	if !slices.Contains(job.Exec, "/usr/bin/bailey") || job.Network == nil || len(job.Network.Endpoints) > 0 ||
		!slices.Equal(job.Network.Listen, []bailey.Listen{{Network: "tcp", Address: "127.78.0.1:1"}}) {
		t.Errorf("%+v", job)
	}
	if want := "signs one commit as Ada <a@b> with the key SHA256:k (ssh agent)"; !strings.HasSuffix(impact, want) {
		t.Errorf("the person reads %q", impact)
	}
	if got := w.one().Leases; !slices.Contains(got, "git signatures: 1 with SHA256:k (ssh agent)") {
		t.Errorf("the receipt has %q", got)
	}
	if way == nil || way.Serve(t.Context(), []net.Listener{nil}) != nil || !f.served {
		t.Error("nothing serves the socket")
	}
}

// TestSignedCallRefused checks that a call which must be signed never runs without a signer, and that a refused signature
// is named.
func TestSignedCallRefused(t *testing.T) {
	f := &fakeSigner{err: bailey.Denied.New("no such key", "add it")}
	w, g, in := signingWorld(t, f)
	if res := g.Do(t.Context(), in); bailey.KindOf(res.Err) != bailey.Denied || len(w.jobs) > 0 ||
		bailey.HintOf(res.Err) != "add it" {
		t.Errorf("%v", res.Err)
	}
	f = &fakeSigner{says: []string{"the author is not Ada"}}
	w, g, in = signingWorld(t, f)
	w.run = func(bailey.Lent, bailey.Streams) (bailey.Exit, error) { return bailey.Exit{Code: 128}, nil }
	if res := g.Do(t.Context(), in); !strings.Contains(bailey.HintOf(res.Err), "the author is not Ada") {
		t.Errorf("%v: %s", res.Err, bailey.HintOf(res.Err))
	}
	if got := w.one().Leases; len(got) != 1 || !strings.Contains(got[0], "1 refused: the author is not Ada") {
		t.Errorf("the receipt has %q", got)
	}
	w, g, in = signingWorld(t, &fakeSigner{})
	w.person.Signing.Fault = bailey.Denied.New("another user.email", "")
	if res := g.Do(t.Context(), in); bailey.KindOf(res.Err) != bailey.Denied || len(w.jobs) > 0 {
		t.Errorf("%v", res.Err)
	}
	for _, c := range []struct {
		option  string
		wanted  bool
		signers int
	}{{"--no-gpg-sign", true, 0}, {"-S", false, 1}, {"--ff-only", true, 0}} {
		f = &fakeSigner{}
		w, g, in = signingWorld(t, f, c.option)
		w.person.SignCommits = c.wanted
		if res := g.Do(t.Context(), in); res.Err != nil || len(f.asked) != c.signers {
			t.Errorf("%s: %v, and %d signers", c.option, res.Err, len(f.asked))
		}
	}
}
