package tui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// noon is the time in these tests.
var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// sum returns a digest for test data.
func sum(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func shown(s string) bailey.Shown { return bailey.Shown{Text: s} }

// push returns a question with a value in every field.
func push(id, branch string, asked time.Time) Question {
	q := Question{
		Agent: "claude", Given: " branch=" + branch + " repo=.", Waits: true,
		Question: bailey.Question{
			ID: bailey.ApprovalID(id), Receipt: "r-06h06hbx3tngz3vfz8mqcwek7w", Principal: bailey.Principal{Agent: "claude", Person: "ada", Roles: []string{"dev"}}, Session: "s-06h06hbx3v2xvyrd80h82fz0rc",
			Call: "git.push", Manifest: sum("manifest"), Impact: "mutating, irreversible",
			Inputs:   []bailey.Input{{Name: "branch", Shown: shown(`"` + branch + `"`)}, {Name: "repo", Shown: shown(`"."`)}},
			Resource: bailey.Target{Kind: "local"}, Argv: []bailey.Shown{shown("git"), shown("push"), shown("origin"), shown(branch)},
			Dir: shown("/home/ada/project"), Contents: bailey.NotBound,
			Files:   []bailey.FrozenFile{{Input: "notes", Size: 812}},
			Preview: bailey.Preview{Argv: []bailey.Shown{shown("git"), shown("log"), shown("--oneline")}, Output: shown("4c1f9d2 parser: refuse a second key\n\tby Ada\n")},
			Leases:  []bailey.LeaseScope{{Name: "forge", Env: "GIT_TOKEN", Adapter: "file", Scope: "push to project", TTL: 15 * time.Minute}},
			Binary:  shown("/usr/bin/git"), BinaryDigest: sum("git"), Cage: "full", Plan: shown(sum("plan")), EnvNames: []string{"HOME", "PATH"},
			Rules: []bailey.Rule{{ID: "main-asks", Source: "push.cedar:3", Digest: sum("rule"), Reason: "what is pushed to main is released", Role: "release", Level: bailey.SignedSoftware, Count: 2, TTL: 10 * time.Minute}},
			Nonce: sum("nonce")[:32], AskedAt: asked, Expires: asked.Add(10 * time.Minute), Text: "bailey approval 1\nquestion \"" + id + "\"\nend\n", Digest: sum(id),
			Alike: "push " + branch,
		},
	}
	return q
}

// world is a gateway that executes every request and records it.
type world struct {
	questions []Question
	past      *Question // in the ledger
	killed    string
	fault     error
	done      []string
}

func (w *world) Now(context.Context) (Now, error) {
	calls := []Call{{Receipt: "r-06h06jz1c4m8n2q6s0v3x7b5dg", Capability: "make.run", Agent: "claude", Door: "mcp", Session: "s-06h06hbx3v2xvyrd80h82fz0rc", Since: noon.Add(-83 * time.Second)}}
	return Now{Questions: slices.Clone(w.questions), Calls: calls, Killed: w.killed}, w.fault
}

func (w *world) Question(_ context.Context, id bailey.ApprovalID) (Question, error) {
	for _, q := range w.questions {
		if q.ID == id {
			return q, nil
		}
	}
	return Question{}, &bailey.Error{Kind: bailey.NotFound, Message: "no question " + string(id) + " is open", Hint: "look anew"}
}

func (w *world) Before(_ context.Context, q Question) (*Question, error) {
	if w.past == nil || w.past.ID == q.ID {
		return nil, nil
	}
	return w.past, nil
}

func (w *world) Receipts(_ context.Context, words string, before uint64) (Receipts, error) {
	if strings.Contains(words, "bad=") {
		return Receipts{}, &bailey.Error{Kind: bailey.Invalid, Message: "unknown search term bad", Hint: "say another"}
	}
	page := Receipts{Next: before + 3}
	for n, r := range []Receipt{
		{Capability: "git.commit", Status: "ok", Why: "project-writes"}, {Capability: "git.push", Status: "denied", Why: "not on a Friday"},
		{Capability: "git.status", Status: "ok", Why: "look"},
	} {
		r.ID, r.Agent, r.Started = bailey.ReceiptID(fmt.Sprintf("r-06h06hbx3tngz3vfz8mqcwek%dw", int(before)+n)), "claude", noon.Add(-time.Duration(int(before)+n)*time.Minute)
		page.Rows = append(page.Rows, r)
	}
	return page, nil
}

func (w *world) Receipt(_ context.Context, id bailey.ReceiptID) ([]string, error) {
	return []string{"{", `  "receipt": "` + string(id) + `",`, `  "capability": "git.commit",`, `  "outcome": "ok"`, "}"}, nil
}

func (w *world) Verify(context.Context) (Verdict, error) {
	return Verdict{OK: true, Lines: []string{"ok: 412 entries, 96 calls (1 open)", "not proved: no witness was named: anyone with the log's key can sign other entries in place of these"}}, nil
}

func (w *world) Grants(context.Context) ([]Grant, error) {
	return []Grant{{ID: "g-06h06k2a0d3w6y8p1r5t7v9x0b", Capability: "git.commit", Agent: "claude", Person: "ada", Rules: []string{"commits-ask"}, Until: noon.Add(time.Hour), By: "ada", Level: bailey.SignedTouch}}, nil
}

func (w *world) did(s string) (string, error) { w.done = append(w.done, s); return "done: " + s, nil }

func (w *world) Grant(_ context.Context, q Question, signature string) (string, error) {
	return w.did(strings.TrimSpace("grant " + string(q.ID) + " " + signature))
}

func (w *world) Deny(_ context.Context, id bailey.ApprovalID, reason string) (string, error) {
	return w.did(strings.TrimSpace("deny " + string(id) + " " + reason))
}

func (w *world) Revoke(_ context.Context, id bailey.GrantID) (string, error) {
	return w.did("revoke " + string(id))
}

func (w *world) Kill(_ context.Context, reason string) (string, error) {
	w.killed = "everything is stopped since 2026-11-03T12:00:00Z by ada: " + reason + "; run bailey resume to allow calls again"
	_, err := w.did("kill " + reason)
	return "stopped: 1 call ended", err
}

func (w *world) Resume(context.Context) (string, error) { w.killed = ""; return w.did("resume") }
func (w *world) Wake(context.Context) error             { w.fault = nil; _, err := w.did("wake"); return err }

// table is a model with its world, a clock that tests set, and the output to the terminal other than the screen.
type table struct {
	*world
	m     *Model
	at    time.Time
	bells int
	quit  bool
}

func sit(t *testing.T, change func(*Config), questions ...Question) *table {
	t.Helper()
	s := &table{world: &world{questions: questions}, at: noon}
	c := Config{Look: s.world, Hand: s.world, Clock: func() time.Time { return s.at }, Every: -1}
	if change != nil {
		change(&c)
	}
	s.m = New(t.Context(), c)
	s.m.lend = func(run tea.ExecCommand, then tea.ExecCallback) tea.Cmd {
		return func() tea.Msg { return then(run.Run()) }
	}
	s.run(s.m.Init())
	return s
}

// run runs a command and everything that results from it.
func (s *table) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		for _, c := range msg {
			s.run(c)
		}
	case tea.RawMsg:
		s.bells++
	case tea.QuitMsg:
		s.quit = true
	default:
		_, next := s.m.Update(msg)
		s.run(next)
	}
}

