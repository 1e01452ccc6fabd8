package approve

import (
	"fmt"
	"testing"

	"bailey"
)

// TestHeard checks that the verdicts of the hooks on a call are cached while its question is open, for each call that
// joined it, up to maxHeard. They must be gone when the question ends.
func TestHeard(t *testing.T) {
	for name, end := range map[string]func(u *Queue, call bailey.Question){
		"it ran":            func(u *Queue, call bailey.Question) { ask(t, u, again(call)) },
		"somebody said no":  func(u *Queue, _ bailey.Question) { u.Withdraw("no", func(bailey.Question) bool { return true }) },
		"its session ended": func(u *Queue, call bailey.Question) { u.End(call.Session) },
	} {
		b := &book{}
		u, _ := queue(b)
		call := question("a-1", false)
		call.Rules, call.Session = []bailey.Rule{one}, "s-1"
		call.Heard = bailey.Heard{Of: "m-1", Input: []byte("{}")}
		ask(t, u, call)
		for i := range 2 * maxHeard {
			other := again(call)
			other.Heard.Of = fmt.Sprint("m-", i)
			ask(t, u, other)
		}
		known := 0
		for i := range 2 * maxHeard {
			if h, ok := u.Parked(fmt.Sprint("m-", i)); ok && string(h.Input) == "{}" {
				known++
			}
		}
		if _, ok := u.Parked("m-1"); !ok || known != maxHeard {
			t.Errorf("%d are known", known)
		}
		open := u.Open()
		if len(open) != 1 || open[0].Heard.Of != "" {
			t.Errorf("whoever looks sees %+v", open)
		}
		if _, err := u.Answer(t.Context(), by("ada", open[0].Question)); err != nil {
			t.Fatal(err)
		}
		if _, ok := u.Parked("m-1"); !ok {
			t.Error("it was granted, and what it is is gone")
		}
		if _, ok := u.Parked(""); ok {
			t.Error("what nobody was asked about is known")
		}
		if end(u, call); len(u.Open()) != 0 {
			t.Fatalf("%s, and it goes on", name)
		}
		if _, ok := u.Parked("m-1"); ok {
			t.Errorf("%s, and it is known still", name)
		}
		next, _ := queue(b) // another gateway
		if _, ok := next.Parked("m-1"); ok {
			t.Error("it was written down")
		}
	}
}
