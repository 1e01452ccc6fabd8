package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/localapi/apitype"
)

// TestServerComesAndGoes checks that the rest of the file stays unchanged, byte for byte.
func TestServerComesAndGoes(t *testing.T) {
	const command = "/opt/b <&>/bailey"
	for _, c := range []struct{ name, old, want string }{
		{"nothing in it", "{}", `{"mcpServers":{"bailey":{"command":"/opt/b <&>/bailey","args":["serve"],"env":{}}}}`},
		{"on one line", `{"a":1}`, `{"a":1,"mcpServers":{"bailey":{"command":"/opt/b <&>/bailey","args":["serve"],"env":{}}}}`},
		{"another server", "{\n    \"mcpServers\": {\n        \"x\": {\"url\": \"u\"}\n    },\n    \"z\": 1e400\n}\n",
			"{\n    \"mcpServers\": {\n        \"x\": {\"url\": \"u\"},\n        \"bailey\": {\n            \"command\": \"/opt/b <&>/bailey\",\n" +
				"            \"args\": [\n                \"serve\"\n            ],\n            \"env\": {}\n        }\n    },\n    \"z\": 1e400\n}\n"},
		{"no server yet", "{\n\t\"mcpServers\": {\n\t}\n}", "{\n\t\"mcpServers\": {\n\t\t\"bailey\": {\n\t\t\t\"command\": \"/opt/b <&>/bailey\",\n" +
			"\t\t\t\"args\": [\n\t\t\t\t\"serve\"\n\t\t\t],\n\t\t\t\"env\": {}\n\t\t}\n\t}\n}"},
		{"odd spaces", " { \"mcpServers\" :{ } ,\"k\\u0065y\":\"\\ud800\"}\n\n", " { \"mcpServers\" :{\"bailey\":{\"command\":\"/opt/b <&>/bailey\",\"args\":[\"serve\"],\"env\":{}} } ,\"k\\u0065y\":\"\\ud800\"}\n\n"},
		{"every server of one name twice elsewhere", `{"a":{"bailey":1,"bailey":2}}`,
			`{"a":{"bailey":1,"bailey":2},"mcpServers":{"bailey":{"command":"/opt/b <&>/bailey","args":["serve"],"env":{}}}}`},
		{"carriage returns", "{\r\n  \"a\": 1\r\n}\r\n", "{\r\n  \"a\": 1,\r\n  \"mcpServers\": {\n    \"bailey\": {\n      \"command\": \"/opt/b <&>/bailey\",\n      \"args\": [\n        \"serve\"\n      ],\n      \"env\": {}\n    }\n  }\r\n}\r\n"},
		{"the name in a text", `{"t":"\"mcpServers\":{}","n":{"mcpServers":{"bailey":1}}}`,
			`{"t":"\"mcpServers\":{}","n":{"mcpServers":{"bailey":1}},"mcpServers":{"bailey":{"command":"/opt/b <&>/bailey","args":["serve"],"env":{}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, what, err := mcpServers.addEntry([]byte(c.old), command)
			if err != nil || string(now) != c.want {
				t.Fatalf("%v\n%s\nwant\n%s", err, now, c.want)
			}
			if again, nothing, err := mcpServers.addEntry(now, command); err != nil || nothing != "" || !bytes.Equal(again, now) {
				t.Errorf("a second time: %q, %v", nothing, err)
			}
			if back, err := mcpServers.removeEntry(now, command, what); err != nil || string(back) != c.old {
				t.Errorf("undone: %v\n%s\nwant\n%s", err, back, c.old)
			}
		})
	}
}

func TestUndoTakesOnlyItsOwn(t *testing.T) {
	const command = "bailey"
	whole, what, err := mcpServers.addEntry(nil, command)
	if err != nil || what != apitype.AddedFile {
		t.Fatal(what, err)
	}
	if left, err := mcpServers.removeEntry(whole, command, what); left != nil || err != nil {
		t.Errorf("the file was ours: %q, %v", left, err)
	}
	later := `"other": {"command": "x"}`
	for _, c := range []struct{ name, text, want string }{
		{"one after it", strings.Replace(string(whole), "\n    }\n  }", "\n    },\n    "+later+"\n  }", 1), "{\n  \"mcpServers\": {\n    " + later + "\n  }\n}\n"},
		{"one before it", strings.Replace(string(whole), `"bailey"`, later+`, "bailey"`, 1), "{\n  \"mcpServers\": {\n    " + later + "\n  }\n}\n"},
		{"another key", strings.Replace(string(whole), "{\n", "{\n  \"mine\": 1,\n", 1), "{\n  \"mine\": 1\n}\n"},
	} {
		if got, err := mcpServers.removeEntry([]byte(c.text), command, what); err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	if _, err := mcpServers.removeEntry(whole, "other", what); !errors.Is(err, bailey.Conflict) {
		t.Errorf("an entry that somebody changed: %v", err)
	}
	if _, err := mcpServers.removeEntry([]byte("{}"), command, what); !errors.Is(err, bailey.NotFound) {
		t.Errorf("gone already: %v", err)
	}
}

func TestMalformedFilesAreRefused(t *testing.T) {
	const command = "bailey"
	for _, text := range []string{"", " ", "\n", "null", "[]", "{", `{"a":1}}`, `{"a":1,}`, "// c\n{}", "\xef\xbb\xbf{}", `{"mcpServers":[]}`, `{"mcpServers":null}`,
		`{"mcpServers":"x"}`, `{"mcpServers":{},"mcpServers":{}}`, `{"mcpServers":{"bailey":1,"bailey":1}}`, strings.Repeat("[", 20000), "\x00"} {
		if got, _, err := mcpServers.addEntry([]byte(text), command); !errors.Is(err, bailey.Invalid) || got != nil || bailey.HintOf(err) == "" {
			t.Errorf("%.40q became %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"mcpServers":{"bailey":{"command":"bailey"}}}`, `{"mcpServers":{"bailey":1}}`} {
		if _, _, err := mcpServers.addEntry([]byte(text), command); !errors.Is(err, bailey.Conflict) {
			t.Errorf("another server of the name: %v", err)
		}
	}
}

