package control_test

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/control"
	"bailey/internal/fleet"
	"bailey/internal/ktest"
	"bailey/internal/ktest/chromium"
	"bailey/internal/store"
)

// pageRow is what the tests know about a page. Without a row for its operation, a page fails TestEveryPage.
type pageRow struct {
	id   func(w *world) string // replaces {id}
	text string                // that the page has, also without scripts
	open bool                  // for people who are not signed in
	role store.Role            // the least role that sees it
	not  string                // why it is no page of HTML: it is skipped
}

func fixed(id string) func(*world) string { return func(*world) string { return id } }

// pageRows has a row for each page, by operation.
var pageRows = map[string]pageRow{
	"login":          {open: true, text: "Sign in"},
	"setup":          {open: true, text: "Set up Bailey"},
	"join":           {open: true, text: "Join"},
	"account":        {text: "Passkeys"},
	"home":           {text: "Shop"},
	"overview":       {role: store.Member, text: "Waits for an answer"},
	"approvals-page": {role: store.Member, text: "git.push"},
	"approval-page":  {role: store.Member, text: "Why it is asked", id: fixed("a-open")},
	"hosts-page":     {role: store.Member, text: "laptop of Ann"},
	"host-page":      {role: store.Member, text: "Last heartbeat", id: func(w *world) string { return w.host }},
	"sources-page":   {role: store.Member, text: "web-1"},
	"members-page":   {role: store.Member, text: "carol@example.com"},
	"tokens-page":    {role: store.Member, text: "API tokens"},
	"settings-page":  {role: store.Member, text: "it fetched too much"},

	"notices-page":  {text: "Notices"},
	"receipts-page": {role: store.Admin, text: "git.commit"},
	"receipt-page":  {role: store.Admin, text: "The proof"},
	"sessions-page": {role: store.Admin, text: "s-refactor"},
	"session-page":  {role: store.Admin, text: "go.test"},
	"policy-page":   {role: store.Member, text: "Rules"},

	"receipt-file":         {not: "it is a file to save"},
	"session-evidence":     {not: "it is a file to save"},
	"live":                 {not: "it is the stream of events"},
	"begin-provider-login": {not: "it sends the browser to a provider"},
	"link-identity":        {not: "it sends the browser to a provider"},
	"provider-login":       {not: "it receives the browser from a provider"},
}

// maxWeight is how many bytes a page may have over the wire, with all that it loads, without a cache.
const maxWeight = 100_000

// hostileElements are elements that a text has made.
const hostileElements = `[...document.querySelectorAll("#xss, [onerror], script:not([src])")].map(e => e.outerHTML.slice(0, 200))`

// TestEveryPage opens each page in a browser, as the owner of an organisation in which every text is hostile. The page has
// no fault (a message on the console, a dialog, a violation of the policy), no element that a text has made, breaks no
// rule of WCAG 2.2 AA in light and dark, does not scroll to the side, is used by the keyboard alone, is small, and can be
// read without scripts.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	chromium.RequireAxe(t)
	w := newWorld(t, hostileTexts)
	for _, r := range w.Routes() {
		if !r.Page || r.Method != http.MethodGet {
			continue
		}
		row, ok := pageRows[r.Operation]
		if !ok {
			t.Errorf("the page %s (%s) has no row in pageRows", r.Operation, r.Path)
		}
		if !ok || row.not != "" {
			continue
		}
		t.Run(r.Operation, func(t *testing.T) {
			t.Parallel()
			checkPage(t, w, r, row)
		})
	}
}

// urlOf returns the URL of a page of the world.
func (w *world) urlOf(r control.Route, row pageRow) string {
	path := w.path(r.Path)
	if row.id != nil {
		path = strings.ReplaceAll(path, "{id}", row.id(w))
	}
	return w.URL + path
}

