//go:build linux

package day

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// receipt holds the fields of a receipt that the scenario reads, by the names in docs/operations.md.
type receipt struct {
	Intent struct {
		Receipt, Capability, Door, Agent, Session string
		Input                                     map[string]any
	}
	Outcome *struct {
		Outcome, Decision, Reason string
		PolicyDigest              string
		Rules                     []struct{ ID string }
		Executed                  *bool
		StdoutBytes               int
		Leases                    []string
		Cage                      *struct {
			Cage            string
			SandboxEnforced bool
			Layers          []string
			Machine         struct{ Sandbox, Image, ImageDigest, Accelerator string }
		}
	}
}

// evening compares the results that the agent got with the ledger: each call must have one intent and one outcome, no
// call may be lost, and none may run twice.
func (d *day) evening() {
	d.persist()
	d.agent.leave()
	for _, secret := range []string{keyBody, serverPassword, serverAddress, shopPassword} {
		if out, code := d.u.does(d.u.home, "grep", "-rlF", secret, ".bailey"); code != 1 {
			d.t.Errorf("Bailey's home holds %s: exit code %d: %s", secret, code, out)
		}
	}
	var list struct{ Receipts []struct{ ID string } }
	d.decode(d.u.must(d.u.project, "bailey", "receipts", "list", "--limit", "1000", "--json"), &list)
	slices.Reverse(list.Receipts)
	d.first = list.Receipts[0].ID
	var told []string
	seen := map[string]int{}
	for _, row := range list.Receipts {
		var r receipt
		d.decode(d.u.must(d.u.project, "bailey", "receipts", "show", row.ID, "--json"), &r)
		if r.Outcome == nil {
			d.t.Errorf("%s %s is open", row.ID, r.Intent.Capability)
			continue
		}
		// the agent's questions about its own tools, and those of init and status that test the hook
		if r.Intent.Door == "hook" {
			if r.Outcome.Executed == nil || *r.Outcome.Executed {
				d.t.Errorf("%s: a hook was asked, and it was executed: %+v", row.ID, r.Outcome)
			}
			continue
		}
		// agents send requests of their own to their models, for example for titles
		if r.Intent.Capability == "model.request" {
			if r.Outcome.Outcome != "ok" && r.Outcome.Outcome != "killed" {
				d.t.Errorf("%s: a request to a model ended as %s", row.ID, r.Outcome.Outcome)
			}
			continue
		}
		d.complete(row.ID, r)
		if limit := fmt.Sprint(r.Intent.Input["limit"]); strings.HasPrefix(limit, "1") {
			seen[limit]++
			if r.Outcome.Outcome != "ok" && !(d.lost[limit] && r.Outcome.Outcome == "interrupted") {
				d.t.Errorf("attempt %s ended as %s", limit, r.Outcome.Outcome)
			}
			continue
		}
		told = append(told, r.Outcome.Outcome)
	}
	for i := range d.attempt {
		limit := fmt.Sprint(101 + i)
		if n := seen[limit]; n > 1 || n == 0 && !d.lost[limit] {
			d.t.Errorf("attempt %s has %d receipts; its result was lost: %v", limit, n, d.lost[limit])
		}
	}
	if !slices.Equal(told, d.want) {
		d.t.Errorf("the receipts tell %v,\nthe day was   %v", told, d.want)
	}
	d.handedOver(len(list.Receipts))
}

// handedOver checks that an export contains every receipt with the hashes of its ledger entries, and that each session
// has a report.
func (d *day) handedOver(receipts int) {
	ledger := d.u.must(d.u.home, "cat", ".bailey/ledger/00000001.jsonl")
	lines := strings.Split(strings.TrimSpace(d.u.must(d.u.project, "bailey", "receipts", "export")), "\n")
	if len(lines) != receipts {
		d.t.Errorf("%d receipts are exported, of %d", len(lines), receipts)
	}
	sessions := map[string]bool{}
	for _, line := range lines {
		var r struct {
			Hash, OutcomeHash string
			Intent            struct{ Session string }
		}
		d.decode(line, &r)
		if r.Hash == "" || !strings.Contains(ledger, r.Hash) || !strings.Contains(ledger, r.OutcomeHash) {
			d.t.Errorf("no entry of the ledger has the hashes of %.200s", line)
		}
		sessions[r.Intent.Session] = true
	}
	for id := range sessions {
		if page := d.u.must(d.u.project, "bailey", "receipts", "report", id); !strings.HasPrefix(page, "Session "+id) || !strings.Contains(page, "bailey audit verify") {
			d.t.Errorf("the page of %s: %s", id, page)
		}
	}
}

// complete checks that a receipt names the caller, the rule, the policy and the cage, as an auditor needs.
func (d *day) complete(id string, r receipt) {
	if r.Intent.Agent == "" || r.Intent.Door == "" || r.Intent.Session == "" || r.Intent.Receipt != id {
		d.t.Errorf("%s does not tell whose call it was: %+v", id, r.Intent)
	}
	o := r.Outcome
	if o.Executed != nil && *o.Executed {
		named := func(rule struct{ ID string }) bool {
			return slices.Contains([]string{"look", "write", "build", "fetch", "hosts", "sandbox-or-model"}, rule.ID)
		}
		if o.Decision != "allow" || len(o.Rules) == 0 || !slices.ContainsFunc(o.Rules, named) || slices.ContainsFunc(o.Rules, func(r struct{ ID string }) bool { return !named(r) }) {
			d.t.Errorf("%s ran, and does not tell by which rule: %s %v", id, o.Decision, o.Rules)
		}
		if len(o.PolicyDigest) != 64 {
			d.t.Errorf("%s ran, and does not tell by which policy: %q", id, o.PolicyDigest)
		}
		kind, layers := "full", []string{"netns", "binds-noexec"}
		if strings.HasPrefix(r.Intent.Capability, "source.") {
			kind, layers = "host", []string{"validator", "certificate", "bailey-readonly-shell", "landlock"}
			if !slices.ContainsFunc(o.Leases, func(l string) bool { return strings.HasPrefix(l, "ssh-certificate serial ") }) {
				d.t.Errorf("%s ran, and does not tell with which certificate: %q", id, o.Leases)
			}
		}
		if strings.HasPrefix(r.Intent.Capability, "sandbox.") {
			kind, layers = "sandbox", []string{"owner"}
			if m := o.Cage.Machine; strings.HasPrefix(r.Intent.Capability, "sandbox.exec") && (m.Image != "debian" || len(m.ImageDigest) != 64 || m.Accelerator == "" || m.Sandbox != r.Intent.Input["sandbox"]) {
				d.t.Errorf("%s ran, and does not tell in which machine: %+v", id, m)
			}
		}
		lacks := func(layer string) bool { return !slices.Contains(o.Cage.Layers, layer) }
		if o.Cage == nil || o.Cage.Cage != kind || !o.Cage.SandboxEnforced || slices.ContainsFunc(layers, lacks) {
			d.t.Errorf("%s ran, and does not tell in which cage: %+v", id, o.Cage)
		}
	}
	if said, ok := r.Intent.Input["message"].(string); ok && r.Intent.Capability == "system.echo" && o.StdoutBytes > len(said)+2 {
		d.t.Errorf("%s: the tool was given more than the token %q: it wrote %d bytes", id, said, o.StdoutBytes)
	}
}

func (d *day) decode(text string, v any) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		d.t.Fatalf("%v in %s", err, text)
	}
}