// TestHookComesAndGoes checks that other hooks stay unchanged, even those of the same event.
func TestHookComesAndGoes(t *testing.T) {
	const ours = `{"matcher":"*","hooks":[{"type":"command","command":"/usr/bin/bailey judge claude-code || exit 2"}]}`
	for _, c := range []struct {
		name, old, want string
		what            apitype.Added
	}{
		{"nothing in it", "{}", `{"hooks":{"PreToolUse":[` + ours + `]}}`, apitype.AddedHooks},
		{"hooks of another event", `{"hooks":{"Stop":[]},"a":[1, 2]}`, `{"hooks":{"Stop":[],"PreToolUse":[` + ours + `]},"a":[1, 2]}`, apitype.AddedEvent},
		{"an empty list", `{"hooks":{"PreToolUse":[ ]}}`, `{"hooks":{"PreToolUse":[` + ours + ` ]}}`, apitype.AddedHook},
		{"another hook", `{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[]}]}}`, `{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[]},` + ours + `]}}`, apitype.AddedHook},
		{"a line each", "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      7\n    ]\n  }\n}\n",
			"{\n  \"hooks\": {\n    \"PreToolUse\": [\n      7,\n      {\n        \"matcher\": \"*\",\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n" +
				"            \"command\": \"/usr/bin/bailey judge claude-code || exit 2\"\n          }\n        ]\n      }\n    ]\n  }\n}\n", apitype.AddedHook},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, what, err := preToolUse.addEntry([]byte(c.old), "/usr/bin/bailey")
			if err != nil || string(now) != c.want || what != c.what {
				t.Fatalf("%v, %s\n%s\nwant\n%s", err, what, now, c.want)
			}
			if again, nothing, err := preToolUse.addEntry(now, "/usr/bin/bailey"); err != nil || nothing != "" || !bytes.Equal(again, now) {
				t.Errorf("a second time: %q, %v", nothing, err)
			}
			if back, err := preToolUse.removeEntry(now, "/usr/bin/bailey", what); err != nil || string(back) != c.old {
				t.Errorf("undone: %v\n%s", err, back)
			}
			before := bytes.Replace(now, []byte(" || exit 2"), nil, 1) // as an earlier version wrote it
			if back, err := preToolUse.removeEntry(before, "/usr/bin/bailey", what); err != nil || string(back) != c.old {
				t.Errorf("of an earlier version: %v\n%s", err, back)
			}
			if _, err := preToolUse.removeEntry(now, "/other/bailey", what); !errors.Is(err, bailey.NotFound) {
				t.Errorf("one that init did not write: %v", err)
			}
		})
	}
	for _, text := range []string{`{"hooks":[]}`, `{"hooks":{"PreToolUse":{}}}`, `{"hooks":{"PreToolUse":[]},"hooks":{}}`, `{"hooks":{"PreToolUse":[],"PreToolUse":[]}}`, "// mine\n{}", "\xef\xbb\xbf{}"} {
		if got, _, err := preToolUse.addEntry([]byte(text), "bailey"); !errors.Is(err, bailey.Invalid) || got != nil || bailey.HintOf(err) == "" {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}
}

