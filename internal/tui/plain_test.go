package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"bailey"
)

// reader types lines into a plain screen and reads its output.
type reader struct {
	*world
	in  *io.PipeWriter
	end chan error

	mu    sync.Mutex
	heard bytes.Buffer
	at    time.Time
}

func (r *reader) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard.Write(b)
}

func (r *reader) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard.String()
}

// now advances with each call, so that the code under test never waits.
func (r *reader) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = r.at.Add(quiet)
	return r.at
}

func listen(t *testing.T, change func(*Config), questions ...Question) *reader {
	t.Helper()
	in, typing := io.Pipe()
	r := &reader{world: &world{questions: questions}, in: typing, end: make(chan error, 1), at: noon}
	c := Config{Look: r.world, Hand: r.world, Clock: r.now, Every: time.Hour}
	if change != nil {
		change(&c)
	}
	go func() { r.end <- Plain(t.Context(), c, in, r) }()
	return r
}

// say types lines, ends the input and returns all output.
func (r *reader) say(t *testing.T, lines ...string) string {
	t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(r.in, l+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	r.in.Close()
	if err := <-r.end; err != nil {
		t.Fatal(err)
	}
	return r.text()
}

// TestPlainAnswers checks that only the word yes grants.
func TestPlainAnswers(t *testing.T) {
	for answer, done := range map[string]string{"yes": "grant a-1", "YES ": "grant a-1", "": "", "y": "", "no": "", "approve 1": "", "\x1b": ""} {
		r := listen(t, nil, push("a-1", "main", noon))
		heard := r.say(t, "approve 1", answer)
		if got := strings.Join(r.done, ","); got != done || !strings.Contains(heard, "argument 3: main") {
			t.Errorf("%q did %q:\n%s", answer, got, heard)
		}
	}
	r := listen(t, nil, push("a-1", "main", noon))
	if heard := r.say(t, "approve 1"); len(r.done) != 0 { // the input ends
		t.Errorf("%q:\n%s", r.done, heard)
	}
}

// TestPlainTooSoon checks that a line that was typed before the question is not an answer.
func TestPlainTooSoon(t *testing.T) {
	r := listen(t, func(c *Config) { c.Clock = func() time.Time { return noon } }, push("a-1", "main", noon))
	if heard := r.say(t, "approve 1", "yes"); len(r.done) != 0 || !strings.Contains(heard, "too early") {
		t.Errorf("%q:\n%s", r.done, heard)
	}
}

// TestPlainActs checks every command and its output.
func TestPlainActs(t *testing.T) {
	r := listen(t, nil, push("a-1", "main", noon), push("a-2", "main", noon.Add(time.Second)))
	heard := r.say(t, "list", "show a-2", "deny 1 not today", "yes", "live", "receipts git.push", "more", "receipt r-1", "verify", "grants", "revoke g-1", "yes",
		"stop too much", "yes", "resume", "yes", "wake", "help", "nonsense", "show 9", "receipts bad=1", "quit")
	for _, want := range []string{"Question 2: git.push by claude", "similar: question 1", "digest: " + sum("a-2"), "done: deny a-1 not today", "make.run by claude over mcp", "git.commit: ok", "enter more", "Receipt r-1:",
		"The ledger is valid.", "g-06h06k2a0d3w6y8p1r5t7v9x0b: git.commit to claude", "done: revoke g-1", "stopped: 1 call ended", "done: resume", "Done.", "approve N ", `no command "nonsense"`, `no question "9"`, "Nothing was changed: unknown search term bad; say another"} {
		if !strings.Contains(heard, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.ContainsFunc(heard, func(c rune) bool { return c != '\n' && !unicode.IsGraphic(c) }) || strings.ContainsAny(heard, "─▸") {
		t.Error("something is drawn, or acts on the terminal")
	}
	if t.Failed() {
		t.Log(heard)
	}
}

// TestPlainAnnounces checks that a new question rings once and keeps its number.
func TestPlainAnnounces(t *testing.T) {
	r := listen(t, nil, push("a-1", "main", noon))
	send := func(l string) { io.WriteString(r.in, l+"\n") }
	send("live") // when its answer arrives, nothing is refreshed before the next line
	for !strings.Contains(r.text(), "make.run") {
		time.Sleep(time.Millisecond)
	}
	r.questions = []Question{push("a-2", "side", noon.Add(time.Second))}
	heard := r.say(t, "list", "list", "approve 1")
	if strings.Count(heard, "\a") != 1 || !strings.Contains(heard, "New question 2: git.push by claude branch=side") || len(r.done) != 0 || !strings.Contains(heard, "no question a-1 is open") {
		t.Errorf("%q:\n%s", r.done, heard)
	}
}

// TestPlainYes checks that with Config.Yes the command asks for no confirmation.
func TestPlainYes(t *testing.T) {
	signs := func(c *Config) {
		c.Yes, c.Sign = true, func(_ context.Context, text string) (string, error) { return fmt.Sprint(len(text)), nil }
	}
	r := listen(t, signs, push("a-1", "main", noon))
	if r.say(t, "approve 1"); strings.Join(r.done, "") != fmt.Sprint("grant a-1 ", len(r.questions[0].Text)) {
		t.Errorf("%q", r.done)
	}
	r = listen(t, func(c *Config) {
		c.Yes, c.Sign = true, func(context.Context, string) (string, error) { return "", errors.New("no key") }
	}, push("a-1", "main", noon))
	if heard := r.say(t, "approve 1"); len(r.done) != 0 || !strings.Contains(heard, "no key") {
		t.Errorf("%q:\n%s", r.done, heard)
	}
}

// TestPlainHostile checks that no foreign text acts on the terminal or begins a line.
func TestPlainHostile(t *testing.T) {
	for _, bad := range append(hostile, "x\nQuestion 9: nothing") {
		r := listen(t, func(c *Config) { c.Yes = true }, poisoned(bad))
		heard := r.say(t, "list", "show 1", "approve 1", bad[:min(len(bad), 1)], "receipt "+strings.ReplaceAll(bad, "\n", " "))
		if strings.ContainsFunc(heard, func(c rune) bool {
			return c != '\n' && c != ' ' && (!unicode.IsGraphic(c) || isInvisible(c))
		}) || strings.Contains(heard, "\nQuestion 9") {
			t.Errorf("%q: %q", bad, heard)
		}
	}
}

// TestPlainFault checks that if no gateway answers, this is reported once, and that its return is reported too.
func TestPlainFault(t *testing.T) {
	r := listen(t, func(c *Config) {
		c.Look.(*world).fault = &bailey.Error{Kind: bailey.Unavailable, Message: "no gateway listens"}
	})
	heard := r.say(t, "help", "help", "wake", "live")
	if strings.Count(heard, "no gateway answers: no gateway listens") != 1 || !strings.Contains(heard, "answers again") {
		t.Error(heard)
	}
}

// TestPlainEnds checks a line that is too long, and the end of the context.
func TestPlainEnds(t *testing.T) {
	err := Plain(t.Context(), Config{Look: &world{}, Hand: &world{}}, strings.NewReader(strings.Repeat("x", mostTyped+1)), io.Discard)
	if !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	in, typing := io.Pipe()
	defer typing.Close()
	if err := Plain(ctx, Config{Look: &world{}, Hand: &world{}}, in, io.Discard); err == nil || err.Error() != "enough" {
		t.Error(err)
	}
}
