package tui

import (
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// quiet is how long no key may have come before one answers: what was typed before a dialog was seen answers nothing.
const quiet = 300 * time.Millisecond

// dialog asks, and stands at No.
type dialog struct {
	title   string
	details []string
	yes     bool      // where it stands
	last    time.Time // when it was opened, or a key came too early
	do      func() tea.Cmd
}

// press takes a key. done says that the dialog is over, granted that it was a Yes.
func (d *dialog) press(key string, now time.Time) (done, granted bool) {
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

// lines have what is asked first and the choice next: where there is little room, the rest goes.
func (d *dialog) lines(i ink, w int) []string {
	no, yes := "▸ "+i.reverse(" No "), "   Yes "
	if d.yes {
		no, yes = "   No ", "▸ "+i.reverse(" Yes ")
	}
	out := []string{i.faint(strings.Repeat("─", max(0, w)))}
	for n, piece := range prose(seen(d.title), w) {
		if n < 3 { // whatever it is called, the choice stays in sight
			out = append(out, i.bold(piece))
		}
	}
	out = append(out, no+"   "+yes)
	for _, s := range d.details {
		out = append(out, prose(seen(s), w)...)
	}
	return append(out, i.faint("y yes · n or Escape no · ←→ choose · Enter takes what is chosen"))
}

// prompt is a line of text that a person types.
type prompt struct {
	title string
	text  string
	most  int // bytes
	do    func(text string) tea.Cmd
}

// press takes a key with the text that it stands for.
func (p *prompt) press(key, text string) (done, taken bool) {
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
		p.add(text)
	}
	return false, false
}

// add takes what is typed or pasted, as far as it can be seen and there is room.
func (p *prompt) add(text string) {
	for _, r := range text {
		if s := string(r); seen(s) == s && r != utf8.RuneError && len(p.text)+len(s) <= p.most {
			p.text += s
		}
	}
}

func (p *prompt) lines(i ink, w int) []string {
	out := []string{i.faint(strings.Repeat("─", max(0, w)))}
	for _, piece := range prose(seen(p.title), w) {
		out = append(out, i.bold(piece))
	}
	out = append(out, fold("› "+seen(p.text)+"▏", w)...)
	return append(out, i.faint("Enter goes on · Escape leaves it"))
}
