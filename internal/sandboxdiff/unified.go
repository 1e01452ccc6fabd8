package sandboxdiff

import (
	"fmt"
	"strings"
)

// The limits of a unified difference: its context in lines, its size in bytes, the width of a line, and the number of
// pairs of lines that are compared. Texts that differ in more lines are shown as removed and added.
const (
	diffContext = 3
	maxDiff     = 16 << 10
	maxLine     = 1000
	maxPairs    = 1 << 20
)

// edit is one line of a difference, with ' ', '-' or '+' as its sign.
type edit struct {
	sign byte
	line string
}

// unifiedDiff returns the difference of two texts as diff -u prints it, with control characters escaped. A text that is
// not printable is not shown.
func unifiedDiff(before, after string) string {
	if !isPrintable(before) || !isPrintable(after) {
		return ""
	}
	edits := editsOf(splitLines(before), splitLines(after))
	shown := make([]bool, len(edits))
	for i, e := range edits {
		if e.sign != ' ' {
			for j := max(0, i-diffContext); j <= min(len(edits)-1, i+diffContext); j++ {
				shown[j] = true
			}
		}
	}
	var out strings.Builder
	old, now := 1, 1
	for i, e := range edits {
		if shown[i] {
			if i == 0 || !shown[i-1] {
				out.WriteString(hunkHeader(edits[i:], shown[i:], old, now))
			}
			out.WriteString(string(e.sign) + escapeControls(cutText(e.line, maxLine)) + "\n")
			if out.Len() > maxDiff {
				out.WriteString("… the rest is not shown\n")
				break
			}
		}
		if e.sign != '+' {
			old++
		}
		if e.sign != '-' {
			now++
		}
	}
	return out.String()
}

func hunkHeader(edits []edit, shown []bool, old, now int) string {
	removed, added := 0, 0
	for i := range edits {
		if !shown[i] {
			break
		}
		if edits[i].sign != '+' {
			removed++
		}
		if edits[i].sign != '-' {
			added++
		}
	}
	if removed == 0 {
		old--
	}
	if added == 0 {
		now--
	}
	return fmt.Sprintf("@@ -%d,%d +%d,%d @@\n", old, removed, now, added)
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.Split(s, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		return lines[:last]
	}
	lines[len(lines)-1] += "\\ no newline at the end"
	return lines
}

// editsOf returns the shortest list of edits, unless there are too many lines to find it.
func editsOf(a, b []string) []edit {
	var head, tail []edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, edit{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	common := make([][]int, len(a)+1) // common[i][j] lines of a[i:] and b[j:] are in both, if they can be counted
	for i := range common {
		if len(a)*len(b) <= maxPairs {
			common[i] = make([]int, len(b)+1)
		}
	}
	for i := len(a) - 1; i >= 0 && common[i] != nil; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j] && common[0] != nil:
			head, i, j = append(head, edit{' ', a[i]}), i+1, j+1
		case j == len(b) || i < len(a) && (common[0] == nil || common[i+1][j] >= common[i][j+1]):
			head, i = append(head, edit{'-', a[i]}), i+1
		default:
			head, j = append(head, edit{'+', b[j]}), j+1
		}
	}
	for i := len(tail) - 1; i >= 0; i-- {
		head = append(head, tail[i])
	}
	return head
}

// escapeControls returns s with the characters escaped that could hide text or move the cursor of a terminal.
func escapeControls(s string) string {
	if !hasControl(s) {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			out.WriteRune(r)
		case isControl(r):
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
