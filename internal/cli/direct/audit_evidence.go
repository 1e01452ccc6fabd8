package direct

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"bailey"
	"bailey/audit"
	"bailey/internal/cli"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// evidenceResult is the JSON form of a verified bundle.
type evidenceResult struct {
	OK         bool              `json:"ok"`
	About      json.RawMessage   `json:"about"`
	Checkpoint audit.Signed      `json:"checkpoint"`
	Sealed     audit.Cosignature `json:"sealed"`
	Entries    []evidenceEntry   `json:"entries"`
	Proves     []string          `json:"proves"`
	LeavesOpen []string          `json:"leavesOpen"`
}

type evidenceEntry struct {
	Seq  uint64          `json:"seq"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// verifyEvidence verifies an evidence bundle. Keys that are not given are those that the bundle names.
func (a *commands) verifyEvidence(v verifyFlags, name string) error {
	const use = "run bailey audit verify FILE --key KEY --witness KEY"
	t, err := v.buildTrust()
	switch {
	case err != nil:
		return err
	case len(v.against) > 0:
		return bailey.Invalid.New("an evidence bundle contains its checkpoint: leave out --against", use)
	}
	text, err := a.readInput(name, audit.MaxEvidence)
	if err != nil {
		return apitype.Unread(name, err)
	}
	if !audit.IsEvidence(text) {
		return bailey.Invalid.Errorf("verify a portable receipt with --receipt FILE, and a ledger by its directory",
			"%s is not an evidence bundle", terminal.Shown(name))
	}
	e, err := audit.ParseEvidence(text)
	if err != nil {
		return invalidEvidence(err)
	}
	unconfirmed := ""
	if own := e.OwnTrust(); len(t.Keys) == 0 || len(t.Witnesses) == 0 {
		unconfirmed = "no other source confirmed the keys: they come from the bundle itself, so its maker chose them; " +
			"give --key and --witness"
		if len(t.Keys) == 0 {
			t.Keys = own.Keys
		}
		if len(t.Witnesses) == 0 {
			t.Witnesses = own.Witnesses
		}
	}
	found, err := audit.VerifyEvidence(text, t)
	if err != nil {
		return invalidEvidence(err)
	}
	return a.printEvidence(found, unconfirmed, v.verbose)
}

// invalidEvidence is the error for a bundle that does not verify.
func invalidEvidence(err error) error {
	hint := "export it again; keep this file as it is if it was evidence"
	if bad, ok := errors.AsType[*audit.Bad](err); ok && (bad.Reason == audit.Unsigned || bad.Reason == audit.Unsealed) {
		hint = "check the keys first: bailey audit key on the gateway, and the record of the host on the server"
	}
	return bailey.Conflict.Wrap(err, "the evidence is invalid", hint)
}

func (a *commands) printEvidence(v audit.VerifiedEvidence, unconfirmed string, verbose bool) error {
	r := evidenceResult{OK: true, About: v.About, Checkpoint: v.Signed, Sealed: v.Sealed, Proves: v.Proves(),
		LeavesOpen: v.LeavesOpen()}
	if unconfirmed != "" {
		r.LeavesOpen = append([]string{unconfirmed}, r.LeavesOpen...)
	}
	for _, e := range v.Entries {
		r.Entries = append(r.Entries, evidenceEntry{e.Seq, e.Kind, e.Data})
	}
	return cli.PrintAnswer(a.App, r, func(w io.Writer, r evidenceResult) {
		calls := 0
		for _, e := range r.Entries {
			if e.Kind == audit.KindIntent {
				calls++
			}
		}
		fmt.Fprintf(w, "ok: %d calls in %d entries of %s, which had %d, sealed by %s\n", calls, len(r.Entries),
			terminal.Shown(v.Origin), v.Size, terminal.Shown(v.Sealed.Witness))
		fmt.Fprintf(w, "about: %s\n", terminal.Shown(string(r.About)))
		if unconfirmed != "" && !verbose {
			fmt.Fprintf(w, "not proved: %s\n", unconfirmed)
		}
		if !verbose {
			return
		}
		for _, s := range r.Proves {
			fmt.Fprintf(w, "proved: %s\n", terminal.Shown(s))
		}
		for _, s := range r.LeavesOpen {
			fmt.Fprintf(w, "not proved: %s\n", terminal.Shown(s))
		}
	})
}
