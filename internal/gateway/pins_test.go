package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// workbench is a runner whose programs a test sets, and a ledger that keeps the notes.
type workbench struct {
	mu       sync.Mutex
	programs []bailey.Program
	started  int
	notes    []string
	full     error
	ended    bailey.SessionID
}

func (w *workbench) Plan(context.Context, bailey.Job) (bailey.Run, error) {
	if len(w.programs) == 0 {
		return nil, errors.New("not planned")
	}
	return &workpiece{workbench: w, cage: bailey.Cage{Kind: "full", Programs: w.programs}}, nil
}

func (w *workbench) EndSession(_ context.Context, id bailey.SessionID) error {
	w.ended = id
	return nil
}

func (w *workbench) note(_ context.Context, kind string, data any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full != nil {
		return w.full
	}
	b, err := json.Marshal(data)
	w.notes = append(w.notes, kind+" "+string(b))
	return err
}

type workpiece struct {
	bailey.PlainRun
	*workbench
	cage bailey.Cage
}

func (p *workpiece) Cage() bailey.Cage { return p.cage }

func (p *workpiece) Close() error { return nil }

func (p *workpiece) Start(context.Context, bailey.Lent, bailey.Streams) (bailey.Exit, error) {
	p.mu.Lock()
	p.started++
	p.mu.Unlock()
	return bailey.Exit{}, nil
}

// roots and theirs return a program of root's and one that other users can write.
func roots(path, digest string) bailey.Program { return bailey.Program{Path: path, SHA256: digest} }

func theirs(path, digest string) bailey.Program {
	return bailey.Program{Path: path, SHA256: digest, Copied: true}
}

// call plans and starts a run, and returns the earlier digests of its programs.
func call(t *testing.T, p *Pins, w *workbench, command string, programs ...bailey.Program) (was string, changed bool) {
	t.Helper()
	w.programs = programs
	run, err := p.Plan(t.Context(), bailey.Job{Command: command})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	before := w.started
	if _, err := run.Start(t.Context(), bailey.Lent{}, bailey.Streams{}); err != nil || w.started != before+1 {
		t.Fatalf("%v, started %d times", err, w.started-before)
	}
	var list []string
	for _, c := range run.Cage().Programs {
		list = append(list, c.Was)
	}
	return strings.Join(list, ","), run.Cage().Changed()
}

// TestPins checks a sequence of calls with changing programs, once with one gateway and once with a new gateway after
// each call.
func TestPins(t *testing.T) {
	for _, anew := range []bool{false, true} {
		w := &workbench{}
		p := NewPins(w, Digests{}, w.note)
		for i, c := range []struct {
			command  string
			programs []bailey.Program
			was      string
			changed  bool
			notes    int // that the call must leave
		}{
			{"git", []bailey.Program{roots("/git", "g1"), roots("/ld", "l1")}, ",", false, 2},
			{"git", []bailey.Program{roots("/git", "g1"), roots("/ld", "l1")}, ",", false, 0},
			{"git", []bailey.Program{roots("/git", "g2"), roots("/ld", "l1")}, "g1,", false, 1}, // root's own: recorded
			{"git", []bailey.Program{roots("/git", "g2"), roots("/ld", "l1")}, ",", false, 0},
			{"tool", []bailey.Program{theirs("/tool", "t1"), roots("/ld", "l1")}, ",", false, 1},
			{"tool", []bailey.Program{theirs("/tool", "t2"), roots("/ld", "l1")}, "t1,", true, 0}, // asked each time
			{"tool", []bailey.Program{theirs("/tool", "t2"), roots("/ld", "l2")}, "t1,l1", true, 1},
			{"tool", []bailey.Program{theirs("/tool", "t1"), roots("/ld", "l2")}, ",", false, 0},
			{"/tool", []bailey.Program{theirs("/tool", "t1")}, "", false, 1},                                   // another name for it
			{"git", []bailey.Program{theirs("/home/git", "g9")}, "g2", true, 0},                                // found before it on the PATH
			{"git", []bailey.Program{roots("/local/git", "g8")}, "", false, 1},                                 // by root
			{"git", []bailey.Program{roots("/local/git", "g8"), theirs("/home/helper", "h1")}, ",g8", true, 0}, // a new helper
			{"git", []bailey.Program{theirs("/local/git", "g8")}, "", false, 0},                                // other owner, same content
			{"git", []bailey.Program{theirs("/local/git", "g7")}, "g8", true, 0},                               // and other content
			// first use is trusted
			{"new", []bailey.Program{theirs("/home/new", "n1"), theirs("/home/lib", "x1")}, ",", false, 2},
			// one of its libraries
			{"new", []bailey.Program{theirs("/home/new", "n1"), theirs("/home/lib", "x2")}, ",x1", true, 0},
			{"new", []bailey.Program{roots("/home/new", "n2"), roots("/home/lib", "x2")}, "n1,x1", false, 2}, // taken over by root
			// first use of both
			{"third", []bailey.Program{roots("/third", "d1"), theirs("/home/other", "o1")}, ",", false, 2},
			// a known program is compared
			{"fourth", []bailey.Program{theirs("/home/fourth", "f1"), theirs("/home/other", "o2")}, ",o1", true, 1},
		} {
			before := len(w.notes)
			if was, changed := call(t, p, w, c.command, c.programs...); was != c.was || changed != c.changed || len(w.notes)-before != c.notes {
				t.Errorf("call %d, anew %v: was %q, changed %v, noted %q; want %q, %v, %d notes", i, anew, was, changed, w.notes[before:], c.was, c.changed, c.notes)
			}
			if anew {
				p = relearn(t, w)
			}
		}
	}
}

