package apitype

import (
	"fmt"
	"strings"

	"bailey/internal/approvaltext"
	"bailey/internal/terminal"
)

// Limits of one line in a brief, in bytes. The details have all of it.
const briefValue, briefArgv = 300, 600

// FirstScreen returns the question for a person who decides: effect, message, files and destination, then at most the given number
// of lines of the difference, and what else the answer depends on. It has no digests, arguments one by one, environment and
// plan: those are in [OpenQuestion.Summary]. If it leaves out a part of a value, it says so.
func (q OpenQuestion) FirstScreen(lines int) string {
	var b strings.Builder
	brief := approvaltext.NewBrief(q.Question)
	line := func(label, text string) {
		for i, l := range strings.Split(text, "\n") {
			fmt.Fprintf(&b, "%-9s %s\n", map[bool]string{true: label}[i == 0], terminal.Shown(l))
		}
	}
	line("effect", fmt.Sprintf("%s: %s", q.Question.Call, q.Impact))
	for _, m := range brief.Messages {
		line(m.Name, briefCut(m.Text, 4*briefValue))
	}
	if len(brief.Files) > 0 {
		line("files", briefCut(strings.Join(brief.Files, ", "), briefValue))
	}
	if len(brief.Places) > 0 {
		line("to", briefCut(strings.Join(brief.Places, ", "), briefValue))
	}
	for _, l := range q.Leases {
		line("lends", fmt.Sprintf("%s, for %s", l.Name, l.Scope))
	}
	b.WriteString(briefSections(brief.Sections, lines))
	line("call", fmt.Sprintf("%s%s, by %s", q.Call, briefCut(q.Inputs, briefValue), q.Agent))
	line("runs", briefCut(strings.Join(q.Argv, " "), briefArgv))
	if q.Dir.Text != "" {
		line("in", q.Dir.Text)
	}
	b.WriteString(q.termLines())
	fmt.Fprintf(&b, "state     %s\ndetails   bailey approvals show %s --details\n", q.stateText(), q.ID)
	return b.String()
}

// briefSections returns the outputs of a preview. An output of one line stands beside its title.
func briefSections(sections []approvaltext.Section, lines int) string {
	var b strings.Builder
	cut := 0
	for _, s := range sections {
		if len(s.Lines) == 1 {
			fmt.Fprintf(&b, "%-9s %s\n", s.Title, terminal.Shown(s.Lines[0]))
			continue
		}
		n := min(len(s.Lines), max(lines, 0))
		if lines -= n; n > 0 {
			fmt.Fprintf(&b, "%s\n", s.Title)
		}
		for _, l := range s.Lines[:n] {
			fmt.Fprintf(&b, "  │ %s\n", terminal.Shown(strings.ReplaceAll(l, "\t", "    ")))
		}
		cut += len(s.Lines) - n
	}
	if cut > 0 {
		fmt.Fprintf(&b, "  %s of it are among the details\n", Counts(cut, "more line"))
	}
	return b.String()
}

// briefCut cuts a text at a number of bytes, and says so.
func briefCut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return terminal.CutAt(text, most) + " (the rest is among the details)"
}
