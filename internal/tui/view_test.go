package tui

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"bailey"
	"bailey/internal/ktest"
)

var update = flag.Bool("update", false, "write testdata and docs/tui anew")

// hostile holds text that would act on a terminal, be invisible or look like something else.
var hostile = []string{"\x1b[2J\x1b[H", "\x1b]0;title\a", "\u202egnp.exe", "a\u200bb", "\r\n", "\x00\x7f\u0085\u009b31m", "\xff\xfe", "e\u0301\u0301\u0301\u0301\u0301", "\u2028", "\U000e0041", "\ufe0f", "日本語のブランチ", "👩‍👩‍👧"}

// clean checks that all text is printable except the attributes of this package.
func clean(t *testing.T, screen string) {
	t.Helper()
	for line := range strings.SplitSeq(ansi.Strip(onlySGR(t, screen)), "\n") {
		if strings.ContainsFunc(line, func(r rune) bool {
			return r != ' ' && (!unicode.IsGraphic(r) || isInvisible(r)) || r == unicode.ReplacementChar
		}) {
			t.Errorf("%q stands on the screen", line)
		}
	}
}

// onlySGR checks that every escape sequence only sets attributes.
func onlySGR(t *testing.T, screen string) string {
	t.Helper()
	for rest := screen; ; {
		_, after, found := strings.Cut(rest, "\x1b")
		if !found {
			return screen
		}
		params, ok := strings.CutPrefix(after, "[")
		n := strings.IndexFunc(params, func(r rune) bool { return r != ';' && (r < '0' || r > '9') })
		if !ok || n < 0 || params[n] != 'm' {
			t.Fatalf("an escape that is none of ours: %.20q", after)
		}
		rest = params[n:]
	}
}

// poisoned returns a question in which every foreign text is s.
func poisoned(s string) Question {
	q := push("a-1", "main", noon)
	p := shown(s)
	q.Agent, q.Given, q.Call, q.Impact, q.Contents, q.Session = s, s, bailey.CapabilityID(s), s, s, bailey.SessionID(s)
	q.Principal = bailey.Principal{Agent: s, Person: s, Organisation: s, Roles: []string{s}}
	q.Inputs, q.Argv, q.Dir, q.Binary, q.Plan = []bailey.Input{{Name: s, Shown: p}}, []bailey.Shown{p, p}, p, p, p
	q.Resource, q.Cage, q.EnvNames, q.Preview = bailey.Target{Kind: s, Name: s}, s, []string{s}, bailey.Preview{Argv: []bailey.Shown{p}, Output: shown(s + "\n" + s)}
	q.Files, q.Leases = []bailey.FrozenFile{{Input: s}}, []bailey.LeaseScope{{Name: s, Env: s, Adapter: s, Scope: s}}
	q.Rules = []bailey.Rule{{ID: bailey.RuleID(s), Source: s, Reason: s, Role: s, Level: bailey.Level(s), Digest: s}}
	q.Answers, q.Text = []Answered{{Name: s, Level: bailey.Level(s)}}, s
	return q
}

// TestHostile checks that on every screen, no foreign text acts on the terminal.
func TestHostile(t *testing.T) {
	for _, bad := range hostile {
		t.Run(fmt.Sprintf("%q", bad), func(t *testing.T) {
			s := sit(t, func(c *Config) { c.Color = true }, poisoned(bad))
			s.size(100, 80)
			s.m.now.Calls = []Call{{Receipt: bailey.ReceiptID(bad), Capability: bailey.CapabilityID(bad), Agent: bad, Door: bad, Session: bailey.SessionID(bad)}}
			s.m.now.Walls, s.m.now.Refused = []Wall{{Agent: bad, Project: bad}}, []Refusal{{Agent: bad, Reason: bad, Hint: bad}}
			see := func(keys ...string) {
				t.Helper()
				s.keys(keys...)
				clean(t, s.view())
			}
			see()
			see("2")
			see("1", "enter")
			see("m")
			see("t")
			see("g")
			see("esc")
			s.m.setNotice(bad)
			s.m.receipts = receiptsScreen{loaded: true, words: bad, page: Receipts{Rows: []Receipt{{ID: bailey.ReceiptID(bad), Capability: bailey.CapabilityID(bad), Agent: bad, Status: bad, Why: bad}}}}
			s.m.tab, s.m.over = 2, nil
			see()
			s.m.over = []screen{&textScreen{title: bad, body: []string{bad}}}
			see()
			s.m.over, s.m.tab, s.m.grants = nil, 3, grantsScreen{loaded: true, list: []Grant{{ID: bailey.GrantID(bad), Capability: bailey.CapabilityID(bad), Agent: bad, Rules: []string{bad}, By: bad, Level: bailey.Level(bad)}}}
			see()
			see("x")
			s.m.dialog, s.m.fault = nil, &bailey.Error{Kind: bailey.Internal, Message: bad, Hint: bad}
			see()
			s.m.fault, s.m.now.Killed = nil, bad
			see("5")
		})
	}
}

