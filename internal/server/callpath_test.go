package server

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
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
		"jail":   {chain(reflect.ValueOf(s.Gate.Runners[pack.Jail]), reflect.TypeFor[bailey.Runner]()), []string{"*gateway.Pins", "*wrap.Works", "*jail.Jail"}},
		"open":   {chain(reflect.ValueOf(s.Gate.Runners[pack.Open]), reflect.TypeFor[bailey.Runner]()), []string{"*gateway.Pins", "*wrap.Works", "*jail.None"}},
	} {
		if !slices.Equal(c.chain, c.want) {
			t.Errorf("%s: %q, want %q", name, c.chain, c.want)
		}
	}
}
