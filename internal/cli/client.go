package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi/apitype"
)

// agentClient is a program in which agents run, with the configuration files that it reads and the entries that init
// writes there.
type agentClient struct {
	id      string // as in the flag and in the ledger
	name    string
	program string
	scopes  map[string][]place
	finds   string // next step for the user; %s is the first file
}

// place is one entry in one configuration file of a client.
type place struct {
	variable string // environment variable; if set, its value replaces the first element of dir
	dir      string // below the project, or below HOME for the scope user
	file     string
	entry    entry
	does     string // effect on the client, after "NAME "
	undone   string
	byPath   bool // the entry names this program by its path
}

// entry is the text that init writes to a client's file, and removes again.
type entry interface {
	// add returns old with only the entry added, and how much of the file Bailey owns: "" if the entry was already
	// there. old is nil if the file does not exist.
	add(old []byte, command string) ([]byte, apitype.Added, error)
	// remove returns old without the text that add put there, or nil if the file must be removed.
	remove(old []byte, command string, what apitype.Added) ([]byte, error)
}

// serverName is the name of the server in clients. Clients also put it before the names of its tools.
const serverName = "bailey"

// stdioServer returns the entry with which most clients start this program.
func stdioServer(command string) any {
	return struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}{command, []string{"serve"}, map[string]string{}}
}

var (
	mcpServers = jsonEntry{keys: []string{"mcpServers", serverName}, made: []apitype.Added{apitype.AddedFile, apitype.AddedServers, apitype.AddedServer},
		noun: "a server named " + serverName, value: stdioServer}
	opencodeServer = jsonEntry{keys: []string{"mcp", serverName}, made: []apitype.Added{apitype.AddedFile, apitype.AddedServers, apitype.AddedServer},
		noun: "a server named " + serverName, value: func(command string) any {
			return struct {
				Type    string   `json:"type"`
				Command []string `json:"command"`
				Enabled bool     `json:"enabled"`
			}{"local", []string{command, "serve"}, true}
		}}
	preToolUse = jsonEntry{keys: []string{"hooks", "PreToolUse"}, list: true, made: []apitype.Added{apitype.AddedFile, apitype.AddedHooks, apitype.AddedEvent, apitype.AddedHook},
		noun: "Bailey's hook", value: func(command string) any { return newMatcher(judgeLine(command)) },
		older: func(command string) any { return newMatcher(shellWord(command) + oldJudge) }}
)

// agentClients returns the clients that init supports, in the order of its flags.
func agentClients() []agentClient {
	const serves, hooks = "starts bailey serve", "asks bailey judge before each use of a tool"
	server := func(variable, dir, file string, e entry) place {
		return place{variable, dir, file, e, serves, "no longer " + serves, false}
	}
	hook := func(variable, file string) place {
		return place{variable, ".claude", file, preToolUse, hooks, "no longer " + hooks, true}
	}
	return []agentClient{
		{"claude-code", "Claude Code", "claude", map[string][]place{
			// The hook must not be in a shared file: if bailey is not installed, it fails at each use of a tool.
			"project": {server("", "", ".mcp.json", mcpServers), hook("", "settings.local.json")},
			"user":    {server("CLAUDE_CONFIG_DIR", "", ".claude.json", mcpServers), hook("CLAUDE_CONFIG_DIR", "settings.json")},
		}, "Claude Code finds Bailey by %s: start claude there once and accept the server, then claude mcp list says it is connected"},
		{"cursor", "Cursor", "cursor", map[string][]place{
			"project": {server("", ".cursor", "mcp.json", mcpServers)},
			"user":    {server("", ".cursor", "mcp.json", mcpServers)},
		}, "Cursor finds Bailey by %s: its settings list the server under MCP, where it is switched on"},
		{"codex", "Codex", "codex", map[string][]place{
			"user": {server("CODEX_HOME", ".codex", "config.toml", codexServer{})},
		}, "Codex finds Bailey by %s: codex mcp list names it"},
		{"opencode", "opencode", "opencode", map[string][]place{
			"project": {server("", "", "opencode.json", opencodeServer)},
			"user":    {server("XDG_CONFIG_HOME", ".config/opencode", "opencode.json", opencodeServer)},
		}, "opencode finds Bailey by %s: opencode mcp list says it is connected"},
	}
}

// scope returns the requested scope, or the default of the client if asked is empty.
func (c agentClient) scope(asked string) (string, error) {
	names := slices.Sorted(maps.Keys(c.scopes)) // project sorts before user
	asked = cmp.Or(asked, names[0])
	if c.scopes[asked] == nil {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s reads servers of the scope %s alone", c.name, strings.Join(names, " or ")), Hint: "give --scope " + names[0]}
	}
	return asked, nil
}

// open reads the place's file. Only the user may read a new file below HOME.
func (p place) open(scope, project string) (*clientFile, error) {
	if scope == "project" {
		return openClientFile(project, filepath.Join(p.dir, p.file), 0o644)
	}
	if dir := os.Getenv(p.variable); dir != "" {
		if !filepath.IsAbs(dir) {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s is %q, which is another directory wherever you stand", p.variable, dir), Hint: "set it to an absolute path"}
		}
		_, below, _ := strings.Cut(p.dir, "/")
		return openClientFile(dir, filepath.Join(below, p.file), 0o600)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "no home directory is known", Hint: "set HOME", Err: err}
	}
	return openClientFile(home, filepath.Join(p.dir, p.file), 0o600)
}

// judgeLine is the shell command that Claude Code runs before each use of a tool. Only exit code 2 blocks the tool: Claude Code takes
// any other failure (the program is missing, cannot be started, crashes) for no objection. The path is absolute, since a bare name
// leads to another program if PATH changes. Older versions of init wrote a bare name; --undo still recognises it.
func judgeLine(command string) string {
	if !filepath.IsAbs(command) {
		return shellWord(command) + oldJudge
	}
	return shellWord(command) + oldJudge + " || exit 2"
}

// oldJudge is the end of the line that older versions of init wrote.
const oldJudge = " judge claude-code"

// shellWord quotes a word for sh if necessary.
func shellWord(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+,@%"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// matcher is an element of the hook lists of Claude Code.
type matcher struct {
	Matcher string        `json:"matcher"`
	Hooks   []hookCommand `json:"hooks"`
}

type hookCommand struct {
	Type    string `json:"type"`
	Command string `json:"command"`
}

func newMatcher(line string) matcher {
	return matcher{Matcher: "*", Hooks: []hookCommand{{Type: "command", Command: line}}}
}