// TestWhole checks that at any size all of a question can be reached by scrolling.
func TestWhole(t *testing.T) {
	ktest.Long(t)
	long := strings.Repeat("a-very-long-branch/", 40) + "end"
	for _, size := range [][2]int{{100, 30}, {80, 24}, {40, 10}, {20, 5}, {12, 3}} {
		s := sit(t, nil, push("a-1", long, noon))
		s.size(size[0], size[1])
		s.keys("enter", "m")
		var all strings.Builder
		for n := range 4000 {
			s.m.topScreen().(*questionScreen).words.top = n
			for _, line := range s.m.topScreen().renderLines(s.m, size[0], 2)[:1] { // the second line says that there are more
				all.WriteString(ansi.Strip(line) + "\n")
			}
			if s.m.topScreen().(*questionScreen).words.top < n {
				break
			}
		}
		squeezed := squeeze(all.String())
		for _, f := range s.m.topScreen().(*questionScreen).q.allFields(s.m.c.currentTime()) {
			if want := squeeze(escapeText(f.text)); !strings.Contains(squeezed, want) {
				t.Errorf("%v: %s %q is not to be seen", size, f.label, f.text)
			}
		}
	}
}

func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// TestFieldsAreAll checks that the fields show all content of a question.
func TestFieldsAreAll(t *testing.T) {
	q := push("a-1", "main", noon)
	q.Answers = []Answered{{Name: "bob", Level: bailey.SignedTouch}}
	var all strings.Builder
	for _, f := range q.allFields(noon) {
		all.WriteString(f.label + ": " + f.text + "\n")
	}
	for _, want := range []string{"git.push", "claude, for ada, as dev", "irreversible", "git push origin main", "main-asks: what is pushed to main is released", q.Rules[0].Digest, "push.cedar:3",
		"2 answers by different people, each with release, at least signed-software, within 10m", "bob has approved it (signed-touch)", "NOT BOUND", "in 10m (2026-11-03T12:10:00Z)",
		"git log --oneline", "│ 4c1f9d2 parser: refuse a second key", "argument 3: main", `branch = "main"`, "notes: 812 bytes", "/home/ada/project", "local",
		"forge as GIT_TOKEN, from file: push to project, for 15m", "/usr/bin/git " + q.BinaryDigest, "full " + q.Plan.Text, "HOME PATH", q.Manifest, "s-06h06hbx3v2xvyrd80h82fz0rc", "2026-11-03T12:00:00Z", "r-06h06hbx3tngz3vfz8mqcwek7w",
		q.Nonce, "a-1", q.Digest} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%q is not said in\n%s", want, all.String())
		}
	}
}

// scenes are the screens of the golden files and the pictures.
var scenes = []struct {
	name string
	keys []string
}{
	{"inbox", nil},
	{"question", []string{"enter"}},
	{"grant", []string{"enter", "g"}},
	{"live", []string{"2"}},
	{"receipts", []string{"3"}},
	{"receipt", []string{"3", "enter"}},
	{"verified", []string{"3", "v"}},
	{"grants", []string{"4"}},
	{"revoke", []string{"4", "x"}},
	{"stop", spelt("!it deletes what it should not")},
	{"stopped", append(spelt("!it deletes what it should not"), "enter", "y")},
	{"help", []string{"?"}},
}

func spelt(keys string) []string { return strings.Split(keys, "") }

