package gate

import (
	"errors"
	"slices"
	"testing"

	"bailey"
	"bailey/pack"
)

// near is a checkout.
type near struct{ pack.Checkout }

func (near) Repository(bool) (owner, name string, err error) { return "o", "r", nil }

// TestCheckout checks that an input from the checkout is decided, checked and rendered like one of the caller, and that
// a call that has the input does not read the checkout.
func TestCheckout(t *testing.T) {
	for _, c := range []struct {
		checkout pack.Checkout
		err      error
		input    map[string]any
		repo     string
		reads    bool
	}{
		{near{}, nil, map[string]any{}, "o/r", true},
		{near{}, nil, nil, "o/r", true},
		{near{}, nil, map[string]any{"repo": "a/b"}, "a/b", false},
		{nil, errors.New("not a repository"), map[string]any{}, "", true},
	} {
		w := newWorld(t)
		w.checkout, w.checkoutErr = c.checkout, c.err
		var seen any
		allow := w.decide
		w.decide = func(n int, r bailey.Request) bailey.Decision { seen = r.Input["repo"]; return allow(n, r) }
		in := call()
		in.Capability, in.Input = "t.hub", c.input
		res := w.gate().Do(t.Context(), in)
		if ran := w.happened("run --repo=" + c.repo); ran != (c.repo != "") || ran && seen != c.repo || w.happened("checkout") != c.reads {
			t.Errorf("%v: %v, decided on %v, %v", c.input, w.did, seen, res.Err)
		}
		if c.repo == "" && bailey.KindOf(res.Err) != bailey.Invalid {
			t.Errorf("%v", res.Err)
		}
	}
	w := newWorld(t)
	w.checkout = hostileCheckout{}
	in := call()
	in.Capability, in.Input = "t.hub", map[string]any{}
	if res := w.gate().Do(t.Context(), in); bailey.KindOf(res.Err) != bailey.Invalid || slices.Contains(w.did, "plan") {
		t.Errorf("%v: %v", w.did, res.Err)
	}
}

type hostileCheckout struct{ pack.Checkout }

func (hostileCheckout) Repository(bool) (owner, name string, err error) {
	return "o", "r --hostname=evil.example", nil
}
