package tui

import (
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// quiet is the time without a key that must precede an answering key, so that keys typed before a dialog was visible do
// not answer it.
const quiet = 300 * time.Millisecond

// dialog asks for a Yes or No. It starts at No.
type dialog struct {
	title   string
	details []string
	yes     bool      // the current choice
	last    time.Time // when it was opened, or the last key that came too early
	do      func() tea.Cmd
}

// handleKey processes a key. done means that the dialog is over, granted that the answer is Yes.
func (d *dialog) handleKey(key string, now time.Time) (done, granted bool) {
	if now.Sub(d.last) < quiet {
		d.last = now
		return false, false
	}
	switch key {
	case "y", "Y":
		return true, true
	case "n", "N", "esc", "q", "ctrl+g":
		return true, false
	case "enter":
		return true, d.yes
	case "left", "right", "tab", "shift+tab", "h", "l":
		d.yes = !d.yes
	}
	return false, false
}

// renderLines returns the title, then the choice, then the details, so that the details are cut if there is little room.
func (d *dialog) renderLines(i textStyler, w int) []string {
	no, yes := "▸ "+i.reverse(" No "), "   Yes "
	if d.yes {
		no, yes = "   No ", "▸ "+i.reverse(" Yes ")
	}
	out := []string{i.faint(strings.Repeat("─", max(0, w)))}
	for n, piece := range wrapWords(escapeText(d.title), w) {
		if n < 3 { // a long title must not push the choice out of sight
			out = append(out, i.bold(piece))
		}
	}
	out = append(out, no+"   "+yes)
	for _, s := range d.details {
		out = append(out, wrapWords(escapeText(s), w)...)
	}
	return append(out, i.faint("y yes · n or Escape no · ←→ choose · Enter selects"))
}

// prompt is a line of text that a person types, for example a reason.
type prompt struct {
	title string
	text  string
	most  int // bytes
	do    func(text string) tea.Cmd
}

// handleKey processes a key and the text that it stands for.
func (p *prompt) handleKey(key, text string) (done, taken bool) {
	switch key {
	case "esc", "ctrl+g":
		return true, false
	case "enter":
		return true, true
	case "backspace", "ctrl+h":
		_, n := utf8.DecodeLastRuneInString(p.text)
		p.text = p.text[:len(p.text)-n]
	case "ctrl+u":
		p.text = ""
	default:
		p.appendText(text)
	}
	return false, false
}

// appendText appends typed or pasted text, without invisible characters and up to the limit.
func (p *prompt) appendText(text string) {
	for _, r := range text {
		if s := string(r); escapeText(s) == s && r != utf8.RuneError && len(p.text)+len(s) <= p.most {
			p.text += s
		}
	}
}

func (p *prompt) renderLines(i textStyler, w int) []string {
	out := []string{i.faint(strings.Repeat("─", max(0, w)))}
	for _, piece := range wrapWords(escapeText(p.title), w) {
		out = append(out, i.bold(piece))
	}
	out = append(out, wrapHard("› "+escapeText(p.text)+"▏", w)...)
	return append(out, i.faint("Enter continues · Escape cancels"))
}
