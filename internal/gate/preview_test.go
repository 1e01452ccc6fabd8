package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// previewing is a world with a question about t.put, which has a preview of two command lines.
func previewing(t *testing.T, show func(n int, job bailey.Job) string) (*world, bailey.Call, *bailey.Question) {
	w, in, q := newWorld(t), call(), &bailey.Question{}
	ask(w)
	in.Capability = "t.put"
	given := w.answer
	w.answer = func(asked bailey.Question) bailey.Answer { *q = asked; return given(asked) }
	w.looking = func(n int, job bailey.Job, s bailey.Streams) (bailey.Exit, error) {
		io.WriteString(s.Stdout, show(n, job))
		io.WriteString(s.Stderr, "what the agent must not read")
		return bailey.Exit{}, nil
	}
	return w, in, q
}

func same(string) func(int, bailey.Job) string {
	return func(_ int, job bailey.Job) string { return "would " + job.Args[len(job.Args)-1] }
}

// TestPreviewIsAsked checks that the question contains the output of the preview, and that the preview runs again
// between the last decision and the run.
func TestPreviewIsAsked(t *testing.T) {
	w, in, q := previewing(t, same(""))
	in.Input["dir"], in.Input["file"] = "/d", "/f"
	res := w.gate().Do(t.Context(), in)
	want := []string{"intent", "restore", "place /d", "place /f", "plan", "decide", "pre", "plan", "plan", "run --look /real/f", "run --look hello", "ask", "decide", "decide",
		"plan", "plan", "run --look /real/f", "run --look hello", "take", "lend", "run -- hello", "post", "outcome"}
	for _, from := range []int{7, 14} { // command lines run concurrently
		slices.Sort(w.did[from : from+4])
	}
	if res.Err != nil || !slices.Equal(w.did, want) {
		t.Fatalf("%v\ndid  %q\nwant %q", res.Err, w.did, want)
	}
	if got := q.Preview.Output.Text; got != "[1/2: 11 bytes]\nwould hello[2/2: 13 bytes]\nwould /real/f" || got != q.Preview.Output.Value.Reveal() {
		t.Errorf("the output is %q", got)
	}
	var argv []string
	for _, a := range q.Preview.Argv {
		argv = append(argv, a.Text)
	}
	if !slices.Equal(argv, []string{"put", "--look", "hello", "put", "--look", "/real/f"}) || q.Contents != bailey.NotBound {
		t.Errorf("%q, contents %s", argv, q.Contents)
	}
	if strings.Contains(string(res.Stdout), "would") || w.closed < 5 {
		t.Errorf("the caller got %q; %d runs were closed", res.Stdout, w.closed)
	}
}

// TestPreviewOnlyLooks checks that a preview gets no credentials and cannot write to any place.
func TestPreviewOnlyLooks(t *testing.T) {
	w, in, _ := previewing(t, nil)
	in.Input["dir"] = "/d"
	w.looking = func(_ int, job bailey.Job, _ bailey.Streams) (bailey.Exit, error) {
		if len(job.Places) != 1 || job.Places[0].Write || len(job.EnvNames)+len(job.FileNames) > 0 || job.TTY || job.Session != "s-1" {
			t.Errorf("no mere look: %+v", job)
		}
		return bailey.Exit{}, nil
	}
	if res := w.gate().Do(t.Context(), in); res.Err != nil || w.looked != 4 {
		t.Errorf("%v, %d looks", res.Err, w.looked)
	}
}

