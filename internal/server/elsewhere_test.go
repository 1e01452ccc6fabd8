//go:build linux

package server

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"bailey"
	"bailey/audit"
	"bailey/internal/enrol"
	"bailey/internal/fleet"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
)

// permitFleet applies settings that permit calls of the control plane.
func (a asking) permitFleet(t *testing.T, calls string) {
	t.Helper()
	if _, err := a.settings.Apply(t.Context(), a.settings.Digest(), []byte("fleet: {calls: ["+calls+"]}\n"),
		settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
}

// TestCallOfControlPlane: a call of the control plane needs an enrolment in the caller's organisation, and the settings. It
// passes the gate as the person and the organisation, and never as an agent of this machine.
func TestCallOfControlPlane(t *testing.T) {
	t.Parallel()
	a, up := askingFor(t, ""), &reportedEvents{}
	a.reports = up
	ada := fleet.CallPerson{Account: "a-1", Email: "ada@example.com", Role: "admin", Organisation: "o-1"}
	order := fleet.CallOrder{Operation: "op-1", Capability: "source.run", By: ada,
		Input: map[string]any{"host": "web-1", "command": "uptime"}}
	refused := func(what, words string, kind bailey.Kind, o fleet.CallOrder) {
		t.Helper()
		if _, err := command[fleet.CallResult](t, a.Server, fleet.Call, o); !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("without an enrolment", "organisation", bailey.Denied, order)
	e := enrol.Enrolment{Host: "h-1", Organisation: "o-1"}
	a.enrolled.Store(&e)
	refused("without the setting", "do not permit", bailey.Denied, order)
	a.permitFleet(t, "sandbox.list")
	refused("with another setting", "do not permit", bailey.Denied, order)
	a.permitFleet(t, "source.run")
	foreign := order
	foreign.By.Organisation = "o-2"
	refused("another organisation", "organisation", bailey.Denied, foreign)
	for _, email := range []string{"", "a\nb", strings.Repeat("x", 300)} {
		odd := order
		odd.By.Email = email
		refused("an odd address", "account", bailey.Invalid, odd)
	}
	other := order
	other.Capability = "git.push"
	refused("another pack", "do not permit", bailey.Denied, other)
	var begun fleet.CallBegin
	if up.last(t, fleet.CallBegun, &begun) {
		t.Errorf("a refused call has begun: %+v", begun)
	}
	r, err := command[fleet.CallResult](t, a.Server, fleet.Call, order)
	if err != nil || r.Receipt == "" || r.Status == bailey.OK || r.Error != string(bailey.NotFound) {
		t.Errorf("a source host that is not there: %+v, %v", r, err)
	}
	if !up.last(t, fleet.CallBegun, &begun) || begun.Operation != "op-1" {
		t.Errorf("begun %+v", begun)
	}
	in := a.intentOf(t, r.Receipt)
	if in.Agent != apitype.ControlPlaneAgent || in.Person != "ada@example.com" || in.Organisation != "o-1" ||
		strings.Join(in.Roles, " ") != "account:a-1 admin" || in.Door != "control-plane" {
		t.Errorf("the receipt names %+v", in)
	}
}

// intentOf finds the first entry of a receipt in the ledger.
func (a asking) intentOf(t *testing.T, id bailey.ReceiptID) (in bailey.Intent) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(a.home.Ledger(), "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var e struct {
				Entry struct {
					Kind string
					Data json.RawMessage
				}
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Entry.Kind == audit.KindIntent && strings.Contains(line, string(id)) {
				if err := json.Unmarshal(e.Entry.Data, &in); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return in
}

// TestCallResultIsBounded: the result of a call stays small enough for the control plane, whatever the output is.
func TestCallResultIsBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"short", strings.Repeat("x", 1<<20), strings.Repeat("\x01", 1<<20), strings.Repeat("é", 1<<19),
		strings.Repeat("\xffx", 1<<18)} {
		r := newCallResult(bailey.Result{Executed: true, Status: bailey.OK, Stdout: []byte(text), Stderr: []byte(text),
			Err: bailey.Invalid.New(text, text)})
		b, err := json.Marshal(r)
		if err != nil || len(b) > 64<<10 || !utf8.ValidString(r.Stdout) ||
			r.Truncated != (len(text) > 100) || r.Stdout == "" {
			t.Errorf("%.4q: %d bytes, truncated %v, %v", text, len(b), r.Truncated, err)
		}
	}
	large := newCallResult(bailey.Result{Executed: true, Structured: []byte(`"` + strings.Repeat("x", 1<<20) + `"`),
		Stdout: []byte(strings.Repeat("x", 1<<20))})
	if len(large.Structured) > 0 || !large.Truncated {
		t.Error("a large answer is whole")
	}
}
