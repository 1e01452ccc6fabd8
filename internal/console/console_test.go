package console

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

type faultView struct {
	Frame
	Fault, Hint string
}

// TestLayout: each part of the frame is text, whatever it contains, and the page has one main heading.
func TestLayout(t *testing.T) {
	t.Parallel()
	const probe = `"><script>alert(1)</script>`
	w := httptest.NewRecorder()
	err := Write(w, "fault", http.StatusNotFound, faultView{Frame{Title: probe, Base: "/o/" + probe, Organisation: probe,
		Account: probe, Navigation: []Entry{{URL: "javascript:alert(1)", Label: probe, Current: true, Count: 3}}}, probe, probe})
	text := w.Body.String()
	if err != nil || w.Code != http.StatusNotFound || strings.Contains(text, "<script>") || strings.Contains(text, `"javascript:`) ||
		strings.Count(text, "<h1>") != 1 {
		t.Errorf("%v, %d: %s", err, w.Code, text)
	}
	if err := Write(httptest.NewRecorder(), "none", 200, faultView{}); err == nil {
		t.Error("a page that does not exist was written")
	}
	w = httptest.NewRecorder()
	if err := Write(w, "login", 200, faultView{}); err == nil || w.Body.Len() > 0 {
		t.Errorf("a page without its values was written in part: %v, %s", err, w.Body)
	}
}

// TestAssets: a file is served for ever under the hash of its content, and under no other.
func TestAssets(t *testing.T) {
	t.Parallel()
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		Static().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w
	}
	for name, kind := range map[string]string{"console.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml",
		"console.js": "text/javascript; charset=utf-8"} {
		w := get(Asset(name))
		if h := w.Header(); w.Code != 200 || h.Get("Content-Type") != kind || !strings.Contains(h.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", name, w.Code, h)
		}
	}
	for _, path := range []string{"/static/0000/console.css", "/static/console.css", "/static/", Asset("console.css") + "x",
		strings.Replace(Asset("console.css"), "console.css", "../console.go", 1)} {
		if w := get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if data, _ := File("console.css"); len(data) > 10<<10 {
		t.Errorf("the style sheet has %d bytes", len(data))
	}
	for _, name := range []string{"console.css", "console.js"} {
		if data, _ := File(name); regexp.MustCompile(`https?://|url\(|innerHTML =|eval\(|insertAdjacent`).Match(data) {
			t.Errorf("%s loads something else, or makes markup of text", name)
		}
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{5 * time.Microsecond: "5 µs", 12 * time.Millisecond: "12 ms",
		2500 * time.Millisecond: "2.5 s", 59 * time.Second: "59 s", 125 * time.Second: "2 min 5 s", time.Hour: "1 h",
		50 * time.Hour: "2 d 2 h", -time.Second: "–"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 bytes", 1536: "1.5 KiB", 3 << 30: "3.0 GiB"} {
		if got, err := formatBytes(n); got != want || err != nil {
			t.Errorf("%d: %q, %v", n, got, err)
		}
	}
	if _, err := formatBytes("x"); err == nil {
		t.Error("a text is a number of bytes")
	}
	if got := formatDigest(`"><b>0123456789abcdef`); strings.Contains(string(got), "<b>") {
		t.Errorf("%s", got)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	if got := formatTime(at); got != `<time datetime="2026-01-02T02:04:05Z" data-local>2026-01-02 02:04:05 UTC</time>` ||
		formatTime(time.Time{}) != "–" {
		t.Errorf("%s", got)
	}
}
