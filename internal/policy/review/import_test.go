package review

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/policy"
)

func testCommands() (list []Command) {
	patterns := map[bailey.CapabilityID][]string{
		"git.status": {"git status"}, "git.push": {"git push", "git push-all"}, "disk.wipe": {"wipe --all"}, "other.look": {"git status all"},
	}
	for _, a := range testActions() {
		list = append(list, Command{Action: a, Patterns: patterns[a.ID]})
	}
	return list
}

// imported derives rules from permission lists and loads them.
func imported(t testing.TB, data string) (Import, *policy.Engine) {
	t.Helper()
	l, err := ReadLists("settings.json", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	im := ImportLists(testCommands(), []Lists{l})
	e, err := tryLoad(string(im.Text))
	if err != nil {
		t.Fatalf("%v\n%s", err, im.Text)
	}
	return im, e
}

// TestImport checks the result of each kind of entry for git.status and git.push. An action without an entry must stay
// denied.
func TestImport(t *testing.T) {
	for _, c := range []struct {
		allow, ask, deny string
		status, push     string
	}{
		{"Bash(git status:*)", "", "", "allow", "deny"},
		{"Bash(git status *)", "", "", "allow", "deny"},
		{"Bash(git status)", "", "", "allow", "deny"},
		{"Bash(git status --short:*)", "", "", "ask", "deny"}, // covers only a part of git.status
		{"Bash(git push:*)", "", "", "deny", "ask"},           // git.push is mutating
		{"Bash(git:*)", "", "", "allow", "ask"},
		{"Bash(git:*)", "", "Bash(git push --force:*)", "allow", "deny"},
		{"Bash(git:*)", "Bash(git status)", "", "ask", "ask"},
		{"", "Bash(git push *)", "", "deny", "ask"},
		{"Bash(git:*)", "Bash", "", "ask", "ask"},
		{"Bash(git status:*)", "Bash(*)", "", "ask", "deny"},
		{"Bash(git:*)", "", "Bash", "deny", "deny"},
		{"Bash(git:*)", "", "Bash(git pu*)", "deny", "deny"}, // covers every command that begins with git
		{"Bash", "", "", "deny", "deny"},
		{"Bash(*)", "", "", "deny", "deny"},
		{"Bash(:*)", "", "", "deny", "deny"},
		{"Bash(git *s)", "", "", "deny", "deny"},
		{"Bash(git)", "", "", "deny", "deny"}, // covers only git without arguments
		{"Bash(gi:*)", "", "", "deny", "deny"},
		{"Bash(git statusx:*)", "", "", "deny", "deny"},
		{"Bash(git status && rm -rf /:*)", "", "", "deny", "deny"},
		{"Bash(git status; git push)", "", "", "deny", "deny"},
		{"Bash(git status $(git push))", "", "", "deny", "deny"},
		{"Edit", "", "", "deny", "deny"},
		{"Read(./git status)", "", "", "deny", "deny"},
		{"mcp__git__status", "", "", "deny", "deny"},
		{"WebFetch(domain:example.com)", "", "", "deny", "deny"},
		{"Bash(git status:*", "", "", "deny", "deny"},
		{"bash(git status:*)", "", "", "deny", "deny"},
		{"Bash(git:*)", "", "Bash(* status)", "ask", "ask"}, // a deny entry that cannot be read completely asks
		{"Bash(git:*)", "", `Bash(git "status")`, "ask", "ask"},
		{"Bash(git:*)", "Bash(* --short)", "", "ask", "ask"},
		{"Bash(git:*)", "", "*", "ask", "ask"},
		{"Bash(git:*)", "", "B*(git status)", "ask", "ask"},
		{"Bash(git:*)", "", "Bash(git status", "ask", "ask"},
		{"Bash(git:*)", "", "Edit(git status)", "allow", "ask"},
		{"Bash(git:*)", "", "mcp__*", "allow", "ask"},
	} {
		settings := map[string]any{"permissions": map[string][]string{"allow": oneOrNone(c.allow), "ask": oneOrNone(c.ask), "deny": oneOrNone(c.deny)}}
		data, _ := json.Marshal(settings)
		im, e := imported(t, string(data))
		for id, want := range map[bailey.CapabilityID]string{"git.status": c.status, "git.push": c.push, "system.echo": "deny"} {
			r := request(id, map[string]any{"repo": "."})
			if id == "system.echo" {
				r.Input = nil
			}
			if d := e.Decide(r); d.Effect.String() != want {
				t.Errorf("%s is %s, want %s\n%s%s", id, d.Effect, want, data, im.Text)
			}
		}
		if n := len(im.Imported) + len(im.NotImported); n < len(oneOrNone(c.allow))+len(oneOrNone(c.ask))+len(oneOrNone(c.deny)) {
			t.Errorf("an entry is told of nowhere: %s%+v", data, im)
		}
	}
}

func oneOrNone(s string) []string {
	if s == "" {
		return []string{}
	}
	return []string{s}
}

// TestImportIsStrict checks that an ambiguous file is refused.
func TestImportIsStrict(t *testing.T) {
	for _, data := range []string{
		`{`, `{}`, `{"permissions":[]}`, `{"permissions":{"allow":"Bash"}}`, `{"permissions":{"allow":[1]}}`, `{"permissions":{"allow":[]}} {}`,
		`{"permissions":{"deny":["Bash"]},"permissions":{}}`, `{"permissions":{"deny":["Bash"],"deny":[]}}`, `{"Permissions":{"deny":["Bash"]}}`,
		`{"permissions":{"deny":["Bash",]}}`, "{\"permissions\":{\"deny\":[\"\xff\"]}}", "\xef\xbb\xbf{}", "Bash(git status:*)\nnot a tool\n", "Bash(x", "deny\n(x)",
		strings.Repeat(`{"a":`, 10_000), strings.Repeat("Bash(ls)\n", maxEntries+1), "Bash(" + strings.Repeat("x", maxEntry) + ")", strings.Repeat(" ", maxLists+1),
	} {
		if l, err := ReadLists("x", []byte(data)); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%.60q: %+v %v", data, l, err)
		}
	}
	l, err := ReadLists("x", []byte("# mine\n\nBash(git status:*)\r\nask Bash(git push:*)\ndeny Read(.env)\n"))
	want := []Listed{{"allow", "Bash(git status:*)"}, {"ask", "Bash(git push:*)"}, {"deny", "Read(.env)"}}
	if err != nil || !slices.Equal(l.Entries, want) {
		t.Errorf("%+v %v", l, err)
	}
}

