// Package console is the pages of the control plane: their layout, their one style sheet, their one script, and the
// templates. It knows nothing of the data: package control passes a view of its own for each page, which embeds a
// [Frame].
//
// A page is pages/NAME.html. It defines the template "content", which gets the view, and can use the parts of
// pages/layout.html and these functions:
//
//	when TIME          a <time>, in UTC; the script makes it local
//	duration DURATION  rounded for people, for example 2 min 5 s
//	bytes N            for example 1.5 MiB
//	digest TEXT        the first characters of a digest, and all of it as the title
//	asset NAME         the URL of a file of the directory static
//
// html/template escapes each value for its place, so a page has no unescaped text of an agent, a host or a person.
// A page works without the script: its links and forms are real, and its lists are complete.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"
)

//go:embed pages static
var files embed.FS

// Frame is what every page has around its content. A view embeds it.
type Frame struct {
	Title string // of the page, also its h1
	// Base is the path of the organisation's pages, /o/ID, or "" if the page is of no organisation.
	Base         string
	Organisation string // its name
	Role         string // of the person in it
	Account      string // the name of the person who is signed in, or ""
	Navigation   []Entry
}

// An Entry is a link of the navigation.
type Entry struct {
	URL, Label string
	Current    bool
	Count      int // of things that wait, or 0
}

// View is a struct that embeds a [Frame].
type View interface{ frameOf() Frame }

func (f Frame) frameOf() Frame { return f }

// Paging has the URLs of the first and the next page of a list, or "". The part "paging" shows it.
type Paging struct{ First, Next string }

// Write writes a page with a status. If the template cannot be executed, nothing is written.
func Write(w http.ResponseWriter, name string, status int, v View) error {
	t, ok := templates()[name]
	if !ok {
		return fmt.Errorf("there is no page %q", name)
	}
	var text bytes.Buffer
	if err := t.ExecuteTemplate(&text, "layout", v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, err := w.Write(text.Bytes())
	return err
}

// templates returns each page with its own copy of the layout, since every page defines "content".
var templates = sync.OnceValue(func() map[string]*template.Template {
	layout := template.Must(template.New("").Funcs(functions).ParseFS(files, "pages/layout.html"))
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err)
	}
	all := map[string]*template.Template{}
	for _, name := range names {
		if page := strings.TrimSuffix(path.Base(name), ".html"); page != "layout" {
			all[page] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
		}
	}
	return all
})

var functions = template.FuncMap{"when": formatTime, "duration": FormatDuration, "bytes": formatBytes, "digest": formatDigest,
	"asset": Asset}

// formatTime writes a time, or a dash if it is zero.
func formatTime(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `" data-local>` + t.Format("2006-01-02 15:04:05") +
		` UTC</time>`)
}

// FormatDuration writes a duration with two units at most.
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return twoUnits(d, time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return twoUnits(d, time.Hour, "h", time.Minute, "min")
	}
	return twoUnits(d, 24*time.Hour, "d", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	if rest := d % large / small; rest > 0 {
		return fmt.Sprintf("%d %s %d %s", d/large, largeName, rest, smallName)
	}
	return fmt.Sprintf("%d %s", d/large, largeName)
}

// FormatBytes writes a number of bytes in binary units.
func FormatBytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	f, units := float64(n)/1024, "KMGTPE"
	for f >= 1024 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", f, units[0])
}

// formatBytes takes an integer of any type.
func formatBytes(n any) (string, error) {
	switch v := reflect.ValueOf(n); {
	case v.CanInt():
		return FormatBytes(v.Int()), nil
	case v.CanUint():
		return FormatBytes(int64(v.Uint())), nil
	}
	return "", fmt.Errorf("%T is not a number of bytes", n)
}

// formatDigest shortens a digest, such as SHA256:… or hexadecimal digits.
func formatDigest(text string) template.HTML {
	short := text
	if runes := []rune(text); len(runes) > 19 {
		short = string(runes[:16]) + "…"
	}
	return template.HTML(`<code class="digest" title="` + template.HTMLEscapeString(text) + `">` +
		template.HTMLEscapeString(short) + `</code>`)
}

// assets are the files of the directory static, with the first part of their URL: the hash of their content, so that a
// browser keeps them for ever and still has the new one after an update.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		sum := sha256.Sum256(data)
		all[strings.TrimPrefix(name, "static/")] = asset{data, hex.EncodeToString(sum[:8]), typeOf(name)}
		return err
	})
	if err != nil {
		panic(err)
	}
	return all
})

type asset struct {
	data        []byte
	hash, types string
}

func typeOf(name string) string {
	switch path.Ext(name) {
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".webmanifest":
		return "application/manifest+json"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// Asset returns the URL of a file of the directory static. It panics if there is none.
func Asset(name string) string {
	a, ok := assets()[name]
	if !ok {
		panic("there is no file static/" + name)
	}
	return "/static/" + a.hash + "/" + name
}

// Manifest returns the manifest with which a browser installs the pages (W3C, Web Application Manifest).
func Manifest() []byte {
	type icon struct {
		Source string `json:"src"`
		Sizes  string `json:"sizes"`
		Type   string `json:"type"`
	}
	text, _ := json.Marshal(struct {
		Name       string `json:"name"`
		ShortName  string `json:"short_name"`
		ID         string `json:"id"`
		Start      string `json:"start_url"`
		Scope      string `json:"scope"`
		Display    string `json:"display"`
		Background string `json:"background_color"`
		Theme      string `json:"theme_color"`
		Icons      []icon `json:"icons"`
	}{"Bailey", "Bailey", "/", "/", "/", "standalone", "#15171b", "#1f5fbf", []icon{
		{Asset("icon-192.png"), "192x192", "image/png"}, {Asset("icon-512.png"), "512x512", "image/png"},
		{Asset("icon.svg"), "any", "image/svg+xml"}}})
	return text
}

// File returns a file of the directory static, and its type.
func File(name string) (data []byte, contentType string) {
	a, ok := assets()[name]
	if !ok {
		panic("there is no file static/" + name)
	}
	return a.data, a.types
}

// Static serves the directory static under the URLs that [Asset] returns.
func Static() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hash, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/static/"), "/")
		a, ok := assets()[name]
		if !ok || hash != a.hash {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("Content-Type", a.types)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.data))
	})
}
