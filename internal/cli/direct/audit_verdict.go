package direct

import (
	"fmt"

	"bailey"
	"bailey/audit"
	"bailey/internal/cli"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// ruling is the JSON form of a report. If it is not OK, it is an error as well.
type ruling struct {
	audit.Report
	Proves     []string    `json:"proves"`
	LeavesOpen []string    `json:"leavesOpen"`
	Notes      []string    `json:"notes,omitempty"` // for a copy: why a gateway would reject it
	Error      bailey.Kind `json:"error,omitempty"`
	Why        string      `json:"reason,omitempty"`
	Hint       string      `json:"hint,omitempty"`
}

// rule says what a report proves and what it leaves open. A key that only the ledger itself announces does not prove
// whose key it is.
func rule(r audit.Report, own bool, notes []string) ruling {
	out := ruling{Report: r, Proves: []string{}, LeavesOpen: r.LeavesOpen(), Notes: notes}
	if own && len(r.Held) > 0 {
		out.LeavesOpen = append([]string{"nobody vouched for the log's key: it is one that the ledger announces or that lies beside it, and whoever wrote them chose it; give --key"}, out.LeavesOpen...)
	}
	if r.OK {
		out.Proves = r.Proves()
		return out
	}
	out.Error, out.Why, out.Hint = bailey.Conflict, r.FirstBad.Error(), cureOf(r.FirstBad)
	return out
}

func (a *commands) verdict(dir string, r ruling) error {
	if !r.OK && r.FirstBad.Reason == audit.Empty && r.Segments == 0 {
		r.Error, r.Why, r.Hint = bailey.NotFound, "there is no ledger in "+dir, "a home has one after its first call; bailey audit verify DIR looks elsewhere"
	}
	switch {
	case a.JSON:
		if err := a.Print(r); err != nil {
			return err
		}
	case r.OK:
		a.holds(r)
	default:
		a.Say(string(r.Error), r.Why, r.Hint)
		if r.Also != nil {
			fmt.Fprintf(a.Stderr, "  also: %s\n", terminal.Shown(r.Also.Error()))
		}
		for _, s := range r.Notes {
			fmt.Fprintf(a.Stderr, "  note: %s\n", terminal.Shown(s))
		}
	}
	if !r.OK {
		return cli.Exit(apitype.ExitDenied)
	}
	return nil
}

// holds prints a valid result and what it proves.
func (a *commands) holds(r ruling) {
	fmt.Fprintf(a.Stdout, "ok: %d entries, %d calls (%d open), head %s\n", r.Entries, r.Intents, r.Open, r.Head)
	fmt.Fprintf(a.Stdout, "plans: %d recomputed, %d redacted\n", r.Plans.Recomputed, r.Plans.Redacted)
	for _, list := range []struct {
		word string
		said []string
	}{{"note", r.Notes}, {"proved", r.Proves}, {"not proved", r.LeavesOpen}} {
		for _, s := range list.said {
			fmt.Fprintf(a.Stdout, "%s: %s\n", list.word, terminal.Shown(s))
		}
	}
}

// cureOf returns the hint for a ledger that does not verify.
func cureOf(bad *audit.Bad) string {
	switch bad.Reason {
	case audit.Unsigned:
		return "look at that file, and give --key the key that signed it, as it reached you by another way than the ledger"
	case audit.Unwitnessed:
		return "give --against a checkpoint that the witnesses cosigned, and each one's key with --witness"
	case audit.Truncated, audit.Rollback:
		return "keep ledger and checkpoint as they are, both: more entries were signed than are there; ask who can write the ledger where they are"
	case audit.Replaced:
		return "look first whether ledger, key and checkpoint belong together; if they should, keep them as they are: the ledger was exchanged"
	case audit.Forked:
		return "keep ledger and checkpoint as they are, both: they are two histories under one name, and the log's key signed one of them"
	case audit.Torn:
		return "it may be a crash's: the next start of the gateway keeps these bytes aside, cuts them off and records that; of a copy ask for another"
	case audit.Empty:
		return "somebody emptied it: keep it as it is and compare it with a copy"
	}
	if bad.Reason == audit.Rekeyed && bad.Segment == 0 {
		return "look first whether it is the right key; if it is, keep the ledger as it is: it is not the one that this key signs for"
	}
	return "keep the file as it is and compare it with another copy, made byte for byte"
}