func checkPage(t *testing.T, w *world, r control.Route, row pageRow) {
	t.Helper()
	p := chromium.Open(t)
	if !row.open {
		p.SetCookies(w.URL, w.owner.cookies())
	}
	url := w.urlOf(r, row)
	p.Prefer("prefers-reduced-motion", "reduce")
	if status := p.Go(url); status != http.StatusOK {
		t.Fatalf("%s: status %d\n%s", url, status, p.Text())
	}
	if text := p.Text(); !strings.Contains(text, row.text) {
		t.Errorf("%s has no %q:\n%s", url, row.text, text)
	}
	if made := chromium.Eval[[]string](p, hostileElements); len(made) > 0 {
		t.Errorf("%s: texts have made elements: %q", url, made)
	}
	if n := p.Weight(); n > maxWeight {
		t.Errorf("%s has %d bytes, want at most %d", url, n, maxWeight)
	}
	if n := chromium.Eval[int](p, "document.getAnimations().length"); n > 0 {
		t.Errorf("%s: %d animations run although the person wants few", url, n)
	}
	p.WantKeyboard()
	p.WantNoSideways(2560, 1280, 768, 375)
	p.WantAccessible() // at the width of a phone
	p.Prefer("prefers-color-scheme", "dark")
	p.Size(1280, 800)
	p.WantAccessible()
	p.Scripts(false)
	p.Go(url)
	if h1 := chromium.Eval[[]string](p, `[...document.querySelectorAll("h1")].map(e => e.innerText)`); len(h1) != 1 ||
		h1[0] == "" {
		t.Errorf("%s has the headings %q without scripts, want one", url, h1)
	}
	if text := p.Text(); !strings.Contains(text, row.text) {
		t.Errorf("%s has no %q without scripts:\n%s", url, row.text, text)
	}
}

// TestPagesOfRoles opens each page as each role, a stranger and a person who is not signed in. A stranger sees the same as
// for an organisation that does not exist.
func TestPagesOfRoles(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	w := newWorld(t, plainTexts)
	none := *w.world404(t)
	for _, r := range w.Routes() {
		row := pageRows[r.Operation]
		if !r.Page || r.Method != http.MethodGet || row.not != "" || row.open {
			continue
		}
		path := strings.TrimPrefix(w.urlOf(r, row), w.URL)
		if r.Role != row.role {
			t.Errorf("%s is for the role %v, and this test wants %v", r.Operation, r.Role, row.role)
		}
		for role, c := range map[store.Role]*client{store.Owner: w.owner, store.Admin: w.admin, store.Member: w.member} {
			wanted := http.StatusOK
			if role < row.role {
				wanted = http.StatusForbidden
			}
			if status, text := c.send("GET", path, nil); status != wanted {
				t.Errorf("%s as %v: got %d, want %d\n%s", path, role, status, wanted, text)
			}
		}
		if status, _ := w.newClient(t).send("GET", path, nil); status != http.StatusSeeOther {
			t.Errorf("%s without a session: got %d, want the login", path, status)
		}
		if row.role == 0 {
			continue
		}
		status, text := w.stranger.send("GET", path, nil)
		if status != none.status || normalise(text) != none.text {
			t.Errorf("%s as a stranger: got %d, want %d\n%s", path, status, none.status, text)
		}
	}
}

// refusal is an answer.
type refusal struct {
	status int
	text   string
}

// world404 is the answer about an organisation that does not exist.
func (w *world) world404(t *testing.T) *refusal {
	t.Helper()
	status, text := w.stranger.send("GET", "/o/o-none/hosts", nil)
	if status != http.StatusNotFound {
		t.Errorf("an organisation that does not exist: %d %s", status, text)
	}
	return &refusal{status, normalise(text)}
}

// normalise removes what differs in two answers of the same content.
func normalise(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }

