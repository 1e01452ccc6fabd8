package server

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/wrap"
	"bailey/pack"
)

// chain returns the types of v and of what it wraps, from the outside in. A value wraps the value of its first field
// that has one of the given interfaces.
func chain(v reflect.Value, interfaces ...reflect.Type) (names []string) {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	names = append(names, fmt.Sprint(v.Type()))
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return names
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Interface && !f.IsNil() && slices.Contains(interfaces, f.Type()) {
			return append(names, chain(f, interfaces...)...)
		}
	}
	return names
}

// TestCallPath checks the order of everything that stands around gate.Do. For example, a call that the kill switch
// refuses must not be able to pass because the policy allows it, and a call that is over its rate must cost nothing.
func TestCallPath(t *testing.T) {
	s := &Server{Log: slog.New(slog.DiscardHandler), tracer: &gateway.Tracer{}}
	if _, err := s.NewGate(localapi.Home(filepath.Join(t.TempDir(), "home")), nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	entry := reflect.TypeFor[gateway.Gate]()
	for name, c := range map[string]struct {
		chain []string
		want  []string
	}{
		"entry":  {chain(reflect.ValueOf(s.limit), entry), []string{"*gateway.Limit", "*gateway.KillSwitch", "*gate.Gate"}},
		"ledger": {chain(reflect.ValueOf(s.Gate.Ledger), reflect.TypeFor[gate.Ledger]()), []string{"gateway.liveLedger", "gateway.tracerLedger", "gateway.meterLedger", "*ledger.Log"}},
		"policy": {chain(reflect.ValueOf(s.Gate.Policy), reflect.TypeFor[gate.Policy]()), []string{"gateway.killSwitchPolicy", "gateway.scopePolicy", "*server.policyStore"}},
		"jail":   {chain(reflect.ValueOf(s.Gate.Runners[pack.Jail]), reflect.TypeFor[bailey.Runner]()), []string{"*toolchain.Runner", "*gateway.Pins", "*wrap.Works", "*jail.Jail"}},
		"open":   {chain(reflect.ValueOf(s.Gate.Runners[pack.Open]), reflect.TypeFor[bailey.Runner]()), []string{"*gateway.Pins", "*wrap.Works", "*jail.None"}},
	} {
		if !slices.Equal(c.chain, c.want) {
			t.Errorf("%s: %q, want %q", name, c.chain, c.want)
		}
	}
}

// reporter is a runner, and a run of its own, that has something for every method to report.
type reporter struct {
	bailey.Run
	ended bailey.SessionID
}

func (r *reporter) Plan(context.Context, bailey.Job) (bailey.Run, error) { return r, nil }

func (r *reporter) EndSession(_ context.Context, id bailey.SessionID) error {
	r.ended = id
	return nil
}

func (*reporter) Cage() bailey.Cage { return bailey.Cage{Kind: "full"} }

func (*reporter) Close() error { return nil }

func (*reporter) CPU() time.Duration { return time.Second }

func (*reporter) Warm() []bailey.WarmStep { return []bailey.WarmStep{{When: "once"}} }

// TestWrappedRunReports checks that whatever stands around a runner passes on its processor time, the steps of its warm
// helper and the end of a session.
func TestWrappedRunReports(t *testing.T) {
	project := bailey.Place{Path: t.TempDir(), Write: true}
	for name, job := range map[string]bailey.Job{"tool": {}, "build": {Places: []bailey.Place{project}, Wall: &bailey.Wall{}}} {
		r := &reporter{}
		works := wrap.NewWorks(r, t.TempDir(), func(bailey.SessionID) bool { return false })
		pins := gateway.NewPins(works, gateway.Digests{}, nil)
		run, err := pins.Plan(t.Context(), job)
		if err != nil {
			t.Fatal(name, err)
		}
		if run.CPU() != time.Second || len(run.Warm()) != 1 {
			t.Errorf("%s: %v, %v", name, run.CPU(), run.Warm())
		}
		if err := pins.EndSession(t.Context(), "s-1"); err != nil || r.ended != "s-1" {
			t.Errorf("%s: %q, %v", name, r.ended, err)
		}
	}
}