// keys presses keys, one second apart.
func (s *table) keys(names ...string) {
	for _, name := range names {
		s.at = s.at.Add(time.Second)
		s.key(name)
	}
}

func (s *table) key(name string) { _, cmd := s.m.Update(press(name)); s.run(cmd) }

// press returns the message of a key.
func press(name string) tea.KeyPressMsg {
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "left": tea.KeyLeft, "right": tea.KeyRight, "up": tea.KeyUp, "down": tea.KeyDown,
		"pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd, "backspace": tea.KeyBackspace, "space": tea.KeySpace}
	if code, ok := codes[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	if c, ok := strings.CutPrefix(name, "ctrl+"); ok {
		return tea.KeyPressMsg{Code: rune(c[0]), Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

func (s *table) tick() { s.run(s.m.queryRegularly()) }

func (s *table) size(w, h int) { s.m.Update(tea.WindowSizeMsg{Width: w, Height: h}) }

func (s *table) view() string { return s.m.View().Content }

func (s *table) want(t *testing.T, done ...string) {
	t.Helper()
	if !slices.Equal(s.done, done) {
		t.Errorf("did %q, want %q", s.done, done)
	}
}

// TestGrantTakesYes checks that neither Enter alone nor Escape grants. Only y, or a move to Yes and then Enter, may
// grant.
func TestGrantTakesYes(t *testing.T) {
	for name, c := range map[string]struct {
		keys []string
		done []string
	}{
		"enter":                  {[]string{"enter"}, nil},
		"escape":                 {[]string{"esc"}, nil},
		"moved and escape":       {[]string{"right", "esc"}, nil},
		"there and back":         {[]string{"right", "left", "enter"}, nil},
		"no":                     {[]string{"n"}, nil},
		"another key":            {[]string{"x", "space", "down", "g", "esc"}, nil},
		"leaving":                {[]string{"ctrl+c"}, nil},
		"moved and enter":        {[]string{"right", "enter"}, []string{"grant a-1"}},
		"tab and enter":          {[]string{"tab", "enter"}, []string{"grant a-1"}},
		"the letter":             {[]string{"y"}, []string{"grant a-1"}},
		"enter, and once more y": {[]string{"enter", "y"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := sit(t, nil, push("a-1", "main", noon))
			s.keys(append([]string{"enter", "g"}, c.keys...)...)
			s.want(t, c.done...)
		})
	}
}

// TestTooEarly checks that a key has no effect within 300 ms of a dialog's opening, or of another key that came too
// early.
func TestTooEarly(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon))
	s.keys("enter", "g")
	for range 20 {
		for _, name := range []string{"y", "right", "enter", "esc"} {
			s.at = s.at.Add(quiet - time.Millisecond)
			s.key(name)
		}
	}
	if s.want(t); s.m.dialog == nil || s.m.dialog.yes {
		t.Fatal("what came too early was heard")
	}
	s.at = s.at.Add(quiet)
	s.key("y")
	s.want(t, "grant a-1")
}

// TestPasteAnswersNothing checks that a dialog ignores pasted text.
func TestPasteAnswersNothing(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon))
	s.keys("enter", "g")
	s.at = s.at.Add(time.Second)
	_, cmd := s.m.Update(tea.PasteMsg{Content: "y\n"})
	s.run(cmd)
	s.want(t)
}

