package chromium

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"bailey/internal/ktest"
)

// axe is the source of the checks of npm's axe-core, from BAILEY_AXE_CORE or from beside the programs of npm in PATH.
var axe = sync.OnceValues(func() (string, error) {
	for _, dir := range append([]string{os.Getenv("BAILEY_AXE_CORE")}, filepath.SplitList(os.Getenv("PATH"))...) {
		if filepath.Base(dir) == ".bin" {
			dir = filepath.Dir(dir)
		}
		text, err := os.ReadFile(filepath.Join(dir, "axe-core", "axe.min.js"))
		if dir != "" && err == nil {
			return string(text), nil
		}
	}
	return "", errors.New("axe-core is missing: npm install it, and set BAILEY_AXE_CORE to its node_modules directory")
})

// RequireAxe skips the test if axe-core is missing.
func RequireAxe(t testing.TB) {
	t.Helper()
	if _, err := axe(); err != nil {
		ktest.Missing(t, "axe-core", err)
	}
}

// Violation is a rule of axe that elements of the page break.
type Violation struct {
	ID, Help string
	Nodes    []struct {
		HTML           string
		Target         []any
		FailureSummary string
	}
}

// axeRun runs the rules of WCAG 2.2, level A and AA, and returns those that are broken.
const axeRun = `axe.run(document, {preload: false, resultTypes: ["violations"], runOnly: {type: "tag",
	values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"]}}).then(r =>
	JSON.stringify(r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 5).map(n =>
	({html: n.html.slice(0, 300), target: n.target, failureSummary: n.failureSummary}))}))))`

// Axe returns the rules of accessibility that the page breaks: those of WCAG 2.2 AA, and axe's best practices.
func (p *Page) Axe() (broken []Violation) {
	p.t.Helper()
	source, err := axe()
	if err != nil {
		ktest.Missing(p.t, "axe-core", err)
	}
	if Eval[string](p, "typeof axe") == "undefined" {
		Run(p, chromedp.Evaluate[chromedp.Void](source))
	}
	if err := json.Unmarshal([]byte(Eval[string](p, axeRun)), &broken); err != nil {
		p.t.Fatal(err)
	}
	return broken
}

