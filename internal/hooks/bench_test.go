package hooks

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/hook"
)

// BenchmarkHook measures one hook and a chain of five, next to a tool's cage and the program alone, twenty of each in
// turn. It reports the medians, and the cost of a hook over the program as a fraction of that of a cage.
func BenchmarkHook(b *testing.B) {
	y := newYard(b)
	path := y.script(b, "nothing", "#!/bin/sh\n")
	h := hook.Hook{Event: hook.OnPreToolUse, Argv: []string{path}, Timeout: hook.DefaultTimeout}
	chain := func(n int) func() error {
		return func() error {
			y.hooks = slices.Repeat([]hook.Hook{h}, n)
			if o, _ := y.Ask(b.Context(), pre(nil)); o.Effect != hook.Kept {
				return fmt.Errorf("%+v", o)
			}
			return nil
		}
	}
	i := 0
	ways := []struct {
		name string
		run  func() error
	}{
		{"bare", func() error { return exec.Command(path).Run() }},
		{"cage", func() error {
			i++ // must be a new plan, which no helper serves
			r, err := y.Cages.Plan(b.Context(), bailey.Job{Command: path, Limits: bailey.Limits{FileBytes: int64(1<<20 + i)}})
			if err != nil {
				return err
			}
			defer r.Close()
			var stdout, stderr hook.Output
			_, err = r.Start(b.Context(), bailey.Lent{}, bailey.Streams{Stdin: strings.NewReader("{}"), Stdout: &stdout, Stderr: &stderr})
			return err
		}},
		{"hook", chain(1)},
		{"five", chain(5)},
	}
	took := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, w := range ways {
			for range 20 {
				begin := time.Now()
				if err := w.run(); err != nil {
					b.Fatal(err)
				}
				took[i] = append(took[i], time.Since(begin))
			}
		}
	}
	median := map[string]float64{}
	for i, t := range took {
		slices.Sort(t)
		median[ways[i].name] = float64(t[len(t)/2].Microseconds())
	}
	for name, m := range median {
		b.ReportMetric(m, name+"-p50-µs")
	}
	b.ReportMetric((median["hook"]-median["bare"])/(median["cage"]-median["bare"]), "hook/cage")
	b.ReportMetric(median["five"]/median["hook"], "five/hook")
}
