package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"bailey"
)

const value = "hunter2-the-value"

func lit(s string) Source { return Literal{bailey.NewSecret(s)} }

func TestLend(t *testing.T) {
	t.Setenv("BROKER_TEST", "from env")
	b := New(Config{Bindings: map[string]Source{"a": lit(value), "b": Env{"BROKER_TEST"}}})
	lease, err := b.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Wants: []bailey.Want{{Name: "b", Env: "B_TOKEN"}, {Name: "a", Env: "_a1"}, {Name: "a", Env: "A2"}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"B_TOKEN=from env", "_a1=" + value, "A2=" + value}; !slices.Equal(lease.Env, want) {
		t.Errorf("env %q", lease.Env)
	}
	if len(lease.Secrets) != 3 || lease.Secrets[0].Reveal() != "from env" || lease.Secrets[1].Reveal() != value {
		t.Errorf("%d secrets", len(lease.Secrets))
	}
	seen := map[string]bool{}
	for _, id := range lease.IDs {
		if !regexp.MustCompile(`^l-[a-z2-7]{26}$`).MatchString(id) || seen[id] {
			t.Errorf("lease id %q", id)
		}
		seen[id] = true
	}
	lease.Return()
	lease.Return()
	if strings.Join(lease.Env, "") != "" || lease.Secrets[1].Reveal() != "" || len(lease.IDs) != 3 {
		t.Errorf("after Return: %q", lease.Env)
	}
	t.Setenv("BROKER_TEST", "changed")
	again, err := b.Lend(t.Context(), bailey.Loan{Receipt: "r-2", Wants: []bailey.Want{{Name: "b", Env: "B_TOKEN"}}})
	if err != nil || again.Env[0] != "B_TOKEN=changed" || seen[again.IDs[0]] {
		t.Errorf("the next loan: %q, %v", again.Env, err)
	}
}

func TestLendNothing(t *testing.T) {
	for _, b := range []*Broker{New(Config{}), New(Config{Bindings: map[string]Source{"a": nil}})} {
		lease, err := b.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Wants: nil})
		if err != nil || lease.Return == nil || len(lease.IDs)+len(lease.Env)+len(lease.Secrets) != 0 {
			t.Errorf("%v, %v", lease, err)
		}
		lease.Return()
		if _, err = b.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Wants: []bailey.Want{{Name: "a", Env: "A"}}}); !errors.Is(err, bailey.Unavailable) {
			t.Errorf("unbound: %v", err)
		}
	}
}