// relearn returns the Pins of a gateway that starts and reads the ledger.
func relearn(t *testing.T, w *workbench) *Pins {
	t.Helper()
	var known Digests
	for _, n := range w.notes {
		kind, data, _ := strings.Cut(n, " ")
		var pin apitype.Pin
		var r Repin
		into := map[string]any{PinEvent: &pin, RepinEvent: &r}[kind]
		if err := json.Unmarshal([]byte(data), into); err != nil {
			t.Fatal(err)
		}
		if kind == PinEvent {
			r.Programs = []apitype.Pin{pin}
		}
		known.Keep(r.Programs...)
	}
	return NewPins(w, known, w.note)
}

func TestPinNotes(t *testing.T) {
	w := &workbench{}
	p := NewPins(w, Digests{}, w.note)
	call(t, p, w, "date", theirs("/bin/date", "d1"))
	call(t, p, w, "git", roots("/bin/git", "g1"))
	call(t, p, w, "git", roots("/bin/git", "g2"))
	for i, want := range []string{
		`tool.pin {"path":"/bin/date","sha256":"d1","copied":true,"command":"date"}`,
		`tool.pin {"path":"/bin/git","sha256":"g1","command":"git"}`,
		`tool.pin {"path":"/bin/git","sha256":"g2","was":"g1","command":"git"}`,
	} {
		if w.notes[i] != want {
			t.Errorf("%s, want %s", w.notes[i], want)
		}
	}
}

// TestSelfIsUnchanged checks that the gateway's own program, beside a tool, counts as no change of that tool, and that any
// other program that users can write does.
func TestSelfIsUnchanged(t *testing.T) {
	w := &workbench{}
	p := NewPins(w, Digests{}, w.note)
	p.TrustSelf("/home/u/bailey")
	call(t, p, w, "git", roots("/git", "g1"))
	for _, digest := range []string{"b1", "b2"} {
		if was, changed := call(t, p, w, "git", roots("/git", "g1"), theirs("/home/u/bailey", digest)); changed {
			t.Errorf("%s: %q", digest, was)
		}
	}
	if _, changed := call(t, p, w, "git", roots("/git", "g1"), theirs("/home/u/other", "o1")); !changed {
		t.Error("another program is trusted")
	}
	if _, changed := call(t, p, w, "bailey", theirs("/home/u/bailey", "b3")); !changed {
		t.Error("as the tool of a call it is not compared")
	}
}