// TestPreviewChanged checks that a call does not run and gets no credentials if its preview has changed since it was
// shown.
func TestPreviewChanged(t *testing.T) {
	for name, later := range map[string]func(s bailey.Streams) (bailey.Exit, error){
		"another output": func(s bailey.Streams) (bailey.Exit, error) {
			io.WriteString(s.Stdout, "evil")
			return bailey.Exit{}, nil
		},
		"a failure": func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{Code: 1}, nil },
		"an error":  func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{}, errBroken },
		"nothing":   func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{}, nil },
		"far behind": func(s bailey.Streams) (bailey.Exit, error) {
			io.WriteString(s.Stdout, strings.Repeat("x", 1<<20)+"evil")
			return bailey.Exit{}, nil
		},
		"more behind": func(s bailey.Streams) (bailey.Exit, error) {
			io.WriteString(s.Stdout, strings.Repeat("x", 1<<20)+"likeX")
			return bailey.Exit{}, nil
		},
	} {
		w, in, _ := previewing(t, nil)
		w.looking = func(n int, _ bailey.Job, s bailey.Streams) (bailey.Exit, error) {
			if n > 2 {
				return later(s)
			}
			io.WriteString(s.Stdout, strings.Repeat("x", 1<<20)+"like")
			return bailey.Exit{}, nil
		}
		res := w.gate().Do(t.Context(), in)
		if !errors.Is(res.Err, bailey.Conflict) || !strings.Contains(res.Err.Error(), "changed since the approval") || !strings.Contains(bailey.HintOf(res.Err), "call again") {
			t.Errorf("%s: %v (%s)", name, res.Err, bailey.HintOf(res.Err))
		}
		if w.happened("lend") || w.happened("run -- hello") || *w.one().Executed {
			t.Errorf("%s: it ran: %v", name, w.did)
		}
	}
}

// TestPreviewNotShown checks that no question is asked if the preview fails, and that the agent learns only that.
func TestPreviewNotShown(t *testing.T) {
	for name, set := range map[string]func(w *world){
		"an exit code": func(w *world) {
			w.looking = func(_ int, _ bailey.Job, s bailey.Streams) (bailey.Exit, error) {
				io.WriteString(s.Stderr, "what the agent must not read")
				return bailey.Exit{Code: 128}, nil
			}
		},
		"its time": func(w *world) {
			w.looking = func(int, bailey.Job, bailey.Streams) (bailey.Exit, error) {
				return bailey.Exit{Code: 143, TimedOut: true}, nil
			}
		},
		"its memory": func(w *world) {
			w.looking = func(int, bailey.Job, bailey.Streams) (bailey.Exit, error) { return bailey.Exit{Over: "too much"}, nil }
		},
		"no start": func(w *world) {
			w.looking = func(int, bailey.Job, bailey.Streams) (bailey.Exit, error) { return bailey.Exit{}, errBroken }
		},
		"a changed program": func(w *world) { w.changed = true },
		"a panic": func(w *world) {
			w.looking = func(int, bailey.Job, bailey.Streams) (bailey.Exit, error) { panic("boom") }
		},
	} {
		w, in, _ := previewing(t, same(""))
		set(w)
		res := w.gate().Do(t.Context(), in)
		if !errors.Is(res.Err, bailey.Denied) || w.happened("ask") || w.happened("run -- hello") || !strings.Contains(res.Err.Error(), "cannot show what this call would do") {
			t.Errorf("%s: %v, %v", name, res.Err, w.did)
		}
		if strings.Contains(fmt.Sprint(res.Err, w.outcomes), "must not read") {
			t.Errorf("%s: the agent read what nobody had allowed: %v", name, res.Err)
		}
	}
}

// TestNoPreviewWithoutAQuestion checks that no preview runs if the call is allowed, denied or a dry run.
func TestNoPreviewWithoutAQuestion(t *testing.T) {
	for name, set := range map[string]func(*world, *bailey.Call){
		"allowed": func(w *world, _ *bailey.Call) {
			w.decide = func(int, bailey.Request) bailey.Decision { return bailey.Decision{Effect: bailey.Allow} }
		},
		"denied": func(w *world, _ *bailey.Call) {
			w.decide = func(int, bailey.Request) (d bailey.Decision) { return }
		},
		"dry": func(_ *world, in *bailey.Call) { in.DryRun = true },
	} {
		w, in, _ := previewing(t, same(""))
		set(w, &in)
		w.gate().Do(t.Context(), in)
		if w.looked > 0 {
			t.Errorf("%s: %v", name, w.did)
		}
	}
}

