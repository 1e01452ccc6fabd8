package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/localapi/apitype"
)

func TestTableComesAndGoes(t *testing.T) {
	var c codexServer
	block := c.tableText("bailey", "\n")
	for _, test := range []struct{ name, old, want string }{
		{"empty", "", block},
		{"keys and comments", "# mine\nmodel = \"o3\" # why\n", "# mine\nmodel = \"o3\" # why\n\n" + block},
		{"no line end", "[a]\nx = 1", "[a]\nx = 1\n" + block},
		{"another server", "[mcp_servers.x]\ncommand = \"y\"\n", "[mcp_servers.x]\ncommand = \"y\"\n\n" + block},
		{"carriage returns", "a = 1\r\n", "a = 1\r\n\r\n" + c.tableText("bailey", "\r\n")},
		{"no number", "a = nan\n", "a = nan\n\n" + block},
		{"the name in a text", "a = '''\n[mcp_servers.bailey]\n'''\n", "a = '''\n[mcp_servers.bailey]\n'''\n\n" + block},
	} {
		t.Run(test.name, func(t *testing.T) {
			now, what, err := c.addEntry([]byte(test.old), "bailey")
			if err != nil || string(now) != test.want || what != apitype.AddedServer {
				t.Fatalf("%v, %s\n%s", err, what, now)
			}
			if again, nothing, err := c.addEntry(now, "bailey"); err != nil || nothing != "" || !bytes.Equal(again, now) {
				t.Errorf("a second time: %q, %v", nothing, err)
			}
			if back, err := c.removeEntry(now, "bailey", what); err != nil || string(back) != test.old {
				t.Errorf("undone: %q, %v", back, err)
			}
			later := string(now) + "\n[tui]\nx = 1\n"
			if back, err := c.removeEntry([]byte(later), "bailey", what); err != nil || string(back) != strings.Replace(later, string(now)[len(test.old):], "", 1) {
				t.Errorf("with more behind it: %q, %v", back, err)
			}
			for _, changed := range []string{string(now) + "timeout = 3\n", strings.Replace(string(now), `"serve"`, `"run"`, 1), strings.Replace(string(now), "end of", "END of", 1)} {
				if back, err := c.removeEntry([]byte(changed), "bailey", what); !errors.Is(err, bailey.Conflict) {
					t.Errorf("one that somebody changed: %q, %v", back, err)
				}
			}
		})
	}
	if _, err := c.removeEntry([]byte("a = 1\n"), "bailey", apitype.AddedServer); !errors.Is(err, bailey.NotFound) {
		t.Errorf("gone already: %v", err)
	}
}

func TestTablesOfTheNameAreRefused(t *testing.T) {
	for _, text := range []string{"[mcp_servers.bailey]\ncommand = \"x\"\n", "[mcp_servers.\"bailey\"]\ncommand = \"x\"\n", "[ mcp_servers . 'bailey' ]\n", "mcp_servers.bailey.command = \"x\"\n",
		"[mcp_servers]\nbailey.command = \"x\"\n", "mcp_servers = { \"b\\u0061iley\" = { command = \"x\" } }\n"} {
		if got, _, err := (codexServer{}).addEntry([]byte(text), "bailey"); !errors.Is(err, bailey.Conflict) || got != nil {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"a", "a = 1\na = 2\n", "[a]\n[a]\n", "mcp_servers = 1\n", "mcp_servers = {}\n", "[[mcp_servers]]\n", "a = \"\"\"\n", "\xef\xbb\xbfa = 1\n", "{\"a\": 1}", "\x00", "a = \"\xff\"\n"} {
		if got, _, err := (codexServer{}).addEntry([]byte(text), "bailey"); !errors.Is(err, bailey.Invalid) || got != nil || bailey.HintOf(err) == "" {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
}

// FuzzTable checks that the result has the old meaning plus the server, and that undo restores the exact bytes.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"", "a = 1", "a = 1\n", "[x]\r\ny = [1, 2]\r\n", "[mcp_servers.x]\ncommand = \"y\"\n", "a = nan\nb = 1979-05-27T07:32:00Z\n", "mcp_servers = {}\n", "# \r"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, old []byte) {
		var c codexServer
		now, what, err := c.addEntry(old, "bailey")
		if err != nil || what == "" || old == nil {
			return
		}
		if _, have, err := readCodex(now); err != nil || canonicalText(have) != c.tableMeaning("bailey") {
			t.Fatalf("%q became %q, %v", old, now, err)
		}
		if back, err := c.removeEntry(now, "bailey", what); err != nil || !bytes.Equal(back, old) {
			t.Fatalf("%q became %q and then %q, %v", old, now, back, err)
		}
	})
}