// TestNewQuestion checks that if a question arrives, the bell rings once and the question is announced. The visible
// screen must stay.
func TestNewQuestion(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon), push("a-2", "side", noon.Add(-time.Minute)))
	if s.bells != 0 {
		t.Error("rang for what was there already")
	}
	s.keys("down")
	on := s.m.inbox.on
	s.questions = append(s.questions, push("a-3", "other", noon.Add(time.Minute)))
	s.tick()
	s.tick()
	if s.bells != 1 || !strings.Contains(s.view(), "new: git.push by claude") || len(s.m.over) != 0 || s.m.dialog != nil || s.m.inbox.on != on {
		t.Errorf("%d bells, over %v, on %s:\n%s", s.bells, s.m.over, s.m.inbox.on, s.view())
	}
	s.keys("enter")
	s.questions = append(s.questions, push("a-4", "fourth", noon.Add(2*time.Minute)))
	s.tick()
	if q, ok := s.m.topScreen().(*questionScreen); !ok || q.q.ID != "a-2" || s.bells != 2 {
		t.Errorf("%d bells, in front is %v", s.bells, s.m.topScreen())
	}
}

// TestNothingOpensBehindADialog checks that a screen that was requested before a dialog opened does not appear behind
// it. The visible question must be the one that is answered.
func TestNothingOpensBehindADialog(t *testing.T) {
	for name, open := range map[string]string{"dialog": "g", "prompt": "d"} {
		t.Run(name, func(t *testing.T) {
			s := sit(t, nil, push("a-1", "main", noon.Add(-time.Minute)), push("a-2", "main", noon))
			s.keys("enter")
			_, slow := s.m.Update(press("[")) // to a-1, which the gateway is slow to return
			s.keys(open)
			s.run(slow)
			if q, ok := s.m.topScreen().(*questionScreen); !ok || q.q.ID != "a-2" || s.m.dialog == nil && s.m.prompt == nil {
				t.Fatalf("in front is %v", s.m.topScreen())
			}
			s.keys("esc")
			if s.keys("["); string(s.m.topScreen().(*questionScreen).q.ID) != "a-1" {
				t.Error("it cannot be opened any more")
			}
			s.want(t)
		})
	}
}

