package modelwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// fuzzPaths are endpoints of every kind.
var fuzzPaths = []string{"/v1/messages", "/v1/messages/batches", "/v1/responses", "/v1/chat/completions", "/v1/embeddings",
	"/v1beta/models/g:generateContent", "/v1beta/models/g:countTokens"}

// FuzzRequest checks that any body is refused or edited to valid JSON, that only strings change, and that a body is
// stable: a second edit changes nothing, and so does a cache.
func FuzzRequest(f *testing.F) {
	files, err := filepath.Glob("testdata/requests/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for i, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(text), "\n")
		in, _ := expand(body)
		f.Add([]byte(in), byte(i))
	}
	f.Add([]byte(`{"messages":[{"role":"user","content":"\ud83d hunter2 \u0000"}]}`), byte(0))
	f.Fuzz(func(t *testing.T, body []byte, which byte) {
		e := recognised(t, "POST", fuzzPaths[int(which)%len(fuzzPaths)])
		same, _, err := Edit(e, body, func(_ Where, s string) string { return s })
		if err != nil {
			return
		}
		if !bytes.Equal(same, body) {
			t.Fatalf("%q became %q without an edit", body, same)
		}
		out, _, err := Edit(e, body, hide)
		if err != nil || len(bytes.TrimSpace(body)) > 0 && !json.Valid(out) {
			t.Fatalf("%q became %q, %v", body, out, err)
		}
		cache := NewCache(1 << 20)
		for range 2 {
			if cached, _, err := cache.Edit(e, 0, body, hide); err != nil || !bytes.Equal(cached, out) {
				t.Fatalf("%q became %q with a cache, %q without; %v", body, cached, out, err)
			}
		}
		if again, _, err := Edit(e, out, hide); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q became %q, and then %q; %v", body, out, again, err)
		}
		Restore(e, body, show)
	})
}

// FuzzStream checks that any stream gives the same result however it is cut, and that nothing is lost if nothing is
// restored.
func FuzzStream(f *testing.F) {
	dialects := []Dialect{Anthropic, OpenAIResponses, OpenAIChat, Gemini}
	a := answer{cutText(sampleText, 6, 20), cutText(sampleArgs, 20, 80), cutText(sampleCustom, 22, 40)}
	for i, d := range dialects {
		f.Add([]byte(streams[d](a)), byte(i), byte(7))
		f.Add([]byte(strange(streams[d](a))), byte(i), byte(1))
	}
	f.Add([]byte(arrayOf(geminiStream(a))), byte(4), byte(3))
	f.Fuzz(func(t *testing.T, in []byte, which, size byte) {
		e := endpointOf(dialects[int(which)%len(dialects)])
		if which%5 == 4 {
			e = Endpoint{Dialect: Gemini, Operation: Generate, Array: true}
		}
		same := func(what string, editor, without Editor, size int) {
			t.Helper()
			want, usage, refused := tryPieces(e, string(in), len(in)+1, without)
			got, u, err := tryPieces(e, string(in), size, editor)
			// A stream that is refused, for example because a call has two names, is refused however it is cut.
			if got != want || !reflect.DeepEqual(u, usage) || (err == nil) != (refused == nil) {
				t.Fatalf("%s\n got %q, %v\nwant %q, %v", what, got, err, want, refused)
			}
			if err != nil && !errors.Is(err, ErrUnreadable) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		same("in pieces", shower{}, shower{}, 1+int(size))
		table := tableEditor{secretTable(t)}
		same("without reading repeated events", table, plainEditor{table}, 1+int(size))
		if plain, _, err := tryPieces(e, string(in), 1+int(size), silent{}); err == nil && plain != string(in) {
			t.Fatalf("without an editor\n got %q\nwant %q", plain, in)
		}
	})
}

// silent is an editor that wants no text.
type silent struct{ tokenless }

func (silent) Writer(Where, io.Writer) io.WriteCloser { return nil }
