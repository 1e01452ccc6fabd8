package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"bailey"
)

// TestServerComesAndGoes: whatever else is in the file stays as it is, byte for byte.
func TestServerComesAndGoes(t *testing.T) {
	entry := serverEntry("/opt/b <&>/bailey")
	for _, c := range []struct{ name, old, want string }{
		{"nothing in it", "{}", `{"mcpServers":{"bailey":{"command":"/opt/b <&>/bailey","args":["serve"],"env":{}}}}`},
		{"on one line", `{"a":1}`, `{"a":1,"mcpServers":{"bailey":{"command":"/opt/b <&>/bailey","args":["serve"],"env":{}}}}`},
		{"another server", "{\n    \"mcpServers\": {\n        \"x\": {\"url\": \"u\"}\n    },\n    \"z\": 1e400\n}\n",
			"{\n    \"mcpServers\": {\n        \"x\": {\"url\": \"u\"},\n        \"bailey\": {\n            \"command\": \"/opt/b <&>/bailey\",\n" +
				"            \"args\": [\n                \"serve\"\n            ],\n            \"env\": {}\n        }\n    },\n    \"z\": 1e400\n}\n"},
		{"no server yet", "{\n\t\"mcpServers\": {\n\t}\n}", "{\n\t\"mcpServers\": {\n\t\t\"bailey\": {\n\t\t\t\"command\": \"/opt/b <&>/bailey\",\n" +
			"\t\t\t\"args\": [\n\t\t\t\t\"serve\"\n\t\t\t],\n\t\t\t\"env\": {}\n\t\t}\n\t}\n}"},
		{"odd spaces", " { \"mcpServers\" :{ } ,\"k\\u0065y\":\"\\ud800\"}\n\n", " { \"mcpServers\" :{\"bailey\":{\"command\":\"/opt/b <&>/bailey\",\"args\":[\"serve\"],\"env\":{}} } ,\"k\\u0065y\":\"\\ud800\"}\n\n"},
		{"the name in a text", `{"t":"\"mcpServers\":{}","n":{"mcpServers":{"bailey":1}}}`,
			`{"t":"\"mcpServers\":{}","n":{"mcpServers":{"bailey":1}},"mcpServers":{"bailey":{"command":"/opt/b <&>/bailey","args":["serve"],"env":{}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, what, err := addServer([]byte(c.old), entry)
			if err != nil || string(now) != c.want {
				t.Fatalf("%v\n%s\nwant\n%s", err, now, c.want)
			}
			if again, nothing, err := addServer(now, entry); err != nil || nothing != "" || !bytes.Equal(again, now) {
				t.Errorf("a second time: %q, %v", nothing, err)
			}
			if back, err := removeServer(now, entry, what); err != nil || string(back) != c.old {
				t.Errorf("undone: %v\n%s\nwant\n%s", err, back, c.old)
			}
		})
	}
}

func TestUndoTakesOnlyItsOwn(t *testing.T) {
	entry := serverEntry("bailey")
	whole, what, err := addServer(nil, entry)
	if err != nil || what != addedFile {
		t.Fatal(what, err)
	}
	if left, err := removeServer(whole, entry, what); left != nil || err != nil {
		t.Errorf("the file was ours: %q, %v", left, err)
	}
	later := `"other": {"command": "x"}`
	for _, c := range []struct{ name, text, want string }{
		{"one after it", strings.Replace(string(whole), "\n    }\n  }", "\n    },\n    "+later+"\n  }", 1), "{\n  \"mcpServers\": {\n    " + later + "\n  }\n}\n"},
		{"one before it", strings.Replace(string(whole), `"bailey"`, later+`, "bailey"`, 1), "{\n  \"mcpServers\": {\n    " + later + "\n  }\n}\n"},
		{"another key", strings.Replace(string(whole), "{\n", "{\n  \"mine\": 1,\n", 1), "{\n  \"mine\": 1\n}\n"},
	} {
		if got, err := removeServer([]byte(c.text), entry, what); err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	if _, err := removeServer(whole, serverEntry("other"), what); !errors.Is(err, bailey.Conflict) {
		t.Errorf("an entry that somebody changed: %v", err)
	}
	if _, err := removeServer([]byte("{}"), entry, what); !errors.Is(err, bailey.NotFound) {
		t.Errorf("gone already: %v", err)
	}
}

func TestMalformedFilesAreRefused(t *testing.T) {
	entry := serverEntry("bailey")
	for _, text := range []string{"", " ", "\n", "null", "[]", "{", `{"a":1}}`, `{"a":1,}`, "// c\n{}", "\xef\xbb\xbf{}", `{"mcpServers":[]}`, `{"mcpServers":null}`,
		`{"mcpServers":"x"}`, `{"mcpServers":{},"mcpServers":{}}`, `{"mcpServers":{"bailey":1,"bailey":1}}`, strings.Repeat("[", 20000), "\x00"} {
		if got, _, err := addServer([]byte(text), entry); !errors.Is(err, bailey.Invalid) || got != nil || bailey.HintOf(err) == "" {
			t.Errorf("%.40q became %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"mcpServers":{"bailey":{"command":"bailey"}}}`, `{"mcpServers":{"bailey":1}}`} {
		if _, _, err := addServer([]byte(text), entry); !errors.Is(err, bailey.Conflict) {
			t.Errorf("another server of the name: %v", err)
		}
	}
}

// FuzzServer: what goes in is valid JSON with the entry, and undoing gives back the very bytes.
func FuzzServer(f *testing.F) {
	for _, s := range []string{"{}", "{ }", "{\n}", `{"a":1}`, "{\n  \"mcpServers\": {\n  }\n}", `{"mcpServers":{"x":{}}, "b":[1,2]}`, "{\r\n\t\"a\" : \"}\"\r\n}"} {
		f.Add([]byte(s))
	}
	entry := serverEntry("bailey")
	f.Fuzz(func(t *testing.T, old []byte) {
		now, what, err := addServer(old, entry)
		if err != nil || what == "" {
			return
		}
		var v map[string]map[string]any
		var top map[string]json.RawMessage
		if err := json.Unmarshal(now, &top); err != nil {
			t.Fatalf("%q became %q: %v", old, now, err)
		}
		if json.Unmarshal([]byte(`{"s":`+string(top[serversKey])+`}`), &v); v["s"][serverName] == nil {
			t.Fatalf("%q became %q", old, now)
		}
		if back, err := removeServer(now, entry, what); err != nil || !bytes.Equal(back, old) {
			t.Fatalf("%q became %q and then %q, %v", old, now, back, err)
		}
	})
}
