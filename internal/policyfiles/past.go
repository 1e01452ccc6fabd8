package policyfiles

import (
	"context"
	"iter"
	"slices"
	"strings"

	"bailey"
	"bailey/audit"
	"bailey/internal/localapi"
	"bailey/internal/policy/review"
	"bailey/internal/receipts"
	"bailey/internal/strictjson"
	"bailey/pack"
)

// eachReceipt reads the selected receipts of a ledger, one after the other.
type eachReceipt interface {
	Each(ctx context.Context, f receipts.Filter, begin func(origin string, head audit.Head) error,
		do func(receipts.Record) error) error
}

// RequestRebuilder reconstructs from a receipt the request about which the policy decided.
type RequestRebuilder struct {
	Catalog *pack.Catalog
	// reads long arguments
	Body func(bailey.ReceiptID, bailey.Body) ([]byte, error)
}

// Reasons why a past call cannot be decided again.
const (
	PastOpen      = "it is open: nothing was decided yet"
	PastNever     = "it ended before it was decided"
	PastWall      = "it was refused before policy was evaluated"
	PastGone      = "its capability no longer exists"
	PastBody      = "its arguments were too long for the ledger, and are no longer stored"
	PastInput     = "its arguments do not match the current manifest"
	PastSecret    = "its arguments are hidden, and do not match the manifest in this form"
	PastPaths     = "its paths do not match the current manifest"
	pastWorkflow  = "a workflow is decided with its steps, each of which has its own receipt"
	PastEgress    = "the receipt lacks a host that the current manifest reaches"
	PastCage      = "its receipt names no jail"
	OtherManifest = "its manifest has changed"
)

// redactedPrefix is the prefix of every placeholder for a redacted value in a receipt.
const redactedPrefix = "[REDACTED_"

// Past reconstructs a call from its receipt.
func (h RequestRebuilder) Past(r receipts.Record) review.Past {
	in, o := &r.Intent, r.Outcome
	p := review.Past{Receipt: in.Receipt, DryRun: in.DryRun, Request: bailey.Request{
		Capability: in.Capability, Target: bailey.Target{Kind: "local"}, Time: in.StartedAt.Local(),
		Principal: bailey.Principal{Agent: in.Agent, Person: in.Person, Roles: in.Roles, Organisation: in.Organisation},
		Session:   bailey.Session{ID: in.Session, Unattended: in.Unattended},
	}}
	if p.Unknown = undecidedReason(o); p.Unknown != "" {
		return p
	}
	p.Was = Was(o)
	if o.Decision == bailey.Ask.String() {
		p.Asks = o.Rules
	}
	m, err := h.Catalog.Lookup(in.Capability)
	if err != nil {
		p.Unknown = PastGone
		return p
	}
	if m.Isolation == pack.Workflow {
		p.Unknown = pastWorkflow
		return p
	}
	if o.ManifestDigest != m.Digest {
		p.Marks = append(p.Marks, OtherManifest)
	}
	p.Request.Cage, p.Request.Absent, p.Request.Changed = o.Cage.Kind, o.Cage.Absent, o.Cage.Changed()
	p.Request.Dir, p.Request.Restores, p.Request.Profile, p.Request.Environ = o.Cwd, o.Restored, o.Profile, o.Environment
	p.Request.Waivers, p.Request.Writes = m.Waivers(), m.Uncaged()
	if strings.Contains(o.Cwd, redactedPrefix) {
		p.Hidden = append(p.Hidden, "dir")
	}
	if p.Unknown = h.parseInput(&p, m, in); p.Unknown == "" {
		p.Unknown = assignPaths(&p, m, o.Paths)
	}
	p.Request.Target, p.Request.Labels, p.Request.Commands = m.Target(p.Request.Input), o.Cage.Labels, o.Cage.Commands
	if p.Unknown == "" {
		p.Unknown = checkEgress(&p, m, o.Reaches)
	}
	return p
}

// undecidedReason returns why an outcome does not show the decision of the policy, or "".
func undecidedReason(o *bailey.Outcome) string {
	switch {
	case o == nil:
		return PastOpen
	case o.Decision == "":
		return PastNever
	case o.Decision == bailey.Deny.String() && o.PolicyDigest == "":
		return PastWall
	case o.Cage == nil:
		return PastCage
	}
	return ""
}

