package cli

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"bailey"
	"bailey/internal/localapi/apitype"
)

// codexServer is the table that init appends to the configuration of Codex, between two marker lines. The file is
// edited as text. A parser checks before and after the change that it has the intended meaning.
type codexServer struct{}

const codexNoun = "a server named " + serverName

// tableText returns the table as text, in which each line ends with eol.
func (codexServer) tableText(command, eol string) string {
	return strings.ReplaceAll(fmt.Sprintf("# written by bailey init --codex; --undo removes it\n[mcp_servers.%s]\ncommand = %s\nargs = [\"serve\"]\n# end of what bailey init --codex wrote\n",
		serverName, tomlString(command)), "\n", eol)
}

// tableMeaning returns the meaning of the table.
func (codexServer) tableMeaning(command string) string {
	return canonicalText(map[string]any{"command": command, "args": []any{"serve"}})
}

func (c codexServer) addEntry(old []byte, command string) ([]byte, apitype.Added, error) {
	if old == nil {
		return []byte(c.tableText(command, "\n")), apitype.AddedFile, nil
	}
	config, have, err := readCodex(old)
	switch {
	case err != nil:
		return nil, "", err
	case have != nil && canonicalText(have) == c.tableMeaning(command):
		return old, "", nil
	case have != nil:
		return nil, "", bailey.Conflict.New("it has "+codexNoun+" already, with other settings",
			"run bailey init --codex --undo if init wrote it, or remove it by hand; then run init again")
	}
	now := append(bytes.Clone(old), c.appendedText(old, command)...)
	after, have, err := readCodex(now)
	if err != nil || have == nil || canonicalText(have) != c.tableMeaning(command) ||
		canonicalText(after) != canonicalText(config) {
		return nil, "", malformedError("a table for " + serverName + " cannot be appended at its end")
	}
	return now, apitype.AddedServer, nil
}

// appendedText returns the text that add appends to a file. Its first line ending separates the table, or ends an unterminated
// last line.
func (c codexServer) appendedText(old []byte, command string) string {
	eol := "\n"
	if bytes.Contains(old, []byte("\r\n")) {
		eol = "\r\n"
	}
	if len(old) == 0 {
		return c.tableText(command, eol)
	}
	return eol + c.tableText(command, eol)
}

func (c codexServer) removeEntry(old []byte, command string, what apitype.Added) ([]byte, error) {
	config, have, err := readCodex(old)
	switch {
	case err != nil:
		return nil, err
	case have == nil:
		return nil, bailey.NotFound.New("it no longer has "+codexNoun, "nothing to undo")
	}
	for _, eol := range []string{"\r\n", "\n"} {
		block := c.tableText(command, eol)
		before, behind, ok := strings.Cut(string(old), block)
		if !ok {
			continue
		}
		if what == apitype.AddedServer && before != "" {
			if before, ok = strings.CutSuffix(before, eol); !ok {
				break
			}
		}
		if what == apitype.AddedFile && before+behind == "" {
			return nil, nil
		}
		now := []byte(before + behind)
		if after, have, err := readCodex(now); err == nil && have == nil &&
			canonicalText(after) == canonicalText(config) {
			return now, nil
		}
		break
	}
	return nil, changedSince(codexNoun)
}

// readCodex returns the meaning of a configuration without Bailey's server, and that server, or nil if it does not
// exist.
func readCodex(text []byte) (config map[string]any, server any, err error) {
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		return nil, nil, malformedError("it begins with a byte order mark")
	}
	if err := toml.Unmarshal(text, &config); err != nil {
		return nil, nil, malformedError("it is not TOML: " + err.Error())
	}
	value, ok := config["mcp_servers"]
	if !ok {
		return config, nil, nil
	}
	servers, ok := value.(map[string]any)
	if !ok {
		return nil, nil, malformedError("mcp_servers in it is not a table")
	}
	servers = maps.Clone(servers)
	server = servers[serverName]
	delete(servers, serverName)
	config["mcp_servers"] = servers
	if len(servers) == 0 {
		delete(config, "mcp_servers")
	}
	return config, server, nil
}

// canonicalText returns a value as text with sorted keys, so that equal values have equal texts.
func canonicalText(v any) string { return fmt.Sprintf("%#v", v) }

// tomlString returns s as a TOML basic string.
func tomlString(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			fmt.Fprintf(&out, `\%c`, r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return `"` + out.String() + `"`
}
