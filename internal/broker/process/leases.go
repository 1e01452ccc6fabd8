package process

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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
	failed, first := 0, ""
	trials := []broker.Trial{}
	for _, name := range names {
		r := t.TryLease(ctx, name)
		trials = append(trials, r)
		if r.Error != "" {
			failed++
			first = cmp.Or(first, r.Lease+": "+r.Error)
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
			"%d of %d leases failed; the first is %s",
			failed,
			len(names),
			first,
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
	for _, w := range r.Wide {
		fmt.Fprintf(p.stdout, "        too wide: %s\n", w)
	}
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

// addLease adds an entry to broker.yaml: from KEY=VALUE arguments, and at a terminal by asking for what is missing. The
// entry is written only if its source gives a value.
func (p *program) addLease(ctx context.Context) error {
	if len(p.leases) < 2 {
		return self.UsageFault("add needs a name and an adapter: one of " +
			strings.Join(slices.Sorted(maps.Keys(broker.SetupQuestions())), ", "))
	}
	a := broker.Addition{Lease: p.leases[0], Adapter: p.leases[1], Scope: p.scope, Approval: p.approval, TTL: p.ttl}
	questions, ok := broker.SetupQuestions()[a.Adapter]
	if !ok {
		return self.UsageFault(fmt.Sprintf("add does not know %.40q; for other sources edit broker.yaml", a.Adapter))
	}
	if err := p.collectKeys(&a, questions); err != nil {
		return err
	}
	if a.Approval == "" {
		return self.UsageFault("add needs --approval none, or --approval '{level: signed-software, roles: [], count: 1}'")
	}
	text, t, err := broker.AddEntry(p.dir, a)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "+ %s: %s\n", a.Lease, t.Leases[a.Lease])
	r := t.TryLease(ctx, a.Lease)
	if !p.json {
		p.printTrial(r)
	}
	if r.Error != "" && !p.untested {
		return bailey.Unavailable.New("the source gives no value, so nothing was written",
			"correct what is named above, or use --untested; bailey-broker setup prints what the issuer must allow")
	}
	if err := p.askConfirmation("Add this lease to broker.yaml?"); err != nil {
		return err
	}
	if err := broker.WriteTable(p.dir, text); err != nil {
		return err
	}
	if p.json {
		return json.NewEncoder(p.stdout).Encode(map[string]any{"ok": true, "lease": r})
	}
	fmt.Fprintln(p.stdout, "written; to use it: bailey-broker apply")
	return nil
}

// collectKeys takes the keys from the arguments, and asks for required ones that are missing.
func (p *program) collectKeys(a *broker.Addition, questions []broker.KeyQuestion) error {
	given := map[string]string{}
	for _, arg := range p.leases[2:] {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || value == "" {
			return self.UsageFault(fmt.Sprintf("%.60q is not KEY=VALUE", arg))
		}
		if _, twice := given[key]; twice {
			return self.UsageFault(fmt.Sprintf("%.60s is given twice", key))
		}
		given[key] = value
		a.Keys = append(a.Keys, [2]string{key, value})
	}
	if info, err := p.stdin.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil // the table says what is missing
	}
	in := bufio.NewReader(p.stdin)
	for _, q := range questions {
		if given[q.Key] != "" || q.Optional && len(given) > 0 {
			continue
		}
		fmt.Fprintf(p.stderr, "%s: ", q.Ask)
		answer, err := in.ReadString('\n')
		if answer = strings.TrimSpace(answer); answer != "" {
			a.Keys = append(a.Keys, [2]string{q.Key, answer})
		} else if err != nil {
			return bailey.Denied.New("nothing was changed", "answer the questions, or give KEY=VALUE arguments")
		}
	}
	return nil
}

// revokeLoans ends open loans.
func (p *program) revokeLoans(ctx context.Context) error {
	if len(p.leases) == 0 && !p.all {
		return self.UsageFault("revoke needs the names of leases, or --all")
	}
	socket, err := broker.RunningSocket(p.dir)
	if err != nil {
		return errors.Join(err, errUnreachable)
	}
	n, err := broker.Client{Socket: socket, UID: os.Geteuid()}.Revoke(ctx, p.leases)
	if err != nil {
		return err
	}
	if p.json {
		return json.NewEncoder(p.stdout).Encode(map[string]any{"ok": true, "loans": n})
	}
	fmt.Fprintf(p.stdout,
		"open loans ended: %d. To end new ones too, remove the lease from broker.yaml, then bailey-broker apply\n", n)
	return nil
}