// TestGone checks that a question that has ended cannot be answered, even if its dialog is open.
func TestGone(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon))
	s.keys("enter")
	s.questions = nil
	s.tick()
	s.keys("g", "y", "d", "enter", "y")
	s.want(t)
	if !strings.Contains(s.view(), "no longer open") {
		t.Error(s.view())
	}
}

// TestSentOnce checks that if an answer is being sent, it is not sent again.
func TestSentOnce(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon))
	s.keys("enter", "g")
	s.at = s.at.Add(time.Second)
	_, under := s.m.Update(press("y")) // not executed yet
	s.keys("g", "y", "d", "enter", "y")
	s.run(under)
	s.want(t, "grant a-1")
}

// TestSigned checks that if a key is set, the answer carries its signature. If signing fails, no answer may be sent.
func TestSigned(t *testing.T) {
	fail := error(nil)
	signs := func(c *Config) {
		c.Key, c.Sign = "ada", func(_ context.Context, text string) (string, error) {
			return fmt.Sprintf("signed(%d)", len(text)), fail
		}
	}
	s := sit(t, signs, push("a-1", "main", noon))
	fail = &bailey.Error{Kind: bailey.Unavailable, Message: "ssh-keygen could not sign", Hint: "see what it says"}
	s.keys("enter", "g", "y")
	if s.want(t); !strings.Contains(s.view(), "ssh-keygen could not sign; see what it says") {
		t.Error(s.view())
	}
	fail = nil
	s.keys("g", "y")
	s.want(t, fmt.Sprintf("grant a-1 signed(%d)", len(push("a-1", "main", noon).Text)))
}

// TestOtherActs checks that deny, revoke, stop and resume ask first and then do exactly that.
func TestOtherActs(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon))
	s.keys("enter", "d", "n", "o", "enter", "enter") // the reason, then Enter on No
	s.keys("d", "n", "o", "esc", "d", "x", "backspace", "n", "o", "!", "enter", "y")
	s.keys("4", "x", "enter", "x", "y")
	s.keys("!", "o", "f", "f", "enter", "esc", "!", "o", "f", "f", "enter", "y")
	s.keys("5", "u", "enter", "u", "y")
	s.want(t, "deny a-1 no!", "revoke g-06h06k2a0d3w6y8p1r5t7v9x0b", "kill off", "resume")
	s.fault = bailey.Unavailable
	s.tick()
	s.keys("r")
	if s.done[len(s.done)-1] != "wake" || s.m.fault != nil {
		t.Errorf("%q, %v", s.done, s.m.fault)
	}
}

// TestAlike checks that similar questions are one row that shows the newest, and that the keys step through them from
// there.
func TestAlike(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon.Add(-2*time.Minute)), push("a-2", "side", noon.Add(-time.Minute)), push("a-3", "main", noon))
	if v := s.view(); !strings.Contains(v, "git.push ×2") || strings.Contains(v, "a-1") || !strings.Contains(v, "a-3") {
		t.Error(v)
	}
	for _, c := range []struct{ key, id string }{{"enter", "a-3"}, {"[", "a-1"}, {"[", "a-1"}, {"]", "a-3"}, {"]", "a-3"}} {
		s.keys(c.key)
		if q, ok := s.m.topScreen().(*questionScreen); !ok || string(q.q.ID) != c.id || len(s.m.over) != 1 {
			t.Errorf("after %s: %v", c.key, s.m.topScreen())
		}
	}
}