// TestNewFilesComeAndGo checks that undo removes a file that init created.
func TestNewFilesComeAndGo(t *testing.T) {
	for name, e := range map[string]fileEntry{"servers": mcpServers, "hook": preToolUse, "opencode": opencodeServer, "codex": codexServer{}} {
		for _, command := range []string{"bailey", "/a b/<&>'\"\\/bailey", "/é\u202e/bailey"} {
			now, what, err := e.addEntry(nil, command)
			if err != nil || what != apitype.AddedFile {
				t.Fatalf("%s: %q, %v", name, what, err)
			}
			if back, err := e.removeEntry(now, command, what); back != nil || err != nil {
				t.Errorf("%s of %s: %q, %v\n%s", name, command, back, err, now)
			}
		}
	}
}

// FuzzServer checks that the result is valid JSON with the entry, and that undo restores the exact bytes.
func FuzzServer(f *testing.F) {
	for _, s := range []string{"{}", "{ }", "{\n}", `{"a":1}`, "{\n  \"mcpServers\": {\n  }\n}", `{"mcpServers":{"x":{}}, "b":[1,2]}`, "{\r\n\t\"a\" : \"}\"\r\n}",
		`{"hooks":{"PreToolUse":[{"matcher":"Bash"} , 1]}}`, "{\"hooks\" : {\n\t\"PreToolUse\": [\n]}}", `{"mcp":{}}`, "{\"mcpServers\": {\"x\": 1 , \"y\": 2 \t} \n}", "{ \"a\" : 1 \n ,\"mcpServers\":{ \r\n } }"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, old []byte) {
		for _, e := range []jsonEntry{mcpServers, preToolUse, opencodeServer} {
			now, what, err := e.addEntry(old, "bailey")
			if err != nil || what == "" || old == nil {
				continue
			}
			path, err := e.walkKeys(now)
			if err != nil || len(path) != e.nestingDepth() {
				t.Fatalf("%q became %q: %v", old, now, err)
			}
			last := path[len(path)-1]
			if i := e.findEntry(last, "bailey"); i < 0 || !sameJSON(membersOf(last)[i].value.Pack(), e.entryJSON("bailey")) {
				t.Fatalf("%q became %q", old, now)
			}
			if back, err := e.removeEntry(now, "bailey", what); err != nil || !bytes.Equal(back, old) {
				t.Fatalf("%q became %q and then %q, %v", old, now, back, err)
			}
		}
	})
}
