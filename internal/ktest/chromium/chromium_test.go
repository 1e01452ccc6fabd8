package chromium

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(With(m.Run)) }

const head = `<!doctype html><html lang="en"><title>Test</title><meta name="viewport" content="width=device-width">
<main><h1>Test</h1>`

// serve serves a page under a strict policy, and returns its URL.
func serve(t *testing.T, html string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/favicon.ico":
			return
		case r.URL.Path == "/missing":
			w.WriteHeader(http.StatusNotFound)
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, head+html)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestFaults(t *testing.T) {
	t.Parallel()
	p := Open(t)
	for html, want := range map[string]string{
		`<p>quiet</p>`:                              "",
		`<script>alert(1)</script>`:                 "content security policy",
		`<img src="/missing" alt="" onerror="x()">`: "content security policy",
		`<p onclick="x()">text</p>`:                 "content security policy",
	} {
		p.Go(serve(t, html))
		if want != "" {
			for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				if f := strings.Join(p.Faults(), "\n"); strings.Contains(f, want) {
					break
				}
				if time.Now().After(end) {
					t.Errorf("%s: no fault", html)
					break
				}
			}
			continue
		}
		if f := p.Faults(); len(f) > 0 {
			t.Errorf("%s: %q", html, f)
		}
	}
	url := serve(t, "")
	p.Faults()
	if status := p.Go(url + "/missing"); status != http.StatusNotFound {
		t.Errorf("got the status %d", status)
	}
	Eval[bool](p, "(setTimeout(() => alert('from the test'), 0), true)")
	Eval[bool](p, "(console.error('from the test'), true)")
	Eval[bool](p, "new Promise(r => setTimeout(() => r(true), 1))")
	if f := strings.Join(p.Faults(), "\n"); !strings.Contains(f, "dialog: from the test") || !strings.Contains(f, "console: ") ||
		strings.Contains(f, "404") {
		t.Errorf("got %q", f)
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	RequireAxe(t)
	p := Open(t)
	p.Go(serve(t, `<img src="data:,"><input><p style="color: #aaa; background: #fff">pale</p>`))
	broken := map[string]bool{}
	for _, v := range p.Axe() {
		broken[v.ID] = true
	}
	if !broken["image-alt"] || !broken["label"] || !broken["color-contrast"] {
		t.Errorf("axe found %v", broken)
	}
	p.Faults()
	p.Go(serve(t, `<label>Name <input></label> <button>Save</button> <a href="/">Back</a><p>Text</p></main>`))
	p.WantAccessible()
	p.WantKeyboard()
	p.WantNoSideways(375, 2560)
	p.Find("button", "Save").Click()
	p.Find("textbox", "Name").Fill("Ann")
	if got := Eval[string](p, "document.querySelector('input').value"); got != "Ann" {
		t.Errorf("the field has %q", got)
	}
	if picture := p.Picture(); len(picture) < 500 || len(picture) > 20_000 {
		t.Errorf("the picture has %d bytes", len(picture))
	}
	wide := &recorder{TB: t}
	p.t = wide
	p.Go(serve(t, `<div style="width: 900px; height: 1em"></div><a href="/" tabindex="-1">never</a>
<a href="/" style="outline: none">unseen</a>`))
	p.WantNoSideways(375)
	p.WantKeyboard()
	p.t = t
	if got := strings.Join(wide.errors, "\n"); !strings.Contains(got, "of 375 pixels") || !strings.Contains(got, "not visible") {
		t.Errorf("got %s", got)
	}
}

// recorder keeps the errors of a test.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestMajorVersion(t *testing.T) {
	t.Parallel()
	for product, want := range map[string]int{"HeadlessChrome/156.0.8078.108": 156, "Chrome/9": 9, "Chrome": 0, "": 0, "x/y": 0} {
		if got, err := majorVersion(product); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", product, got, err)
		}
	}
}
