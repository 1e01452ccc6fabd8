package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// fetch returns a call of the capability with a network, and its world.
func fetch(t *testing.T) (*world, bailey.Call) {
	w, in := newWorld(t), call()
	in.Capability, in.Input = "t.fetch", map[string]any{"url": "https://SECRET.example/x"}
	w.way = &fakeWay{}
	w.lease = bailey.Lease{IDs: []string{"l-1", "l-2"}, Env: []string{"PLAIN=open", "TOKEN=sesame=1"}, Secrets: []bailey.Secret{bailey.NewSecret("open"), bailey.NewSecret("sesame=1")}}
	return w, in
}

// TestInjectedStaysOutside checks that the tool gets a placeholder, made for this call. The value must go to the Way
// and the redactor, and must not be in a variable, a question or a receipt.
func TestInjectedStaysOutside(t *testing.T) {
	w, in := fetch(t)
	w.scopes = []bailey.LeaseScope{{Name: "plain", Env: "PLAIN"}, {Name: "token", Env: "TOKEN"}}
	ask(w)
	var q bailey.Question
	given := w.answer
	w.answer = func(asked bailey.Question) bailey.Answer { q = asked; return given(asked) }
	var env []string
	var way bailey.Way
	w.run = func(l bailey.Lent, _ bailey.Streams) (bailey.Exit, error) {
		env, way = slices.Clone(l.Env), l.Way
		return bailey.Exit{}, nil
	}
	if res := w.gate().Do(t.Context(), in); res.Err != nil || !w.happened("learn") {
		t.Fatal(res.Err)
	}
	if way != w.way || len(w.way.inject) != 1 {
		t.Fatalf("the way is %v", way)
	}
	got := w.way.inject[0]
	if got.Name != "token" || got.Value.Reveal() != "sesame=1" || !slices.Equal(got.To, []string{"api.example:443"}) || !slices.Equal(got.Headers, []string{"Authorization"}) || !slices.Equal(got.Query, []string{"key"}) {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(env, []string{"PLAIN=open", "TOKEN=" + got.Placeholder}) || len(got.Placeholder) < 40 {
		t.Errorf("the tool has %q", env)
	}
	if len(q.Leases) != 2 || q.Leases[0].Inject != nil || q.Leases[1].Inject == nil || q.Leases[1].Inject.To[0] != "api.example:443" {
		t.Errorf("asked was %+v", q.Leases)
	}
	if !slices.Equal(q.Egress, []string{"api.example:443", "secret.example:443"}) {
		t.Errorf("it reaches %q", q.Egress)
	}
	o, err := json.Marshal(w.one())
	if text := fmt.Sprintf("%s %+v %v", o, q, w.did); err != nil || strings.Contains(text, "sesame") || strings.Contains(text, got.Placeholder) {
		t.Error("the value or its placeholder is written down")
	}
	w.did, w.intents, w.outcomes, w.way.inject = nil, nil, nil, nil
	w.lease.Env = []string{"PLAIN=open", "TOKEN=sesame=1"}
	if res := w.gate().Do(t.Context(), in); res.Err != nil || w.way.inject[0].Placeholder == got.Placeholder {
		t.Errorf("two calls have one placeholder: %v", res.Err)
	}
}

// TestKeysStayOutside checks that the tool gets a file of placeholders in place of keys that sign, and the Way gets the
// keys. A file without keys must not be lent.
func TestKeysStayOutside(t *testing.T) {
	w, in := fetch(t)
	in.Capability, in.Input = "t.sign", map[string]any{}
	file := "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = sesame\ncredential_process = /bin/x\n[dev]\naws_access_key_id = AKIDOTHER\naws_secret_access_key = sesame2\nregion = eu-west-1\n"
	lend := func(text string) {
		secret := bailey.NewSecret(text)
		w.lease = bailey.Lease{IDs: []string{"l-1"}, Files: []bailey.LentFile{{Env: "KEYS", Value: secret}}}
	}
	lend(file)
	var shown string
	w.run = func(l bailey.Lent, _ bailey.Streams) (bailey.Exit, error) {
		shown = l.Files[0].Value.Reveal()
		return bailey.Exit{}, nil
	}
	if res := w.gate().Do(t.Context(), in); res.Err != nil || !w.happened("learn") {
		t.Fatal(res.Err, w.did)
	}
	if len(w.way.inject) != 2 {
		t.Fatalf("%d injections", len(w.way.inject))
	}
	for i, secret := range []string{"sesame", "sesame2"} {
		in := w.way.inject[i]
		if in.Sign != bailey.SignAWS || !strings.Contains(in.Value.Reveal(), " "+secret+"\n") || !slices.Equal(in.To, []string{"*.api.example:443"}) ||
			!strings.Contains(shown, "aws_access_key_id = "+in.Placeholder+"\n") {
			t.Errorf("%+v, the tool has %s", in, shown)
		}
	}
	if strings.Contains(shown, "sesame") || strings.Contains(shown, "AKID") || strings.Contains(shown, "credential_process") || !strings.Contains(shown, "[dev]") ||
		!strings.Contains(shown, "region = eu-west-1") {
		t.Errorf("the tool has %s", shown)
	}
	w.did, w.intents, w.outcomes, w.way.inject = nil, nil, nil, nil
	lend("[default]\ncredential_process = /bin/x\n")
	if res := w.gate().Do(t.Context(), in); !errors.Is(res.Err, bailey.Invalid) || res.Executed || bailey.HintOf(res.Err) == "" {
		t.Errorf("a file without keys: %v", res.Err)
	}
}

// TestTokensStayOutside checks that the tool gets a placeholder for the token in a file, and that a file without a token for
// the places of the manifest is refused.
func TestTokensStayOutside(t *testing.T) {
	w, in := fetch(t)
	in.Capability, in.Input = "t.tokens", map[string]any{}
	lend := func(text string) {
		w.lease = bailey.Lease{IDs: []string{"l-1"}, Files: []bailey.LentFile{{Env: "NPMRC", Value: bailey.NewSecret(text)}}}
	}
	lend("script-shell=/bin/x\n//api.example/:_authToken=sesame\n")
	var shown string
	w.run = func(l bailey.Lent, _ bailey.Streams) (bailey.Exit, error) {
		shown = l.Files[0].Value.Reveal()
		return bailey.Exit{}, nil
	}
	if res := w.gate().Do(t.Context(), in); res.Err != nil || !w.happened("learn") || len(w.way.inject) != 1 {
		t.Fatal(res.Err, w.did)
	}
	if i := w.way.inject[0]; i.Value.Reveal() != "sesame" || shown != "//api.example/:_authToken="+i.Placeholder+"\n" {
		t.Errorf("%+v, the tool has %s", i, shown)
	}
	w.did, w.intents, w.outcomes, w.way.inject = nil, nil, nil, nil
	lend("//other.example/:_authToken=sesame\n")
	if res := w.gate().Do(t.Context(), in); !errors.Is(res.Err, bailey.Invalid) || res.Executed || bailey.HintOf(res.Err) == "" {
		t.Errorf("a file without a token for the place: %v", res.Err)
	}
}

// TestNothingRunsWithoutItsWay checks that a call does not run if its credential cannot be withheld from the tool, or
// if its Way cannot be opened.
func TestNothingRunsWithoutItsWay(t *testing.T) {
	for name, change := range map[string]func(*world){
		"not lent":  func(w *world) { w.lease.Env = []string{"PLAIN=open"} },
		"elsewhere": func(w *world) { w.lease.Env = []string{"PLAIN=open", "TOKENS=sesame"} },
		"no way":    func(w *world) { w.way = nil },
	} {
		w, in := fetch(t)
		change(w)
		res := w.gate().Do(t.Context(), in)
		if res.Err == nil || res.Executed || slices.ContainsFunc(w.did, func(s string) bool { return strings.HasPrefix(s, "run") }) {
			t.Errorf("%s: %v", name, w.did)
		}
		w.one()
	}
	w, in := fetch(t)
	in.Input["url"] = "http://api.example"
	if res := w.gate().Do(t.Context(), in); !errors.Is(res.Err, bailey.Invalid) || w.happened("decide") {
		t.Errorf("%v", res.Err)
	}
}

// TestEgressIsDecidedUpon checks that policy sees each endpoint that the tool can reach, in order and once.
func TestEgressIsDecidedUpon(t *testing.T) {
	w, in := fetch(t)
	in.Input["url"] = "https://API.example:443/"
	var seen [][]string
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		seen = append(seen, r.Egress)
		return bailey.Decision{Effect: bailey.Allow, Policy: "p1"}
	}
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if r := w.one().Reaches; !slices.Equal(r, []string{"api.example:443"}) {
		t.Errorf("the receipt has %q", r)
	}
	for _, s := range seen {
		if !slices.Equal(s, []string{"api.example:443"}) {
			t.Errorf("decided upon %q", seen)
		}
	}
}

