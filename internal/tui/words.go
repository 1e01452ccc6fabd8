package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

// field is one item of a question. A field without a label continues the previous one.
type field struct {
	label, text string
	tone        tone
	fleeting    bool // differs between questions about the same call, for example the time
	ours        bool // Bailey's own text, which breaks between words
}

// tone says how a field is emphasised.
type tone int

const (
	plain tone = iota
	strong
	warning
)

// allFields returns all content of a question, the most important first. The text that an answer binds contains all of it,
// except the answers, the caller, the digest and the sources of the rules.
func (q Question) allFields(now time.Time) []field {
	return append(q.decisionFields(now), q.detailFields()...)
}

// decisionFields returns the fields on which an answer mostly depends.
func (q Question) decisionFields(now time.Time) []field {
	brief := approvaltext.NewBrief(q.Question)
	out := []field{
		{label: "call", text: string(q.Call), tone: strong},
		{label: "impact", text: q.Impact, tone: tonedImpact(q.Impact)},
	}
	out = append(out, briefFields(brief)...)
	out = append(out, field{label: "runs", text: commandLine(q.Argv), tone: strong},
		field{label: "by", text: principalText(q.Principal)})
	for _, r := range q.Rules {
		out = append(out, field{label: "asked by", text: string(r.ID) + ": " + cmp.Or(r.Reason, "(no reason given)"), tone: strong})
	}
	out = append(out, field{label: "requires", text: requirementText(bailey.Combine(q.Rules)), ours: true})
	for _, a := range q.Answers {
		out = append(out, field{label: "answered", text: fmt.Sprintf("%s has approved it (%s)", a.Name, a.Level), fleeting: true})
	}
	if q.Contents == bailey.NotBound {
		out = append(out, field{label: "NOT BOUND", text: "the contents of the files and directories that it names: they may change until it runs", tone: warning, ours: true})
	}
	return append(out, field{label: "expires", text: q.expiryText(now), fleeting: true},
		field{label: "caller", text: q.callerText(), fleeting: true, ours: true})
}

// detailFields returns the other fields: each argument and input, what the preview printed for programs, the environment and
// digests.
func (q Question) detailFields() []field {
	out := q.inputFields()
	if len(q.Preview.Argv) > 0 {
		out = append(out, field{label: "preview", text: commandLine(q.Preview.Argv)})
	}
	for _, lines := range approvaltext.NewBrief(q.Question).Rest {
		out = append(out, outputFields("also shows", lines)...)
	}
	for _, r := range q.Rules {
		out = append(out, field{label: "rule", text: strings.TrimSuffix(fmt.Sprintf("%s %s, %s", r.ID, r.Digest, r.Source), ", ")})
	}
	return append(append(out, q.environmentFields()...),
		field{label: "session", text: sessionText(q.Session), fleeting: true},
		field{label: "asked", text: q.AskedAt.UTC().Format(time.RFC3339), fleeting: true},
		field{label: "receipt", text: string(q.Receipt), fleeting: true},
		field{label: "nonce", text: q.Nonce, fleeting: true},
		field{label: "question", text: string(q.ID), fleeting: true},
		field{label: "digest", text: q.Digest, fleeting: true})
}

func principalText(p bailey.Principal) string {
	words := p.Agent
	if p.Person != "" {
		words += ", for " + p.Person
	}
	if p.Organisation != "" {
		words += ", of " + p.Organisation
	}
	if len(p.Roles) > 0 {
		words += ", as " + strings.Join(p.Roles, ", ")
	}
	return words
}

func tonedImpact(impact string) tone {
	if strings.Contains(impact, "irreversible") || strings.Contains(impact, "destructive") ||
		strings.Contains(impact, "without a jail") {
		return warning
	}
	return plain
}

// commandLine returns the arguments as a shell command.
func commandLine(argv []bailey.Shown) string {
	var words []string
	for _, a := range argv {
		if a.Text != "" && !strings.ContainsAny(a.Text, " \t\n'\"\\$`&|;<>()*?[]{}~#!") {
			words = append(words, a.Text)
			continue
		}
		words = append(words, "'"+strings.ReplaceAll(a.Text, "'", `'\''`)+"'")
	}
	return strings.Join(words, " ")
}

// requirementText says which answers are required.
func requirementText(w bailey.Wanted) string {
	words := "1 answer"
	if w.Count > 1 {
		words = fmt.Sprintf("%d answers by different people", w.Count)
	}
	if len(w.Roles) > 0 {
		words += ", each with " + strings.Join(w.Roles, ", ")
	}
	if w.Level != "" {
		words += ", at least " + string(w.Level)
	}
	if w.TTL > 0 {
		words += ", within " + formatDuration(w.TTL)
	}
	return words
}

func (q Question) expiryText(now time.Time) string {
	at := " (" + q.Expires.UTC().Format(time.RFC3339) + ")"
	if left := q.Expires.Sub(now).Round(time.Second); left > 0 {
		return "in " + formatDuration(left) + at
	}
	return "now" + at
}

func (q Question) callerText() string {
	switch {
	case !q.RunBy.IsZero():
		return "approved: it runs when the same call is repeated, and a denial takes the approval back"
	case q.Waits:
		return "waits for the answer"
	}
	return "does not wait: after the approval it runs when the same call is repeated"
}

func sessionText(id bailey.SessionID) string {
	if id == "" {
		return "none: any equal call of the same agent and person uses the answer"
	}
	return string(id)
}

