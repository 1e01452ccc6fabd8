package process

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"bailey"
	"bailey/internal/broker"
)

// namedLeases returns the leases that the arguments name, or all.
func (p *program) namedLeases(t *broker.Table) ([]string, error) {
	for _, name := range p.leases {
		if _, ok := t.Leases[name]; !ok {
			return nil, bailey.NotFound.Errorf("name one of those in broker.yaml", "there is no lease %.60q", name)
		}
	}
	if len(p.leases) > 0 {
		return p.leases, nil
	}
	return slices.Sorted(maps.Keys(t.Leases)), nil
}

// testLeases asks the source of each lease for a value and revokes it. It reads broker.yaml as it is, so that a table
// can
// be tested before it is applied.
func (p *program) testLeases(ctx context.Context) error {
	t, err := broker.LoadTable(p.dir)
	if err != nil {
		return err
	}
	names, err := p.namedLeases(t)
	if err != nil {
		return err
	}
	failed := 0
	trials := []broker.Trial{}
	for _, name := range names {
		r := t.TryLease(ctx, name)
		trials = append(trials, r)
		if r.Error != "" {
			failed++
		}
		if !p.json {
			p.printTrial(r)
		}
	}
	if p.json {
		if err := json.NewEncoder(p.stdout).Encode(map[string]any{"ok": failed == 0, "leases": trials}); err != nil {
			return err
		}
	}
	if failed > 0 {
		return bailey.Unavailable.Errorf(
			"correct what is named above, then bailey-broker test",
			"%d of %d leases failed",
			failed,
			len(names),
		)
	}
	return nil
}

func (p *program) printTrial(r broker.Trial) {
	switch {
	case r.Error != "":
		fmt.Fprintf(p.stdout, "failed  %s (%s): %s\n", r.Lease, r.About, r.Error)
		if r.Hint != "" {
			fmt.Fprintf(p.stdout, "        → %s\n", r.Hint)
		}
		return
	case r.Bytes == 0:
		fmt.Fprintf(p.stdout, "skipped %s (%s): certificates are tested by bailey source doctor\n", r.Lease, r.About)
		return
	}
	end := "no end is known"
	if !r.Until.IsZero() {
		end = "valid for " + time.Until(r.Until).Round(time.Second).String()
	}
	if r.Revoked {
		end += ", revoked again"
	}
	fmt.Fprintf(
		p.stdout,
		"ok      %s (%s): %d bytes in %v, %s\n",
		r.Lease,
		r.About,
		r.Bytes,
		r.Took.Round(time.Millisecond),
		end,
	)
}

// printSetup prints what the administrators of the issuers must set up for the leases.
func (p *program) printSetup(context.Context) error {
	t, err := broker.LoadTable(p.dir)
	if err != nil {
		return err
	}
	names, err := p.namedLeases(t)
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for _, name := range names {
		texts[name] = t.SetupText(name)
	}
	if p.json {
		return json.NewEncoder(p.stdout).Encode(map[string]any{"ok": true, "leases": texts})
	}
	for _, name := range names {
		fmt.Fprintf(
			p.stdout,
			"## lease %s\n%s\n",
			name,
			cmp.Or(texts[name], "# nothing to set up: the table or a file has the value itself\n"),
		)
	}
	return nil
}
