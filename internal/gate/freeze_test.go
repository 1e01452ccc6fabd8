package gate

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// freezing is a world in which every place is a file with the name of its input.
func freezing(t *testing.T, places ...string) (*world, bailey.Call, *bailey.Question, *[]bailey.Job) {
	w, in, q := previewing(t, same(""))
	for _, p := range places {
		name, path, _ := strings.Cut(p, "=")
		in.Input[name] = path
	}
	var ran []bailey.Job
	w.freeze = func(p bailey.Place) (*bailey.Frozen, error) {
		if strings.HasSuffix(p.Path, "/") || p.Input == "dir" {
			return nil, nil
		}
		return &bailey.Frozen{File: os.Stdin, Size: int64(len(p.Path)), SHA256: bailey.NewSecret("digest of " + p.Path)}, nil
	}
	w.looking = func(_ int, job bailey.Job, _ bailey.Streams) (bailey.Exit, error) {
		w.mu.Lock() // command lines run concurrently
		defer w.mu.Unlock()
		ran = append(ran, job)
		return bailey.Exit{}, nil
	}
	return w, in, q, &ran
}

// TestFilesAreFrozen checks that the files that a call reads are copied before the question, and released with the
// call.
func TestFilesAreFrozen(t *testing.T) {
	w, in, q, looks := freezing(t, "file=/f", "other=/g")
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if len(q.Files) != 2 || q.Files[0].Input != "file" || q.Files[1].Input != "other" || q.Files[0].Size != 7 || q.Files[0].SHA256.Reveal() != "digest of /real/f" || q.Contents != bailey.Bound {
		t.Errorf("%+v, contents %s", q.Files, q.Contents)
	}
	at := func(what string) int { return slices.Index(w.did, what) }
	if at("freeze file") > at("ask") || at("thaw file") < at("run -- hello") || at("thaw other") < 0 {
		t.Errorf("%v", w.did)
	}
	for _, job := range *looks {
		if len(job.Places) != 2 || job.Places[0].Frozen == nil || job.Places[1].Frozen == nil {
			t.Errorf("a preview looks at something else than the call gets: %+v", job.Places)
		}
	}
}

// TestWhatIsNotFrozen checks that directories, files that are written, and files in a directory that the call also
// names are not copied.
func TestWhatIsNotFrozen(t *testing.T) {
	for name, c := range map[string]struct {
		places   []string
		frozen   []string
		contents string
	}{
		"nothing":                  {nil, nil, bailey.NoContents},
		"a directory":              {[]string{"dir=/d"}, nil, bailey.NotBound},
		"a file beside it":         {[]string{"dir=/d", "file=/f"}, []string{"file"}, bailey.NotBound},
		"a file in it":             {[]string{"dir=/d", "file=/d/f"}, nil, bailey.NotBound},
		"a name that begins alike": {[]string{"dir=/d", "file=/dd"}, []string{"file"}, bailey.NotBound},
		"what is written":          {[]string{"dir=/d", "file=/d"}, nil, bailey.NotBound},
		"the same file twice":      {[]string{"file=/f", "other=/f"}, []string{"file", "other"}, bailey.Bound},
	} {
		w, in, q, _ := freezing(t, c.places...)
		if res := w.gate().Do(t.Context(), in); res.Err != nil {
			t.Fatal(name, res.Err)
		}
		var frozen []string
		for _, f := range q.Files {
			frozen = append(frozen, f.Input)
		}
		if !slices.Equal(frozen, c.frozen) || q.Contents != c.contents {
			t.Errorf("%s: frozen %v, contents %s", name, frozen, q.Contents)
		}
	}
}

// TestNotFrozenNotAsked checks that a call ends if a file cannot be copied, and that the copies made before are
// released.
func TestNotFrozenNotAsked(t *testing.T) {
	w, in, _, _ := freezing(t, "file=/f", "other=/g")
	freeze := w.freeze
	w.freeze = func(p bailey.Place) (*bailey.Frozen, error) {
		if p.Input == "other" {
			return nil, errBroken
		}
		return freeze(p)
	}
	res := w.gate().Do(t.Context(), in)
	if !errors.Is(res.Err, errBroken) || w.happened("ask") || !w.happened("thaw file") || w.closed == 0 {
		t.Errorf("%v: %v", res.Err, w.did)
	}
}

// TestNothingIsFrozenUnasked checks that a call without a question reads the current files.
func TestNothingIsFrozenUnasked(t *testing.T) {
	w, in, _, _ := freezing(t, "file=/f")
	w.decide = func(int, bailey.Request) bailey.Decision { return bailey.Decision{Effect: bailey.Allow} }
	if res := w.gate().Do(t.Context(), in); res.Err != nil || w.happened("freeze file") {
		t.Errorf("%v: %v", res.Err, w.did)
	}
}

// TestLentFilesAreLearnt checks that a secret in a lent file is redacted like one in a variable.
func TestLentFilesAreLearnt(t *testing.T) {
	w, in := newWorld(t), call()
	w.lease = bailey.Lease{Files: []bailey.LentFile{{Env: "KEY", Value: bailey.NewSecret("SECRET")}}}
	var got bailey.Lent
	w.run = func(l bailey.Lent, _ bailey.Streams) (bailey.Exit, error) { got = l; return bailey.Exit{}, nil }
	if res := w.gate().Do(t.Context(), in); res.Err != nil || !w.happened("learn") || len(got.Files) != 1 || got.Files[0].Env != "KEY" {
		t.Errorf("%v: %v, %d files", res.Err, w.did, len(got.Files))
	}
}
