package tui

import (
	"fmt"
	"html"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestPictures checks that the pictures of docs/tui.md show the result of View for sample data, at 100 by 30 cells.
// With -update it draws them again.
func TestPictures(t *testing.T) {
	for _, c := range scenes {
		if slices.Contains([]string{"inbox", "question", "grant", "receipts", "verified", "stopped"}, c.name) {
			golden(t, filepath.Join("..", "..", "docs", "tui", c.name+".svg"), picture(scene(t, true, 100, 30, c.keys).view()))
		}
	}
}

// Size of a cell in units of the picture, and its default colours.
const (
	cellW, cellH, margin = 8, 17, 12
	back, fore           = "#1d2021", "#d5d0c4"
)

// colors maps the attributes that ink sets to colours.
var colors = map[string]string{"31": "#fb6a5b", "32": "#a9c46c", "33": "#e8b94b", "36": "#82b7b0", "90": "#8f887c"}

// appearance is the style that attributes give to a text.
type appearance struct {
	color         string
	bold, reverse bool
}

func (a appearance) set(params string) appearance {
	for p := range strings.SplitSeq(params, ";") {
		switch {
		case p == "" || p == "0":
			a = appearance{}
		case p == "1":
			a.bold = true
		case p == "7":
			a.reverse = true
		case colors[p] != "":
			a.color = colors[p]
		}
	}
	return a
}

// picture draws a screen as SVG, with one text element for each run of equal appearance, as wide as its cells.
func picture(screen string) string {
	lines := strings.Split(screen, "\n")
	w, h := 100*cellW+2*margin, len(lines)*cellH+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\">\n", w, h)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"%s\"/>\n", w, h, back)
	for y, line := range lines {
		var at appearance
		x, run := 0, ""
		flush := func() {
			draw(&b, x-cellWidth(run), y, run, at)
			run = ""
		}
		var state byte
		for line != "" {
			seq, cells, n, next := ansi.DecodeSequence(line, state, nil)
			if params, ok := strings.CutPrefix(seq, "\x1b["); ok {
				flush()
				at = at.set(strings.TrimSuffix(params, "m"))
			} else {
				run += seq
				x += cells
			}
			line, state = line[n:], next
		}
		flush()
	}
	return b.String() + "</svg>\n"
}

func draw(b *strings.Builder, x, y int, run string, a appearance) {
	if a == (appearance{}) && strings.TrimSpace(run) == "" {
		return
	}
	if rest := strings.TrimLeft(run, " "); !a.reverse {
		x, run = x+len(run)-len(rest), rest
	}
	color, weight := fore, ""
	if a.color != "" {
		color = a.color
	}
	left, cells := margin+x*cellW, cellWidth(run)*cellW
	if a.reverse {
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", left, margin+y*cellH, cells, cellH, color)
		color = back
	}
	if a.bold {
		weight = ` font-weight="bold"`
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" textLength=\"%d\" fill=\"%s\"%s xml:space=\"preserve\">%s</text>\n", left, margin+y*cellH+13, cells, color, weight, html.EscapeString(run))
}