// briefFields returns the message, the files, the destination and the difference.
func briefFields(brief approvaltext.Brief) (out []field) {
	for _, m := range brief.Messages {
		for n, l := range strings.Split(m.Text, "\n") {
			out = append(out, field{label: map[bool]string{true: m.Name}[n == 0], text: strings.ReplaceAll(l, "\t", "    "), tone: strong})
		}
	}
	if len(brief.Files) > 0 {
		out = append(out, field{label: "files", text: strings.Join(brief.Files, ", ")})
	}
	if len(brief.Places) > 0 {
		out = append(out, field{label: "to", text: strings.Join(brief.Places, ", "), tone: strong})
	}
	for _, s := range brief.Sections {
		if cellWidth(s.Title) >= labelWidth {
			out = append(out, field{text: s.Title + ":", ours: true})
			out = append(out, outputFields("", s.Lines)...)
			continue
		}
		out = append(out, outputFields(s.Title, s.Lines)...)
	}
	return out
}

// outputFields returns the lines of an output, each after a bar, so that none looks like a line of Bailey.
func outputFields(label string, lines []string) (out []field) {
	for _, l := range lines {
		out = append(out, field{label: label, text: "│ " + strings.ReplaceAll(l, "\t", "    ")})
		label = ""
	}
	return out
}

// inputFields returns the arguments, inputs and files one by one, because one line of them would be ambiguous.
func (q Question) inputFields() (out []field) {
	for i, a := range q.Argv {
		out = append(out, field{label: fmt.Sprintf("argument %d", i), text: a.Text})
	}
	for _, in := range q.Inputs {
		out = append(out, field{label: "input", text: in.Name + " = " + in.Text})
	}
	for _, f := range q.Files {
		out = append(out, field{label: "file", text: fmt.Sprintf("%s: %d bytes, as they were when the question was asked", f.Input, f.Size)})
	}
	return out
}

// environmentFields returns where, and in which environment, the call would run.
func (q Question) environmentFields() []field {
	out := []field{
		{label: "directory", text: q.Dir.Text},
		{label: "resource", text: strings.TrimSpace(q.Resource.Kind + " " + q.Resource.Name)},
		{label: "contents", text: q.Contents},
	}
	for _, b := range q.Bound {
		out = append(out, field{label: "repository", text: b.Path.Text + ", to " + b.Mode()})
	}
	for _, l := range q.Leases {
		text := fmt.Sprintf("%s as %s, from %s: %s, for %s", l.Name, l.Env, l.Adapter, l.Scope, formatDuration(l.TTL))
		if in := l.Inject; in != nil {
			text += fmt.Sprintf(", injected on the way to %s in %s; the tool has a placeholder",
				strings.Join(in.To, ", "), strings.Join(slices.Concat(in.Headers, in.Query), ", "))
		}
		out = append(out, field{label: "lends", text: text})
	}
	for _, place := range q.Egress {
		out = append(out, field{label: "reaches", text: place})
	}
	return append(out,
		field{label: "program", text: q.Binary.Text + " " + q.BinaryDigest},
		field{label: "cage", text: q.Cage + " " + q.Plan.Text},
		field{label: "environment", text: strings.Join(q.EnvNames, " ")},
		field{label: "manifest", text: q.Manifest})
}

// comparableLines returns the fields by which two questions can be compared, one per line: the content of their texts.
func (q Question) comparableLines() (lines []string) {
	q.Rules = slices.Clone(q.Rules)
	for i := range q.Rules {
		q.Rules[i].Source = "" // known only for open questions
	}
	label := ""
	for _, f := range q.allFields(time.Time{}) {
		if f.label != "" {
			label = f.label
		}
		if !f.fleeting {
			lines = append(lines, label+": "+escapeText(f.text))
		}
	}
	return lines
}

// labelWidth is the width of the label column, in cells.
const labelWidth = 13

// renderFields returns all fields as lines of at most w cells.
func renderFields(i textStyler, fields []field, w int) (lines []string) {
	room, indent := w-labelWidth, strings.Repeat(" ", labelWidth)
	if w < 40 {
		room, indent = w-1, " " // a label has its own line
	}
	for _, f := range fields {
		if w < 40 && f.label != "" {
			lines = append(lines, i.labelText(f.label))
		}
		text := escapeText(f.text)
		if text == "" {
			text = "(none)"
		}
		pieces := wrapHard(text, room)
		if f.ours {
			pieces = wrapWords(text, room)
		}
		for n, piece := range pieces {
			head := indent
			if n == 0 && w >= 40 {
				head = i.labelText(padToWidth(f.label, labelWidth))
			}
			lines = append(lines, head+applyTone(i, f.tone, piece))
		}
	}
	return lines
}

func applyTone(i textStyler, t tone, s string) string {
	switch t {
	case strong:
		return i.bold(s)
	case warning:
		return i.errorText(s)
	}
	return s
}

// formatDuration returns a duration without units that are zero: 10m, not 10m0s.
func formatDuration(d time.Duration) string {
	s := strings.TrimSuffix(d.String(), "m0s")
	if s != d.String() {
		s = strings.TrimSuffix(s+"m", "h0m")
		if !strings.HasSuffix(s, "m") {
			s += "h"
		}
	}
	return s
}

// shortDuration returns a duration in short form.
func shortDuration(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