// WantAccessible fails the test if the page breaks a rule of [Page.Axe].
func (p *Page) WantAccessible() {
	p.t.Helper()
	for _, v := range p.Axe() {
		for _, n := range v.Nodes {
			p.t.Errorf("%s: %s: %s\n%s\n%s", p.url, v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}

// sideways returns the elements that are wider than the page, if it must be scrolled to the side.
const sideways = `(() => { const d = document.documentElement;
	if (d.scrollWidth <= d.clientWidth) return [];
	return ["the page has " + d.scrollWidth + " of " + d.clientWidth + " pixels"].concat(
		[...document.querySelectorAll("body *")]
		.filter(e => e.getBoundingClientRect().right > d.clientWidth + 0.5).slice(0, 5)
		.map(e => e.outerHTML.slice(0, 120))); })()`

// WantNoSideways fails the test if the page must be scrolled to the side at a width.
func (p *Page) WantNoSideways(widths ...int64) {
	p.t.Helper()
	for _, w := range widths {
		p.Size(w, 800)
		if wide := Eval[[]string](p, sideways); len(wide) > 0 {
			p.t.Errorf("%s at %d pixels: %s", p.url, w, strings.Join(wide, "\n  "))
		}
	}
}

// watchFocus counts the controls, and notes those that get the focus. One button of a group of radio buttons is enough.
const watchFocus = `(() => { const reached = new Set(), unseen = new Set(), groups = new Set();
	const all = [...document.querySelectorAll(
			"a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]")]
		.filter(e => !e.disabled && e.tabIndex >= 0 && !e.closest("[inert]"))
		.filter(e => e.checkVisibility({visibilityProperty: true}))
		.filter(e => e.type !== "radio" || !groups.has(e.name) && groups.add(e.name));
	document.addEventListener("focusin", ({target}) => { const s = getComputedStyle(target);
		reached.add(target.type === "radio" ? all.find(e => e.type === "radio" && e.name === target.name) : target);
		const outlined = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0;
		if (!outlined && s.boxShadow === "none") unseen.add(target); });
	window.testFocus = () => [all.filter(e => !reached.has(e)).map(e => "not reached: " + e.outerHTML.slice(0, 150)),
		[...unseen].map(e => "the focus is not visible: " + e.outerHTML.slice(0, 150))];
	if (document.activeElement) document.activeElement.blur();
	return all.length; })()`

// WantKeyboard fails the test if the key Tab alone does not reach every control, or the focus is not visible on one.
func (p *Page) WantKeyboard() {
	p.t.Helper()
	n := Eval[int](p, watchFocus)
	var missed [][]string
	for pressed := 0; pressed <= 2*n+10; pressed += 5 {
		for range 5 {
			p.Press(kb.Tab)
		}
		if missed = Eval[[][]string](p, "testFocus()"); len(missed[0]) == 0 {
			break
		}
	}
	for _, text := range slices.Concat(missed...) {
		p.t.Errorf("%s: %s", p.url, text)
	}
	// A link that only the focus shows hides others.
	Eval[bool](p, "(document.activeElement?.blur(), scrollTo(0, 0), true)")
}

// Press presses keys, for example kb.Enter.
func (p *Page) Press(keys string) {
	p.t.Helper()
	Run(p, chromedp.KeyEvent(keys))
}

// Element is a part of the page as assistive technology finds it.
type Element struct {
	Role, Name string
	p          *Page
	node       cdp.BackendNodeID
}

// Elements returns the parts of the page that have a role and a name, in their order.
func (p *Page) Elements() (all []Element) {
	p.t.Helper()
	for _, n := range Call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		e := Element{Role: valueText(n.Role), Name: valueText(n.Name), p: p, node: n.BackendDOMNodeID}
		if !n.Ignored && e.Name != "" {
			all = append(all, e)
		}
	}
	return all
}

func valueText(v *accessibility.Value) (text string) {
	if v != nil {
		json.Unmarshal(v.Value, &text)
	}
	return text
}

// Find returns the first element of a role whose name contains a text.
func (p *Page) Find(role, name string) Element {
	p.t.Helper()
	all := p.Elements()
	for _, e := range all {
		if e.Role == role && strings.Contains(e.Name, name) {
			return e
		}
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Role+" "+e.Name)
	}
	p.t.Fatalf("%s has no %s named %q. It has:\n%s", p.url, role, name, strings.Join(names, "\n"))
	return Element{}
}

// Box returns the corners of an element in the window, in CSS pixels.
func (e Element) Box() (left, top, right, bottom float64) {
	e.p.t.Helper()
	quads := Call(e.p, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: e.node}).Quads
	if len(quads) == 0 {
		e.p.t.Fatalf("the %s %q is not visible", e.Role, e.Name)
	}
	q := quads[0]
	return min(q[0], q[6]), min(q[1], q[3]), max(q[2], q[4]), max(q[5], q[7])
}

// Click clicks on the middle of an element. If it is outside of the window, the page scrolls first.
func (e Element) Click() {
	e.p.t.Helper()
	Call(e.p, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: e.node})
	left, top, right, bottom := e.Box()
	Run(e.p, chromedp.MouseClickXY((left+right)/2, (top+bottom)/2))
}

// Fill replaces the text of a field.
func (e Element) Fill(text string) {
	e.p.t.Helper()
	Call(e.p, dom.Focus, dom.FocusParams{BackendNodeID: e.node})
	Eval[bool](e.p, "(document.activeElement.select?.(), true)")
	Run(e.p, chromedp.KeyEvent(text))
}

// Picture returns the window as a PNG of at most 256 colours.
func (p *Page) Picture() []byte {
	p.t.Helper()
	Call(p, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true})
	defer Call(p, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{})
	small, err := reduceColours(Call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{}).Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return small
}

// reduceColours writes a PNG with a palette of its most frequent colours. The pages have few colours, and the edges of
// letters many.
func reduceColours(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	bounds := full.Bounds()
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return roundColour(color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G),
			cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range all[:min(len(all), 64)] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range count {
		index[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}

// roundColour keeps the five highest bits of each part, and fills the others so that white stays white.
func roundColour(c color.RGBA) color.RGBA {
	round := func(v uint8) uint8 { return v&0xf8 | v>>5 }
	return color.RGBA{round(c.R), round(c.G), round(c.B), 255}
}