func scene(t *testing.T, color bool, w, h int, keys []string) *table {
	commit := push("a-06h06hbx6r51zer8sh6yy6t81g", "topic", noon.Add(-4*time.Minute))
	commit.Call, commit.Alike, commit.Given, commit.Waits = "git.commit", "commit", ` message="parser: refuse a second key" repo=.`, false
	s := sit(t, func(c *Config) { c.Color = color },
		push("a-06h06hbx6r51zer8sh6yy6t82g", "main", noon.Add(-3*time.Minute)), push("a-06h06hbx6r51zer8sh6yy6t83g", "side", noon.Add(-2*time.Minute)), push("a-06h06hbx6r51zer8sh6yy6t84g", "main", noon.Add(-time.Minute)), commit)
	s.size(w, h)
	s.keys(keys...)
	s.at = noon.Add(10 * time.Second)
	return s
}

// TestRefusedInside checks that a request that an agent in an agent jail was refused is shown, with the flag that would
// allow it, newest first.
func TestRefusedInside(t *testing.T) {
	s := sit(t, func(*Config) {})
	s.size(100, 24)
	s.keys("2")
	s.m.now.Calls = nil
	s.m.now.Walls = []Wall{{Agent: "claude", Project: "/src", Since: noon}}
	s.m.now.Refused = []Refusal{{Agent: "claude", Reason: "an older one", At: noon}, {Agent: "claude", Reason: "egress to a.example:443 is not allowed", Hint: "--egress a.example:443", At: noon}}
	screen := ansi.Strip(s.view())
	for _, want := range []string{"No calls are running.", "claude in the agent jail of /src", "egress to a.example:443 is not allowed", "    --egress a.example:443"} {
		if !strings.Contains(screen, want) {
			t.Errorf("%q is not to be seen:\n%s", want, screen)
		}
	}
	if strings.Index(screen, "a.example") > strings.Index(screen, "an older one") {
		t.Errorf("the newest is not the first:\n%s", screen)
	}
}

// TestGolden compares the text of the screens with golden files at two sizes.
func TestGolden(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 10}} {
		for _, c := range scenes {
			t.Run(fmt.Sprintf("%s %dx%d", c.name, size[0], size[1]), func(t *testing.T) {
				s := scene(t, false, size[0], size[1], c.keys)
				var got strings.Builder
				for line := range strings.SplitSeq(ansi.Strip(s.view()), "\n") {
					got.WriteString(strings.TrimRight(line, " ") + "\n")
				}
				golden(t, filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.txt", c.name, size[0], size[1])), got.String())
				if strings.Contains(s.view(), "\x1b[3") || strings.Contains(s.view(), "\x1b[9") {
					t.Error("there is a colour where none is wanted")
				}
			})
		}
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%v; %s is another, go test ./internal/tui -update writes it anew; now it is\n%s", err, file, got)
	}
}

// fits checks that the screen has exactly the size of the terminal.
func fits(t *testing.T, s *table) {
	t.Helper()
	lines := strings.Split(s.view(), "\n")
	if len(lines) != max(s.m.h, 1) {
		t.Fatalf("%d lines of %d", len(lines), s.m.h)
	}
	for _, line := range lines {
		if cellWidth(line) > max(s.m.w, 1) {
			t.Fatalf("%q is wider than %d", line, s.m.w)
		}
	}
}

// TestAnySize checks that every scene at every size is exactly as large as the terminal.
func TestAnySize(t *testing.T) {
	ktest.Long(t)
	for _, c := range scenes {
		for w := 0; w <= 300; w += 1 + w/7 {
			for h := 0; h <= 100; h += 1 + h/5 {
				fits(t, scene(t, w%2 == 0, w, h, c.keys))
			}
		}
	}
}