// Every refusal names its cause and a cure, lends nothing, and holds no secret.
func TestRefusals(t *testing.T) {
	t.Setenv("BROKER_EMPTY", "")
	t.Setenv("BROKER_BLANK", " \n")
	b := New(Config{Bindings: map[string]Source{
		"good": lit(value), "nul": lit(value + "\x00x"), "long": lit(strings.Repeat(value, MaxValue/len(value)+1)), "none": lit(""), "zero": Literal{},
		"unset": Env{"BROKER_UNSET"}, "empty": Env{"BROKER_EMPTY"}, "blank": Env{"BROKER_BLANK"}, "odd": Env{"A=B"}, "noname": Env{},
	}})
	type row struct {
		name, env string
		kind      bailey.Kind
		says      string
	}
	rows := []row{
		{"missing", "X", bailey.Unavailable, `"missing"`}, {"", "X", bailey.Unavailable, `""`},
		{"unset", "X", bailey.Unavailable, "BROKER_UNSET"}, {"empty", "X", bailey.Unavailable, "BROKER_EMPTY"}, {"blank", "X", bailey.Invalid, "empty"},
		{"odd", "X", bailey.Unavailable, "not set"}, {"noname", "X", bailey.Unavailable, "not set"},
		{"nul", "X", bailey.Invalid, "NUL"}, {"long", "X", bailey.Invalid, "longer"}, {"none", "X", bailey.Invalid, "empty"}, {"zero", "X", bailey.Invalid, "empty"},
	}
	for _, env := range []string{"", "1A", "A-B", "A B", "A=B", "A\x00", "É", "A\n", "a.b", "%s"} {
		rows = append(rows, row{"good", env, bailey.Invalid, "variable"})
	}
	for _, env := range []string{
		"LD_PRELOAD", "LD_X", "ld_preload", "GIT_SSH_COMMAND", "GIT_TOKEN", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV", "ENV", "PATH", "HOME",
		"TMPDIR", "KUBECONFIG", "PERL5OPT", "RUBYOPT", "IFS", "DYLD_INSERT_LIBRARIES", "BAILEY_SESSION", "https_proxy", "SSH_AUTH_SOCK", "GLIBC_TUNABLES", "LC_ALL",
	} {
		rows = append(rows, row{"good", env, bailey.Denied, env})
	}
	for _, r := range rows {
		lease, err := b.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Wants: []bailey.Want{{Name: "good", Env: "OK"}, {Name: r.name, Env: r.env}}})
		if !errors.Is(err, r.kind) || bailey.KindOf(err) != r.kind || !strings.Contains(err.Error(), r.says) || bailey.HintOf(err) == "" {
			t.Errorf("%q into %q: %v (hint %q)", r.name, r.env, err, bailey.HintOf(err))
		}
		if lease.Return == nil || len(lease.IDs)+len(lease.Env)+len(lease.Secrets) != 0 {
			t.Errorf("%q into %q lends %v", r.name, r.env, lease.IDs)
		}
		silent(t, err)
	}
	_, err := b.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Wants: []bailey.Want{{Name: "good", Env: "OK"}, {Name: "good", Env: "OK"}}})
	if !errors.Is(err, bailey.Invalid) {
		t.Errorf("one variable twice: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Lend(ctx, bailey.Loan{Receipt: "r-1", Wants: nil}); !errors.Is(err, context.Canceled) || !errors.Is(err, bailey.Unavailable) {
		t.Errorf("an ended call: %v", err)
	}
}

// silent fails when any way to print v shows the value.
func silent(t *testing.T, v any) {
	t.Helper()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown(t, verb, fmt.Sprintf(verb, v))
	}
	b, _ := json.Marshal(v)
	shown(t, "json", string(b))
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
	shown(t, "slog", log.String())
}

func shown(t *testing.T, how, text string) {
	t.Helper()
	for _, form := range []string{value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value), strings.Trim(fmt.Sprint([]byte(value)), "[]")} {
		if strings.Contains(text, form) {
			t.Errorf("%s shows the value: %.200s", how, text)
		}
	}
}

func TestPrintsNothing(t *testing.T) {
	c := Config{Bindings: map[string]Source{"a": lit(value)}}
	b := New(c)
	lease, err := b.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Wants: []bailey.Want{{Name: "a", Env: "A"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{lease, &lease, []bailey.Lease{lease}, lease.Secrets, c, b, *b, lit(value), struct{ B *Broker }{b}, struct{ b Broker }{*b}} {
		silent(t, v)
	}
	if s := fmt.Sprint(lease); !strings.Contains(s, lease.IDs[0]) {
		t.Errorf("a lease prints as %q", s)
	}
}

func TestConcurrent(t *testing.T) {
	b := New(Config{Bindings: map[string]Source{"a": lit(value)}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				lease, err := b.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Wants: []bailey.Want{{Name: "a", Env: "A"}}})
				if err != nil || lease.Env[0] != "A="+value {
					t.Errorf("%v", err)
					return
				}
				lease.Return()
			}
		})
	}
	wg.Wait()
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"A", "_", "LD_PRELOAD", "a=b", "É", ""} {
		f.Add(s)
	}
	word := regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
	f.Fuzz(func(t *testing.T, name string) {
		if validName(name) != word.MatchString(name) {
			t.Errorf("%q", name)
		}
		up := strings.ToUpper(name)
		if barred(name) != barred(up) {
			t.Errorf("case decides over %q", name)
		}
	})
}
