package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/redact"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// linesChange describes a change of a list of settings, for the difference that init shows. lines has one line for each of
// them. gone is a warning if none is left.
func linesChange[T any](old, now []T, line func(T) string, gone string) string {
	text := func(list []T) string {
		var lines []string
		for _, v := range list {
			lines = append(lines, line(v))
		}
		return strings.Join(lines, "\n")
	}
	words := terminal.Diff(text(old), text(now))
	if len(old) > 0 && len(now) == 0 {
		words += "  ! " + gone + "\n"
	}
	return words
}

func signerLine(s string) string { return "policy signer " + s }

func approverLine(a settings.Approver) string {
	line := "approver " + a.Name + " " + a.Key
	if len(a.Roles) > 0 {
		line += " with " + strings.Join(a.Roles, ", ")
	}
	return line
}

// pagesChange describes a change of whether pages of the control plane may answer, for the difference that init shows.
func pagesChange(old, now bool) string {
	text := func(on bool) string {
		if on {
			return apitype.PagesAccepted + "\n"
		}
		return ""
	}
	words := terminal.Diff(text(old), text(now))
	if now && !old {
		words += "  ! a control plane that an attacker controls could have an approver's passkey grant another question\n"
	}
	return words
}

// brokerChange describes a change of the broker, for the difference that init shows.
func brokerChange(old, now *settings.Broker) string {
	words := terminal.Diff(brokerLine(old), brokerLine(now))
	if now != nil && now.UID == os.Geteuid() {
		words += "  ! " + apitype.SameUser + "\n"
	}
	return words
}

func brokerLine(b *settings.Broker) string {
	if b == nil {
		return ""
	}
	line := fmt.Sprintf("credentials come from the broker of uid %d at %s\n", b.UID, b.Socket)
	if b.CheckpointKey {
		line += fmt.Sprintf("the ledger's checkpoints are signed by a key of the broker of uid %d at %s\n", b.UID,
			b.Socket)
	}
	return line
}

// networkChange describes a change of the places that cages can reach, for the difference that init shows. It marks
// each place whose access becomes wider.
func networkChange(old, now settings.Network) string {
	words := terminal.Diff(networkLines(old), networkLines(now))
	for _, r := range now.Endpoints {
		was := old.With(bailey.Endpoint{Host: r.Host, Port: r.Port})
		if r.Private && !was.Private {
			words += fmt.Sprintf("  ! %s may now have an address inside your network\n", r)
		}
		if r.Plain && !was.Plain {
			words += fmt.Sprintf("  ! connections to %s need not be encrypted, and are not inspected\n", r)
		}
	}
	return words
}

func networkLines(n settings.Network) string {
	var list []string
	if n.Upstream != "" {
		line := "network by the proxy " + n.Upstream
		if n.ByName {
			line += ", which resolves names: their addresses are not checked here"
		}
		list = append(list, line)
	}
	for _, r := range n.Endpoints {
		line := "network endpoint " + r.Words()
		if len(r.For) > 0 {
			line += ", for " + strings.Join(r.For, " ")
		}
		list = append(list, line)
	}
	for _, socket := range slices.Sorted(maps.Keys(n.Sockets)) {
		list = append(list, "network socket of "+socket+" "+n.Sockets[socket])
	}
	return strings.Join(list, "\n")
}

// ruleLines lists the custom rules, for an operator to compare before they are applied. Long rules are split, so that
// no rule hides its end.
func ruleLines(c redact.Config) string {
	var lines []string
	for _, p := range c.Patterns {
		lines = append(lines, wrapLines("hides "+p.Category+": ", p.Regexp)...)
	}
	for _, a := range c.Allow {
		lines = append(lines, wrapLines("shows "+cmp.Or(a.Category, anyCategory)+": ", a.Regexp)...)
	}
	for _, w := range c.Without {
		lines = append(lines, "does not hide "+w)
	}
	return strings.Join(lines, "\n")
}

// wrapLines splits text into lines short enough to be shown in full.
func wrapLines(head, text string) (lines []string) {
	const width = 200
	for r := range slices.Chunk([]rune(text), width) {
		lines = append(lines, head+string(r))
		head = strings.Repeat(" ", len(head))
	}
	return lines
}

// anyCategory stands for a rule without a category.
const anyCategory = "ANY CATEGORY"

// describeLoosened describes the values that old redacts and now does not.
func describeLoosened(old, now redact.Config) string {
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, w := range now.Without {
		if !slices.Contains(old.Without, w) {
			say("the built-in detection for %s is off", w)
		}
	}
	for _, a := range now.Allow {
		if !slices.ContainsFunc(old.Allow,
			func(b redact.Allow) bool { return a.Category == b.Category && a.Regexp == b.Regexp }) {
			say("matches of %s that match %s as a whole are shown", cmp.Or(a.Category, anyCategory), a.Regexp)
		}
	}
	for _, p := range old.Patterns {
		if !slices.ContainsFunc(now.Patterns,
			func(q redact.Pattern) bool { return p.Category == q.Category && p.Regexp == q.Regexp }) {
			became := "is gone"
			if slices.ContainsFunc(now.Patterns, func(q redact.Pattern) bool { return p.Category == q.Category }) {
				became = "has another expression"
			}
			say("the pattern %s of %s %s", p.Regexp, p.Category, became)
		}
	}
	var out strings.Builder
	for _, w := range words {
		fmt.Fprintf(&out, "  ! less is hidden: %s\n", terminal.CutLine(w))
	}
	return out.String()
}

// Passing names the values that are not redacted.
func Passing(c redact.Config) []string {
	list := slices.Clone(c.Without)
	for _, a := range c.Allow {
		list = append(list, cmp.Or(a.Category, anyCategory)+" "+a.Regexp)
	}
	return list
}