// TestPreviewIsRedacted checks that the text is redacted and that the bound value is not.
func TestPreviewIsRedacted(t *testing.T) {
	w, in, q := previewing(t, func(int, bailey.Job) string { return "a SECRET commit" })
	in.Input["word"] = "SECRET"
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if said := fmt.Sprintf("%+v", *q); strings.Contains(said, "SECRET") || !strings.Contains(q.Preview.Output.Text, "a [R] commit") {
		t.Errorf("%s", said)
	}
	if !strings.Contains(q.Preview.Output.Value.Reveal(), "a SECRET commit") || q.Preview.Argv[2].Value.Reveal() != "SECRET" {
		t.Error("what is bound was redacted")
	}
}

// TestPreviewIsBounded checks that the text fits into a ledger entry even if the preview is longer, and that the
// question binds all of it.
func TestPreviewIsBounded(t *testing.T) {
	for name, unit := range map[string]string{"text": "plain text, ", "lines": "\n", "escapes": "\x1b", "not UTF-8": "\xff", "quotes": `"\`, "wide": "\U0010ffff"} {
		w, in, q := previewing(t, func(_ int, job bailey.Job) string { return strings.Repeat(unit, 1<<20/len(unit)) })
		if res := w.gate().Do(t.Context(), in); res.Err != nil {
			t.Fatal(name, res.Err)
		}
		text, value := q.Preview.Output.Text, q.Preview.Output.Value.Reveal()
		if len(text) > previewShown+100 || len(value) > previewKept+1<<10 || !strings.HasSuffix(text, "[truncated here: the approval covers all of it]") || !strings.Contains(value, "bytes with SHA-256") {
			t.Errorf("%s: %d bytes shown, %d bound: …%.80q", name, len(text), len(value), text[max(0, len(text)-60):])
		}
	}
	if got := clipForQuestion(strings.Repeat("x", previewShown)); len(got) != previewShown {
		t.Error("what fits was cut")
	}
}

// TestFailedPreviewKeepsSecrets checks that the log contains no part of a secret at the position where it is cut, and
// that the agent gets none of the tool's output.
func TestFailedPreviewKeepsSecrets(t *testing.T) {
	w, in, _ := previewing(t, same(""))
	w.looking = func(_ int, _ bailey.Job, s bailey.Streams) (bailey.Exit, error) {
		io.WriteString(s.Stderr, strings.Repeat("x", causeKept-3)+"SECRET of the tool")
		return bailey.Exit{Code: 1}, nil
	}
	var log bytes.Buffer
	g := w.gate()
	g.Log = slog.New(slog.NewTextHandler(&log, nil))
	res := g.Do(t.Context(), in)
	if res.Status != bailey.Refused || res.Executed || strings.Contains(res.Err.Error()+bailey.HintOf(res.Err), "xx") || slices.Contains(w.did, "ask") {
		t.Errorf("%+v after %q", res, w.did)
	}
	if !strings.Contains(log.String(), "xxx") || strings.Contains(log.String(), "SEC") {
		t.Errorf("logged: %s", &log)
	}
}

// TestCutPreviewKeepsSecrets checks that the question contains no part of a secret at the position where a preview is
// cut, and no digest of a text with a secret.
func TestCutPreviewKeepsSecrets(t *testing.T) {
	for _, long := range []int{previewKept / 2, 2 * previewKept} {
		show := strings.Repeat("x", previewKept/2-3) + "SECRET" + strings.Repeat("y", long)
		w, in, q := previewing(t, func(int, bailey.Job) string { return show })
		// the second text has many secrets, whose tokens are shorter
		for _, c := range []string{show, strings.Repeat("SECRET", 6000) + show} {
			show = c
			if res := w.gate().Do(t.Context(), in); res.Err != nil {
				t.Fatal(res.Err)
			}
			if text := q.Preview.Output.Text; strings.Contains(text, "SEC") || !strings.HasPrefix(text, "[1/2: ") {
				t.Errorf("%d: %.200q", long, text)
			}
			whole := newPreviewCapture(previewKept / 2)
			io.WriteString(whole, show)
			if shown := whole.redactedText(func(s string) string { return masked(s).(string) }); strings.Contains(shown, "SEC") || strings.Contains(shown, "SHA") || len(shown) > previewKept/2+40 {
				t.Errorf("%d: %d bytes, %.60q…%q", long, len(shown), shown, shown[len(shown)-60:])
			}
		}
	}
}
