package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"bailey"
	"bailey/internal/terminal"
)

// csvHeader returns the column names of csvCells. Lists and objects are JSON within their cell.
func csvHeader() []string {
	return strings.Fields(`receipt status decision started_at ended_at capability agent person roles organisation host session door client dir
		unattended dry_run input input_bytes rules reason executed exit_code timed_out argv cwd paths env_names cage enforced layers plan_digest binary binary_digest
		stdout_bytes stderr_bytes truncated redactions restored leases approval manifest_digest policy_digest
		reaches egress
		seq hash outcome_seq outcome_hash origin size`)
}

func csvCells(r exported) []string {
	in, o, cage := r.Intent, r.Outcome, &bailey.Cage{}
	if o == nil {
		o = &bailey.Outcome{}
	}
	if o.Cage != nil {
		cage = o.Cage
	}
	texts := []any{
		r.Receipt, r.Status, o.Decision, in.StartedAt, o.EndedAt, in.Capability, in.Agent, in.Person, in.Roles, in.Organisation, in.Host, in.Session, in.Door, in.Client, in.Dir,
		in.Unattended, in.DryRun, in.Input, in.InputBytes, o.Rules, o.Reason, o.Executed, o.ExitCode, o.TimedOut, o.Argv, o.Cwd, o.Paths, o.EnvNames, cage.Kind, cage.Enforced, cage.Layers, cage.PlanDigest, cage.Binary, cage.BinaryDigest,
		o.StdoutBytes, o.StderrBytes, o.Truncated, o.Redactions, o.Restored, o.Leases, o.Approval, o.ManifestDigest, o.PolicyDigest,
		o.Reaches, o.Egress,
		r.Seq, r.Hash, r.OutcomeSeq, r.OutcomeHash, r.Origin, r.Size,
	}
	cells := make([]string, len(texts))
	for i, v := range texts {
		cells[i] = csvCell(v)
	}
	return cells
}

// csvCell formats one value: a time as RFC 3339, an absent value as "", a text unchanged, and any other value as JSON.
func csvCell(v any) string {
	if t, ok := v.(time.Time); ok {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	b, err := json.Marshal(v)
	if err != nil || string(b) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(b, &text) == nil {
		return text
	}
	return string(b)
}

// writeCSV writes a row according to RFC 4180, with each cell in quotes.
func writeCSV(w io.Writer, cells []string) error {
	quoted := make([]string, len(cells))
	for i, c := range cells {
		quoted[i] = `"` + strings.ReplaceAll(defused(terminal.Shown(c)), `"`, `""`) + `"`
	}
	_, err := fmt.Fprintf(w, "%s\r\n", strings.Join(quoted, ","))
	return err
}

// defused puts a ' before text that a spreadsheet could take for a formula, because agents choose some of these texts
// and a formula can send data out. Line feeds and full-width forms count too, because some programs trim or fold them
// first. So does text after a semicolon, which separates cells where the comma is the decimal point (OWASP, CSV
// injection).
func defused(cell string) string {
	var b strings.Builder
	before := ';'
	for _, c := range cell {
		if before == ';' && strings.ContainsRune("=+-@\t\r\n＝＋－＠", c) {
			b.WriteByte('\'')
		}
		b.WriteRune(c)
		before = c
	}
	return b.String()
}