// TestReportIsBounded checks that refusals take precedence, that secrets are redacted before a text is cut, and that
// the omitted events are counted.
func TestReportIsBounded(t *testing.T) {
	w, in := fetch(t)
	w.way.report.EgressTotals = bailey.EgressTotals{Connections: 40, Refused: 3, Untold: 5}
	for i := range 40 {
		w.way.report.Events = append(w.way.report.Events, bailey.EgressEvent{Kind: bailey.EgressClosed, Target: fmt.Sprintf("h%d.example:443", i), Up: 1})
	}
	long := strings.Repeat("x", maxWords-4) + "SECRET"
	for _, at := range []int{10, 30, 39} {
		w.way.report.Events[at] = bailey.EgressEvent{Kind: bailey.EgressRefused, Target: "SECRET:1", Reason: long, Hint: "ask SECRET"}
	}
	w.way.report.Events[39].Kind, w.way.report.Events[39].Reason = bailey.EgressMisused, "the placeholder"
	w.run = func(bailey.Lent, bailey.Streams) (bailey.Exit, error) { return bailey.Exit{Code: 7}, nil }
	res := w.gate().Do(t.Context(), in)
	o := w.one()
	if o.Egress == nil || len(o.Egress.Events) != maxTold || o.Egress.Untold != 5+40-maxTold || o.Egress.Connections != 40 {
		t.Fatalf("%+v", o.Egress)
	}
	order := []string{}
	for _, e := range o.Egress.Events {
		order = append(order, e.Kind[:1])
		for _, s := range []string{e.Target, e.Reason, e.Hint} {
			if strings.Contains(s, "SECRET") || len(s) > maxWords+len("…") {
				t.Errorf("%d bytes: %.80s", len(s), s)
			}
		}
	}
	if got := strings.Join(order, ""); got != "ccccccccccrcccrm" {
		t.Errorf("events in the order %s", got)
	}
	if len(res.Refused) != 2 || strings.Contains(strings.Join(res.Refused, ""), "SECRET") || !strings.HasPrefix(bailey.HintOf(res.Err), "2 of its requests were refused, the first: xxx") {
		t.Errorf("the caller is told %q, %s", res.Refused, bailey.HintOf(res.Err))
	}
	w.way.report.Events = []bailey.EgressEvent{{Kind: bailey.EgressClosed}, {Kind: bailey.EgressFailed, Reason: "it did not come about: SECRET"}}
	w.intents, w.outcomes = nil, nil
	if res := w.gate().Do(t.Context(), in); res.Refused != nil || bailey.HintOf(res.Err) != "it did not come about: [R]" {
		t.Errorf("what failed is told as %q, %s", res.Refused, bailey.HintOf(res.Err))
	}
	if e, c := call(), newWorld(t); c.gate().Do(t.Context(), e).Refused != nil || c.one().Egress != nil {
		t.Error("a call without a network has a report")
	}
}