// TestUnrecordedPinRunsNothing checks that a program does not run if its digest is not durable.
func TestUnrecordedPinRunsNothing(t *testing.T) {
	w := &workbench{full: errors.New("no space")}
	p := NewPins(w, Digests{}, w.note)
	w.programs = []bailey.Program{roots("/git", "g1")}
	for range 2 {
		run, err := p.Plan(t.Context(), bailey.Job{Command: "git"})
		if err != nil {
			t.Fatal(err)
		}
		exit, err := run.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
		if exit.Code != bailey.NeverRan || bailey.KindOf(err) != bailey.Unavailable || !errors.Is(err, w.full) || w.started != 0 {
			t.Errorf("%+v, %v, started %d", exit, err, w.started)
		}
	}
	w.full = nil
	if was, _ := call(t, p, w, "git", roots("/git", "g2")); was != "" {
		t.Errorf("what was never recorded is compared: %q", was)
	}
}

// TestPlannedBeforeTheFirstRun checks that if two first calls see two contents, one of them is the first and the other
// does not run.
func TestPlannedBeforeTheFirstRun(t *testing.T) {
	w := &workbench{}
	p := NewPins(w, Digests{}, w.note)
	var runs []bailey.Run
	for _, digest := range []string{"t1", "t2"} {
		w.programs = []bailey.Program{theirs("/tool", digest)}
		run, err := p.Plan(t.Context(), bailey.Job{Command: "tool"})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	if _, err := runs[0].Start(t.Context(), bailey.Lent{}, bailey.Streams{}); err != nil {
		t.Error(err)
	}
	if exit, err := runs[1].Start(t.Context(), bailey.Lent{}, bailey.Streams{}); bailey.KindOf(err) != bailey.Conflict || exit.Code != bailey.NeverRan || w.started != 1 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestRepin(t *testing.T) {
	w := &workbench{}
	p := NewPins(w, Digests{}, w.note)
	job := bailey.Job{Command: "tool"}
	call(t, p, w, "tool", theirs("/tool", "t1"), theirs("/lib", "l1"), roots("/ld", "d1"))
	w.programs = []bailey.Program{theirs("/tool", "t2"), theirs("/lib", "l1"), roots("/ld", "d2")}
	shown, err := p.Changes(t.Context(), job)
	if err != nil || len(shown) != 1 || shown[0].Path != "/tool" || shown[0].Was != "t1" || shown[0].SHA256 != "t2" || shown[0].Command != "tool" {
		t.Fatalf("%+v, %v", shown, err)
	}
	w.programs[0] = theirs("/tool", "t3") // changed again while the operator reads
	r := Repin{Capability: "a.tool", Programs: shown, Operator: localapi.Env, Person: "me"}
	if err := p.Repin(t.Context(), job, r); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("what was not shown was accepted: %v", err)
	}
	w.programs[0] = theirs("/tool", "t2")
	w.full = errors.New("no space")
	if err := p.Repin(t.Context(), job, r); !errors.Is(err, w.full) {
		t.Errorf("%v", err)
	}
	if again, _ := p.Changes(t.Context(), job); len(again) != 1 {
		t.Error("what was not recorded was accepted")
	}
	w.full = nil
	if err := p.Repin(t.Context(), job, r); err != nil {
		t.Fatal(err)
	}
	want := `tool.repin {"capability":"a.tool","programs":[{"path":"/tool","sha256":"t2","copied":true,"was":"t1","command":"tool"}],"operator":"env","person":"me"}`
	if got := w.notes[len(w.notes)-1]; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := p.Repin(t.Context(), job, Repin{Capability: "a.tool"}); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("a repin of nothing: %v", err)
	}
	for _, pins := range []*Pins{p, relearn(t, w)} {
		if left, err := pins.Changes(t.Context(), job); err != nil || len(left) != 0 {
			t.Errorf("%+v, %v", left, err)
		}
	}
	if was, changed := call(t, p, w, "tool", w.programs...); was != ",,d1" || changed {
		t.Errorf("%q, %v", was, changed)
	}
}

func TestPinsTogether(t *testing.T) {
	w := &workbench{programs: []bailey.Program{theirs("/tool", "t1"), roots("/ld", "d1")}}
	p := NewPins(w, Digests{}, w.note)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			run, err := p.Plan(t.Context(), bailey.Job{Command: fmt.Sprint("tool", i%2)})
			if err == nil {
				_, err = run.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if w.started != 32 || len(w.notes) != 3 { // two names for one tool, and the loader
		t.Errorf("started %d times, noted %q", w.started, w.notes)
	}
	if p.EndSession(t.Context(), "s-1"); w.ended != "s-1" {
		t.Error("the runner does not learn of a session's end")
	}
}