// TestTimesOfReader shows times in the zone of the reader, and in UTC without scripts.
func TestTimesOfReader(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	w := newWorld(t, plainTexts)
	p := chromium.Open(t)
	p.SetCookies(w.URL, w.owner.cookies())
	times := `[...document.querySelectorAll("time[data-local]")].map(e => e.innerText)`
	url := w.URL + w.path("/o/{organisation}/hosts/{host}")
	seen := map[string][]string{}
	for _, zone := range []string{"Asia/Tokyo", "America/New_York"} {
		p.Zone(zone)
		p.Go(url)
		seen[zone] = chromium.Eval[[]string](p, times)
	}
	p.Scripts(false)
	p.Go(url)
	seen["none"] = chromium.Eval[[]string](p, times)
	if len(seen["none"]) == 0 || slices.Equal(seen["Asia/Tokyo"], seen["America/New_York"]) || slices.Equal(seen["none"], seen["Asia/Tokyo"]) {
		t.Errorf("got %q", seen)
	}
	if !slices.ContainsFunc(seen["none"], func(text string) bool { return strings.Contains(text, "UTC") }) {
		t.Errorf("the zone of the times is not said without scripts: %q", seen["none"])
	}
}

// TestApproveFromPhone finds the effect, the requester and both answers of a question by their accessible names on the
// first screen of a phone, and grants with a passkey in at most three interactions. Then the page shows the decision
// without being loaded by the person.
func TestApproveFromPhone(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	w := newWorld(t, plainTexts)
	p := chromium.Open(t)
	p.SetCookies(w.URL, w.admin.cookies())
	card := p.AddAuthenticator()
	p.Go(w.URL + "/account")
	p.Find("button", "Add a passkey").Click()
	p.Until("document.body.innerText.includes('Remove')")
	w.trust(t, card)
	p.Size(375, 667)
	p.Go(w.URL + w.path("/o/{organisation}/approvals/a-open"))
	interactions := 0
	for _, name := range []struct{ role, name string }{{"heading", "Effect"}, {"StaticText", "round the total once"}, {"StaticText", "coder"},
		{"button", "Approve"}, {"button", "Deny"}} {
		if _, top, _, bottom := p.Find(name.role, name.name).Box(); top < 0 || bottom > 667 {
			t.Errorf("%q is at %v to %v, not on the first screen", name.name, top, bottom)
		}
	}
	p.Find("button", "Approve").Click()
	interactions++
	w.until(t, "the gateway has the answer", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.answers) == 1 && w.answers[0].Grant && w.answers[0].Digest == w.question.Digest
	})
	if interactions > 3 {
		t.Errorf("%d interactions", interactions)
	}
	begun := time.Now()
	w.report(t, fleet.ApprovalDecided, object{"id": "a-open", "granted": true, "reason": "looks right"})
	p.Until("document.body.innerText.includes('granted')")
	t.Logf("the page showed the decision after %v", time.Since(begun))
}

var pictures = flag.Bool("pictures", false, "write the pictures of the pages to docs/console")

// TestPictures writes pictures of the pages for the documents: light, dark, and at the width of a phone. Without the flag
// -pictures it only checks that docs/console.md shows each page.
func TestPictures(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	const dir = "../../docs/console"
	text, err := os.ReadFile("../../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, plainTexts)
	for _, r := range w.Routes() {
		row := pageRows[r.Operation]
		if !r.Page || r.Method != http.MethodGet || row.not != "" {
			continue
		}
		name := strings.TrimSuffix(r.Operation, "-page")
		if !strings.Contains(string(text), "console/"+name+".png") {
			t.Errorf("docs/console.md does not show the page %s", r.Operation)
		}
		if *pictures {
			takePictures(t, w, w.urlOf(r, row), row, filepath.Join(dir, name))
		}
	}
}

// maxPicture is how many bytes a picture may have.
const maxPicture = 60_000

func takePictures(t *testing.T, w *world, url string, row pageRow, path string) {
	t.Helper()
	p := chromium.Open(t)
	if !row.open {
		p.SetCookies(w.URL, w.owner.cookies())
	}
	for suffix, look := range map[string]struct {
		width, height int64
		scheme        string
	}{"": {1100, 760, "light"}, "-dark": {1100, 760, "dark"}, "-phone": {375, 667, "light"}} {
		p.Size(look.width, look.height)
		p.Prefer("prefers-color-scheme", look.scheme)
		p.Go(url)
		picture := p.Picture()
		if len(picture) > maxPicture {
			t.Errorf("the picture of %s has %d bytes, want at most %d", url, len(picture), maxPicture)
		}
		if err := os.WriteFile(path+suffix+".png", picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
