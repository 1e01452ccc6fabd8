//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
)

const ourHook = `{"matcher":"*","hooks":[{"type":"command","command":"/usr/bin/bailey judge claude-code || exit 2"}]}`

// Hooks behind Bailey's can change what it has judged; those before it cannot.
func TestLaterHooks(t *testing.T) {
	dir := t.TempDir()
	other := func(line string) string {
		return `{"matcher":"Bash","hooks":[{"type":"command","command":"` + line + `"}]}`
	}
	var files []settingsFile
	for name, list := range map[string]string{"user": other("/x/first") + "," + ourHook + "," + other("/x/second"), "local": other("/x/third")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`{"hooks":{"PreToolUse":[`+list+`]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"user", "local"} {
		files = append(files, settingsFile{filepath.Join(dir, name), false})
	}
	got := strings.Join(laterHooks(files, "/usr/bin/bailey judge claude-code || exit 2"), "\n")
	if strings.Contains(got, "first") || !strings.Contains(got, filepath.Join(dir, "user")+` runs "/x/second"`) || !strings.Contains(got, `"/x/third"`) {
		t.Error(got)
	}
}

// TestHookLine checks that the hook line is found as Claude Code would run it, from all settings files together.
func TestHookLine(t *testing.T) {
	hook := func(list string) string { return `{"hooks":{"PreToolUse":[` + list + `]}}` }
	for _, c := range []struct{ name, managed, user, local, want, why string }{
		{name: "no files", why: "none of its settings"},
		{name: "the user's", user: hook(ourHook), want: "/usr/bin/bailey judge claude-code || exit 2"},
		{name: "the project's", local: hook(`{"matcher":"Bash","hooks":[]},` + ourHook), want: "/usr/bin/bailey judge claude-code || exit 2"},
		{name: "no matcher is every tool", user: hook(`{"hooks":[{"type":"command","command":"/usr/bin/bailey judge claude-code || exit 2","timeout":9}]}`), want: "/usr/bin/bailey judge claude-code || exit 2"},
		{name: "some tools", user: hook(`{"matcher":"Bash","hooks":[{"type":"command","command":"/usr/bin/bailey judge claude-code || exit 2"}]}`), why: "none of its settings"},
		{name: "another event", user: `{"hooks":{"PostToolUse":[` + ourHook + `]}}`, why: "none of its settings"},
		{name: "switched off elsewhere", user: hook(ourHook), local: `{"disableAllHooks":true}`, why: "disableAllHooks"},
		{name: "managed alone", managed: `{"allowManagedHooksOnly":true}`, user: hook(ourHook), why: "managed"},
		{name: "managed, and ours", managed: `{"allowManagedHooksOnly":true,` + hook(ourHook)[1:], want: "/usr/bin/bailey judge claude-code || exit 2"},
		{name: "only who manages may say so", user: `{"allowManagedHooksOnly":true,` + hook(ourHook)[1:], want: "/usr/bin/bailey judge claude-code || exit 2"},
		{name: "another program", user: hook(strings.Replace(ourHook, "/usr/bin/bailey judge", "/x/bailey judge", 1)), why: "another program than this one"},
		{name: "more than the line", user: hook(strings.Replace(ourHook, "exit 2", "true", 1)), why: "another program than this one"},
		{name: "before the line", user: hook(strings.Replace(ourHook, "/usr/bin/bailey judge", "true; /usr/bin/bailey judge", 1)), why: "another program than this one"},
		{name: "by a name that may lead nowhere", user: hook(strings.Replace(ourHook, "/usr/bin/bailey judge claude-code || exit 2", "bailey judge claude-code", 1)), why: "allows everything"},
		{name: "by a path, and lets through", user: hook(strings.Replace(ourHook, " || exit 2", "", 1)), why: "allows everything"},
		{name: "one that holds nothing up", user: hook(strings.Replace(ourHook, `"type"`, `"async":true,"type"`, 1)), why: "none of its settings"},
		{name: "keys by another name", user: strings.Replace(hook(ourHook), `"hooks"`, `"Hooks"`, 1), why: "none of its settings"},
		{name: "malformed elsewhere", user: hook(ourHook), local: `{"hooks":[]}`, why: "cannot parse the settings"},
		{name: "comments", user: hook(ourHook), local: "// x\n{}", why: "cannot parse the settings"},
		{name: "empty", user: hook(ourHook), local: " ", why: "cannot parse the settings"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			var files []settingsFile
			for name, text := range map[string]string{"managed": c.managed, "user": c.user, "local": c.local} {
				if text != "" {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, name := range []string{"managed", "user", "local"} {
				files = append(files, settingsFile{filepath.Join(dir, name), name == "managed"})
			}
			line, err := hookLine(files, func(command string) bool { return command == "/usr/bin/bailey" })
			if line != c.want || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("%q, %v", line, err)
			}
		})
	}
}

// TestJudgeWord checks that a line is accepted only if init could have written it.
func TestJudgeWord(t *testing.T) {
	for _, command := range []string{"/bailey", "/a b/bailey", `/it's/"$x"/bailey`, "/''", "/é/bailey"} {
		if word, ok := judgeWord(judgeLine(command)); !ok || word != command {
			t.Errorf("%q became %q, %v", command, word, ok)
		}
	}
	for _, line := range []string{"", " judge claude-code || exit 2", "/bailey judge claude-code", "/bailey judge claude-code || exit 2 ", "/bailey  judge claude-code || exit 2", "$(x) judge claude-code || exit 2",
		"/a b judge claude-code || exit 2", "'/a'x' judge claude-code || exit 2", "'/a judge claude-code || exit 2", "'/bailey' judge claude-code || exit 2", "bailey judge claude-code", "bailey judge claude-code || exit 2", "/bailey judge claude-code || exit 0"} {
		if word, ok := judgeWord(line); ok {
			t.Errorf("%q is taken for a call of %q", line, word)
		}
	}
}

// TestTryHook checks that a hook passes only if it denies and allows correctly, and in time.
func TestTryHook(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	dir := t.TempDir()
	answer := func(decision string) string {
		return fmt.Sprintf(`echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"%s"}}'`, decision)
	}
	for _, c := range []struct{ name, script, why string }{
		{"right", `case $(cat) in *TodoWrite*) ` + answer("allow") + `;; *) ` + answer("deny") + `;; esac`, ""},
		{"right by its exit code", `case $(cat) in *TodoWrite*) ` + answer("allow") + `;; *) exit 2;; esac`, ""},
		{"leaves alone what it may", `case $(cat) in *TodoWrite*) echo '{}';; *) ` + answer("deny") + `;; esac`, ""},
		{"leaves all alone", `echo '{}'`, "should deny"},
		{"allows all", answer("allow"), "should deny"},
		{"denies all", answer("deny"), "should allow"},
		{"asks", answer("ask"), "should deny"},
		{"fails", "echo no such verb >&2; exit 1", "no such verb"},
		{"says nothing", "true", "it answered"},
		{"says another event", `echo '{"hookSpecificOutput":{"hookEventName":"Stop","permissionDecision":"deny"}}'`, "it answered"},
		{"decides nothing known", answer("maybe\\u001b"), "it decided"},
		{"says too much", "yes", "should deny"},
		{"does not exist", "/nonexistent/bailey", "not found"},
		{"reads nothing", "exec <&-; " + answer("deny"), "should allow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			patience := 20 * time.Second
			if c.name == "says too much" {
				patience = time.Second // it never ends
			}
			tried, err := tryHook(t.Context(), c.script, dir, patience)
			if (err == nil) != (c.why == "") || err != nil && (!strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), "\x1b")) || len(tried) == 0 {
				t.Errorf("%v, %+v", err, tried)
			}
		})
	}
	line := filepath.Join(dir, "line")
	if _, err := askHook(t.Context(), "cat > "+line+"; pwd >> "+line, dir, "Bash", `{"command":"x"}`, time.Minute); err == nil {
		t.Error("no answer is one")
	}
	text, err := os.ReadFile(line)
	question, where, _ := strings.Cut(string(text), "}/")
	var asked map[string]any
	if err != nil || json.Unmarshal([]byte(question+"}"), &asked) != nil || asked["hook_event_name"] != "PreToolUse" || asked["tool_name"] != "Bash" || "/"+strings.TrimSpace(where) != dir {
		t.Errorf("asked %s, %v", text, err)
	}
}

// FuzzReadHooks fuzzes settings, which may come from a hostile project.
func FuzzReadHooks(f *testing.F) {
	f.Add([]byte(`{"disableAllHooks":false,"hooks":{"PreToolUse":[` + ourHook + `]}}`))
	f.Add([]byte(`{"hooks":{"PreToolUse":[{"matcher":null,"hooks":null},null]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := readHooks(text)
		if err == nil && !json.Valid(text) {
			t.Errorf("%q was read: %+v", text, s)
		}
		for _, line := range s.lines {
			if word, ok := judgeWord(line); ok && judgeLine(word) != line {
				t.Errorf("%q is taken for a call of %q", line, word)
			}
		}
	})
}
