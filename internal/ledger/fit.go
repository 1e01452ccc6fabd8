package ledger

import (
	"encoding/json"
	"strings"

	"bailey"
	"bailey/audit"
)

// room bounds the data of an outcome in bytes: an entry without its number, time and kind.
const room = audit.MaxEntry - 128

// outcomeCuts shorten an outcome, in this order, until it fits. The fields that identify the call and its result (receipt,
// status, decision, executed, exit code, sizes, approval, times) are never dropped.
var outcomeCuts = []func(*bailey.Outcome){
	func(o *bailey.Outcome) { o.Argv = nil },
	func(o *bailey.Outcome) { o.Rules = bareRules(o.Rules) },
	func(o *bailey.Outcome) { o.Paths = nil },
	func(o *bailey.Outcome) { o.EnvNames = nil },
	func(o *bailey.Outcome) { o.Egress = clipEvents(o.Egress, 4) },
	func(o *bailey.Outcome) { o.Reaches = nil }, // a later decision on the same call can detect that some are missing
	func(o *bailey.Outcome) { o.Reason = clipString(o.Reason, 1024) },
	func(o *bailey.Outcome) { o.Cwd = clipString(o.Cwd, 1024) },
	func(o *bailey.Outcome) { o.Leases = clipList(o.Leases) },
	func(o *bailey.Outcome) { o.Rules = o.Rules[:min(len(o.Rules), 16)] },
	func(o *bailey.Outcome) { o.Egress = clipEvents(o.Egress, 0) },
	func(o *bailey.Outcome) { o.Cage = clipCage(o.Cage) },
	func(o *bailey.Outcome) {
		o.Status, o.Decision = bailey.Status(clipString(string(o.Status), 64)), clipString(o.Decision, 64)
		o.ManifestDigest, o.PolicyDigest = clipString(o.ManifestDigest, 128), clipString(o.PolicyDigest, 128)
		o.Approval = bailey.ApprovalID(clipString(string(o.Approval), 64))
	},
}

// encodeOutcome encodes an outcome and cuts it until it fits into an entry. If it was cut, the end of its reason says so.
func encodeOutcome(o bailey.Outcome) ([]byte, error) {
	data, err := json.Marshal(o)
	if err != nil || len(data) <= room {
		return data, err
	}
	for _, cut := range outcomeCuts {
		cut(&o)
		said := o
		said.Reason = strings.TrimSpace(o.Reason + " [receipt cut to fit the ledger]")
		if data, err = json.Marshal(said); err != nil || len(data) <= room {
			return data, err
		}
	}
	return data, nil
}

// bareRules reduces the rules to their names.
func bareRules(rules []bailey.Rule) []bailey.Rule {
	out := make([]bailey.Rule, len(rules))
	for i, r := range rules {
		out[i] = bailey.Rule{ID: bailey.RuleID(clipString(string(r.ID), 64)), Source: clipString(r.Source, 128)}
	}
	return out
}

func clipList(list []string) []string {
	out := make([]string, min(len(list), 16))
	for i := range out {
		out[i] = clipString(list[i], 64)
	}
	return out
}

// clipEvents keeps the first n events of a report and counts the others.
func clipEvents(r *bailey.EgressReport, n int) *bailey.EgressReport {
	if r == nil || len(r.Events) <= n {
		return r
	}
	out := *r
	out.Events, out.Untold = r.Events[:n], r.Untold+int64(len(r.Events)-n)
	return &out
}

func clipCage(c *bailey.Cage) *bailey.Cage {
	if c == nil {
		return nil
	}
	return &bailey.Cage{Kind: clipString(c.Kind, 64), Enforced: c.Enforced, Layers: clipList(c.Layers),
		PlanDigest: clipString(c.PlanDigest, 128), Binary: clipString(c.Binary,
			1024), BinaryDigest: clipString(c.BinaryDigest, 128)}
}

// clipString shortens s to at most n bytes, between runes. A byte takes at most six in JSON; even then the results of all
// clips together fit into [room].
func clipString(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