// TestSinceTheLast checks that the differences from the previous similar question are shown, even if that has ended.
func TestSinceTheLast(t *testing.T) {
	s := sit(t, nil, push("a-1", "side", noon.Add(-time.Minute)), push("a-2", "main", noon))
	want := func(words ...string) {
		t.Helper()
		s.size(100, 80)
		for _, word := range words {
			if !strings.Contains(s.view(), word) {
				t.Errorf("%q is missing:\n%s", word, s.view())
			}
		}
	}
	s.keys("enter")
	want("Since the last question about it, a-1:", "- argument 3: side", "+ argument 3: main", `+ input: branch = "main"`)
	if strings.Contains(s.view(), "- argument 2") {
		t.Error("what stayed is said to differ")
	}
	s.keys("esc")
	s.questions = []Question{push("a-3", "main", noon.Add(time.Minute))}
	s.tick()
	s.keys("enter")
	want("Since the last question about it, a-2:", "only the time")
	s.keys("esc")
	other := push("a-4", "main", noon.Add(2*time.Minute))
	other.Agent = "codex"
	s.questions = []Question{other}
	old := push("a-0", "old", noon.Add(-time.Hour))
	old.Rules[0].Source = ""
	s.past = &old
	s.tick()
	s.keys("enter")
	want("Since the last question about it, a-0:", "- argument 3: old")
	if strings.Contains(s.view(), "- asked by") {
		t.Error("where a rule stands is no part of what was asked")
	}
}

// TestGranted checks that a granted question that waits for its call cannot be granted again but can be revoked.
func TestGranted(t *testing.T) {
	q := push("a-1", "main", noon)
	q.Waits, q.RunBy = false, noon.Add(5*time.Minute)
	s := sit(t, nil, q)
	if !strings.Contains(s.view(), "approved, runs when its call is repeated") {
		t.Error(s.view())
	}
	s.keys("enter", "g", "y", "right", "enter")
	s.want(t)
	s.keys("d", "enter", "y")
	s.want(t, "deny a-1")
}

// TestReceipts checks paging, searching, a single receipt and the verdict.
func TestReceipts(t *testing.T) {
	s := sit(t, nil)
	see := func(word string, keys ...string) {
		t.Helper()
		if s.keys(keys...); !strings.Contains(s.view(), word) {
			t.Errorf("after %q no %q:\n%s", keys, word, s.view())
		}
	}
	see("not on a Friday", "3")
	see("11:57:00", "n")
	see("12:00:00", "p")
	see("Receipt r-06h06hbx3tngz3vfz8mqcwek1w", "down", "enter")
	see("The ledger is valid", "esc", "v")
	see("search: git", "esc", "/", "g", "i", "t", "enter")
	see("unknown search term bad; say another", "/", "ctrl+u", "b", "a", "d", "=", "enter")
	if s.keys("q"); !s.quit {
		t.Error("q does not leave")
	}
}

// TestUnseenIsSaid checks that if a part of the question was not on the screen, the dialog says so.
func TestUnseenIsSaid(t *testing.T) {
	s := sit(t, nil, push("a-1", "main", noon))
	s.size(80, 24)
	s.view()
	s.keys("enter", "m")
	s.view()
	s.keys("g")
	if !strings.Contains(s.view(), "You have not seen all of it") {
		t.Error(s.view())
	}
	s.keys("esc", "end")
	s.view()
	if s.keys("g"); !strings.Contains(s.view(), "You have not seen all of it") {
		t.Error("who jumped to the end has seen what lies between")
	}
	s.keys("esc", "home")
	for range 20 { // page by page
		s.view()
		s.keys("pgdown")
	}
	if s.keys("g"); strings.Contains(s.view(), "You have not seen") {
		t.Error(s.view())
	}
}