// Was returns the first decision of the policy. If an approval or a standing grant was involved, this was ask.
func Was(o *bailey.Outcome) bailey.Effect {
	switch {
	case o.Approval != "" || len(o.Standing) > 0 || o.Decision == bailey.Ask.String():
		return bailey.Ask
	case o.Decision == bailey.Allow.String():
		return bailey.Allow
	}
	return bailey.Deny
}

// parseInput parses the arguments according to the current manifest, and notes which are redacted. It returns a reason or
// "".
func (h RequestRebuilder) parseInput(p *review.Past, m *pack.Capability, in *bailey.Intent) string {
	raw := []byte(in.Input)
	if in.InputBody != nil || in.InputBytes > 0 {
		if in.InputBody == nil || h.Body == nil {
			return PastBody
		}
		var err error
		if raw, err = h.Body(in.Receipt, *in.InputBody); err != nil {
			return PastBody
		}
	}
	given := map[string]any{}
	if len(raw) > 0 {
		if strictjson.Decode(raw, &given) != nil {
			return PastInput
		}
	}
	for name, v := range given {
		if holdsToken(name) || holdsToken(v) {
			p.Hidden = append(p.Hidden, "input."+name)
		}
	}
	slices.Sort(p.Hidden)
	if len(p.Request.Restores) > 0 && len(p.Hidden) == 0 {
		p.Hidden = append(p.Hidden, "input")
	}
	var err error
	if p.Request.Input, err = m.Check(given, in.Door == "cli" || in.Door == localapi.ShimDoor); err != nil {
		if len(p.Hidden) > 0 {
			return PastSecret
		}
		return PastInput
	}
	return ""
}

func holdsToken(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, redactedPrefix)
	case []any:
		return slices.ContainsFunc(v, holdsToken)
	case map[string]any:
		for name, e := range v {
			if holdsToken(name) || holdsToken(e) {
				return true
			}
		}
	}
	return false
}

// assignPaths assigns the opened paths, in the order of the receipt, to the inputs that name a path. It returns a reason or
// "".
func assignPaths(p *review.Past, m *pack.Capability, opened []string) string {
	p.Request.Paths = map[string]string{}
	inputs := slices.DeleteFunc(m.PathInputs(), func(in pack.PathInput) bool { return p.Request.Input[in.Name] == nil })
	common := len(opened) == len(inputs)+1 // the repository of a linked worktree or a submodule
	for _, in := range inputs {
		if len(opened) == 0 {
			return PastPaths
		}
		p.Request.Paths[in.Name], opened = opened[0], opened[1:]
		if in.Repository && common && len(opened) > 0 {
			p.Request.Paths[bailey.CommonInput(in.Name)], opened = opened[0], opened[1:]
		}
		p.Request.Writes = p.Request.Writes || in.Write
	}
	if len(opened) > 0 {
		return PastPaths
	}
	for _, path := range p.Request.Paths {
		if strings.Contains(path, redactedPrefix) && !slices.Contains(p.Hidden, "paths") {
			p.Hidden = append(p.Hidden, "paths")
		}
	}
	return ""
}

// checkEgress takes the reachable places from the receipt. It returns a reason if the manifest names others.
func checkEgress(p *review.Past, m *pack.Capability, reaches []string) string {
	hidden := slices.ContainsFunc(reaches, func(place string) bool { return strings.Contains(place, redactedPrefix) })
	if p.Request.Egress = reaches; hidden {
		p.Hidden = append(p.Hidden, "egress")
		return ""
	}
	wanted, err := m.Egress(p.Request.Input)
	if err != nil || slices.ContainsFunc(wanted, func(place string) bool { return !slices.Contains(reaches, place) }) {
		return PastEgress
	}
	return ""
}

// Pasts returns the receipts that match f from a ledger's files, oldest first. It can be iterated repeatedly. The error
// of the last iteration is in *failed.
func (h RequestRebuilder) Pasts(ctx context.Context, r eachReceipt, f receipts.Filter,
	failed *error) iter.Seq[review.Past] {
	type stopped struct{ error }
	return func(yield func(review.Past) bool) {
		*failed = nil
		err := r.Each(ctx, f, func(string, audit.Head) error { return nil }, func(rec receipts.Record) error {
			if !yield(h.Past(rec)) {
				return stopped{error: context.Canceled}
			}
			return nil
		})
		if _, enough := err.(stopped); !enough {
			*failed = err
		}
	}
}