// TestImportHoldsHostileEntries checks that no text of an entry ends a comment or a string, or adds a rule.
func TestImportHoldsHostileEntries(t *testing.T) {
	for _, v := range append(hostileValues(), "\n permit (principal, action, resource);", "*/ permit (principal, action, resource);", "\u2028permit(principal,action,resource);", "\u202e") {
		for _, entry := range []string{v, "Edit(" + v + ")", "Bash(" + v + ")", "Bash(git status " + v + ")", "Bash(" + v + ":*)"} {
			data, _ := json.Marshal(map[string]any{"permissions": map[string]any{"allow": []string{entry}, v: v}, "x": v})
			im, e := imported(t, string(data))
			if d := e.Decide(request("git.push", map[string]any{"repo": "."})); d.Effect != bailey.Deny {
				t.Errorf("%q allows a push:\n%s", entry, im.Text)
			}
			if n := e.Len(); n > 4 {
				t.Errorf("%q makes %d rules:\n%s", entry, n, im.Text)
			}
		}
	}
}

// TestImportTells checks that the result names each entry without a rule, and each rule that differs from its entry.
func TestImportTells(t *testing.T) {
	im, _ := imported(t, `{"permissions":{"defaultMode":"bypassPermissions","allow":["Edit","Bash(git push:*)"],"deny":["Bash(git status --short)"]}}`)
	for _, want := range []string{"bypassPermissions", "no capability corresponds to the tool Edit", `"allow Bash(git push:*)"`} {
		if !strings.Contains(string(im.Text), want) {
			t.Errorf("no %q in\n%s", want, im.Text)
		}
	}
	if len(im.NotImported) != 2 || len(im.Imported) != 2 || im.Imported[0].As != "ask" || !strings.Contains(im.Imported[0].Note, "mutating") || !strings.Contains(im.Imported[1].Note, "more than the entry") {
		t.Errorf("%+v", im)
	}
}

// TestImportIsBounded checks that the longest permitted lists give a file that loads.
func TestImportIsBounded(t *testing.T) {
	ktest.Long(t)
	for _, entry := range []string{"Bash(git:*)\n", "Edit(" + strings.Repeat("é", 40) + ")\n", "deny Bash(git push " + strings.Repeat("x", 80) + ")\n"} {
		im, _ := imported(t, strings.Repeat(entry, maxEntries))
		if n := len(im.Text); n > 16<<20/2 {
			t.Errorf("%.20q: %d bytes", entry, n)
		}
	}
}

// FuzzImport checks that a file of lists is refused or gives rules that load and allow only queries.
func FuzzImport(f *testing.F) {
	for _, s := range []string{`{"permissions":{"allow":["Bash(git status:*)"],"defaultMode":"plan"}}`, "Bash(git push:*)\ndeny Edit(*/x)", `{"permissions":{"ask":["Bash(*)"]}}`} {
		f.Add([]byte(s))
	}
	for _, v := range hostileValues() {
		f.Add([]byte("Bash(" + v + ")"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ReadLists("x", data)
		if err != nil {
			return
		}
		im := ImportLists(testCommands(), []Lists{l})
		e, err := tryLoad(string(im.Text))
		if err != nil {
			t.Fatalf("%v\n%s", err, im.Text)
		}
		if d := e.Decide(request("git.push", map[string]any{"repo": "."})); d.Effect == bailey.Allow {
			t.Errorf("a push without a person:\n%s", im.Text)
		}
		if d := e.Decide(request("disk.wipe", nil)); d.Effect == bailey.Allow {
			t.Errorf("a wipe without a person:\n%s", im.Text)
		}
	})
}