// FuzzKeys checks that no key at any size, and no text, breaks the screen or answers a question without a Yes.
func FuzzKeys(f *testing.F) {
	f.Add(80, 24, "\r12345gdx?!q/rtnpv[]", "main")
	f.Add(1, 1, "\rg\ty\r", "\x1b[2J")
	f.Add(300, 100, "\rd\r\r!\r\r5u\r3/v\r", "日本")
	names := []string{"enter", "esc", "tab", "left", "right", "up", "down", "pgup", "pgdown", "home", "end", "backspace", "space"}
	f.Fuzz(func(t *testing.T, w, h int, keys, text string) {
		if w < -1 || h < -1 || w > 400 || h > 200 || len(keys) > 100 || len(text) > 2000 {
			t.Skip()
		}
		s := sit(t, nil, poisoned(text), push("a-2", text, noon), push("a-3", text, noon.Add(-time.Minute)))
		s.size(w, h)
		fits(t, s)
		for n, r := range keys {
			name := string(r)
			if int(r) < len(names) {
				name = names[r]
			}
			yes := s.m.dialog != nil && (name == "y" || name == "Y" || name == "enter" && s.m.dialog.yes)
			before := len(s.done)
			if s.keys(name); len(s.done) > before && !yes && name != "r" {
				t.Fatalf("%q did %q", name, s.done)
			}
			if n%3 == 0 {
				s.size(h, w)
			}
			s.tick()
			fits(t, s)
			clean(t, s.view())
		}
	})
}

// TestDifference checks that removed and added lines are listed in order.
func TestDifference(t *testing.T) {
	many := make([]string, 3000)
	for n := range many {
		many[n] = fmt.Sprint(n)
	}
	for _, c := range []struct{ old, now, want string }{
		{"a b c", "a b c", ""}, {"", "a", "+ a"}, {"a", "", "- a"}, {"a b c", "a x c", "- b,+ x"}, {"a b c d e", "a c x e", "- b,- d,+ x"}, {"a b", "b a", "- a,+ a"},
	} {
		if got := strings.Join(diffLines(strings.Fields(c.old), strings.Fields(c.now)), ","); got != c.want {
			t.Errorf("from %q to %q: %q, want %q", c.old, c.now, got, c.want)
		}
	}
	if got := len(diffLines(many[:2999], many[1:])); got != 2*2999 {
		t.Errorf("texts too long to align differ in %d lines", got)
	}
}

// TestSeen checks that visible characters stay, and that an escape differs from text that looks like one.
func TestSeen(t *testing.T) {
	for in, want := range map[string]string{
		"häuser, 日本 → ok": "häuser, 日本 → ok", "a\tb\n": `a\u{9}b\u{a}`, "\u202e": `\u{202e}`, "\u200d": `\u{200d}`, "\u00a0": `\u{a0}`, "\u3164": `\u{3164}`,
		"e\u0301": "e\u0301", "e\u0301\u0302\u0303": "e\u0301\u0302" + `\u{303}`, "\u0301": `\u{301}`, " \u0301": ` \u{301}`, "\ue000": `\u{e000}`, "": "",
		`\u{a}`: `\\u{a}`, `\\u{a}`: `\\\\u{a}`, "\\\n": `\\\u{a}`, `C:\dir\user \d+\`: `C:\dir\user \d+\`, `\n \\`: `\n \\`,
	} {
		if got := escapeText(in); got != want {
			t.Errorf("%q is seen as %q, want %q", in, got, want)
		}
	}
}

// TestLooksAlike checks that an argument that looks like the escaped form of another one is shown differently: in the
// fields, in the differences, and in the text, which stays as it is signed.
func TestLooksAlike(t *testing.T) {
	last, now := push("a-1", "x\u202ey", noon.Add(-time.Minute)), push("a-2", `x\u{202e}y`, noon)
	if slices.Equal(last.comparableLines(), now.comparableLines()) {
		t.Error("what differs is not said to")
	}
	last.Preview.Output, now.Preview.Output = shown("a\x1bb\n"), shown(`a\u{1b}b`+"\n")
	if slices.Equal(renderFields(false, last.decisionFields(noon), 80), renderFields(false, now.decisionFields(noon), 80)) {
		t.Error("two outputs are shown alike")
	}
	text := `argument 00 "x\u{202e}y" "x\\u{202e}y"`
	if got := escapeLines(text + "\n"); len(got) != 1 || got[0] != text {
		t.Errorf("the text is shown as %q", got)
	}
}

// FuzzSeen checks that two different texts of one line are never shown alike.
func FuzzSeen(f *testing.F) {
	f.Add("x\u202e", `x\u{202e}`)
	f.Add("\\\n", `\u{a}`)
	f.Add("\\\\\n", "\\\\u{a}")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a != b && utf8.ValidString(a) && utf8.ValidString(b) && escapeText(a) == escapeText(b) {
			t.Errorf("%q and %q are both seen as %q", a, b, escapeText(a))
		}
	})
}
