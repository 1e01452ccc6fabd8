package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// agentClient is a program that agents run in: where it reads what it starts, and what init writes there.
type agentClient struct {
	id      string // of the flag and of the ledger
	name    string
	program string
	scopes  map[string][]place
	finds   string // what a person does next; %s is the first file
}

// place is one entry in one file of a client.
type place struct {
	variable string // names the directory of dir's stead, where it is set
	dir      string // below the project, or for the scope user below HOME
	file     string
	entry    entry
	does     string // what the client does by it, after "NAME "
	undone   string
	byPath   bool // it names this program by where it stands
}

// entry is what init writes into a file of a client, and takes away again.
type entry interface {
	// add returns old with the entry in it and nothing else touched, and how much of that is ours: "" where it is there already.
	// Old nil is no file.
	add(old []byte, command string) ([]byte, added, error)
	// remove returns old without what add put there; nil is no file.
	remove(old []byte, command string, what added) ([]byte, error)
}

// added says how much of a file is ours; undoing takes that much away.
type added string

const (
	addedDir     added = "directory" // there was no directory for the file
	addedFile    added = "file"      // there was no file
	addedServers added = "servers"   // there was no list of servers in it
	addedServer  added = "server"    // the one entry
	addedHooks   added = "hooks"     // there was no hook in it
	addedEvent   added = "event"     // there was no hook for the event
	addedHook    added = "hook"      // the one entry
)

// inFile is what of it is in the file.
func (a added) inFile() added {
	if a == addedDir {
		return addedFile
	}
	return a
}

// serverName is what clients call the server, and what they put before the names of its tools.
const serverName = "bailey"

// stdioServer is how most clients start this program.
func stdioServer(command string) any {
	return struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}{command, []string{"serve"}, map[string]string{}}
}

var (
	mcpServers = jsonEntry{keys: []string{"mcpServers", serverName}, made: []added{addedFile, addedServers, addedServer},
		noun: "a server named " + serverName, value: stdioServer}
	opencodeServer = jsonEntry{keys: []string{"mcp", serverName}, made: []added{addedFile, addedServers, addedServer},
		noun: "a server named " + serverName, value: func(command string) any {
			return struct {
				Type    string   `json:"type"`
				Command []string `json:"command"`
				Enabled bool     `json:"enabled"`
			}{"local", []string{command, "serve"}, true}
		}}
	preToolUse = jsonEntry{keys: []string{"hooks", "PreToolUse"}, list: true, made: []added{addedFile, addedHooks, addedEvent, addedHook},
		noun: "Bailey's hook", value: func(command string) any { return newMatcher(judgeLine(command)) },
		older: func(command string) any { return newMatcher(shellWord(command) + oldJudge) }}
)

// agentClients are those that init knows, in the order of its flags.
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
			// What teammates share holds no hook of ours: where bailey is not installed it would fail at each use of a tool.
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

// scope is the one that was asked for, or the client's own where none was.
func (c agentClient) scope(asked string) (string, error) {
	names := slices.Sorted(maps.Keys(c.scopes)) // project comes before user
	asked = cmp.Or(asked, names[0])
	if c.scopes[asked] == nil {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s reads servers of the scope %s alone", c.name, strings.Join(names, " or ")), Hint: "give --scope " + names[0]}
	}
	return asked, nil
}

// open reads the place's file. What is below HOME is the user's alone.
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

// oldJudge is how the line ended that older versions of init wrote.
const oldJudge = " judge claude-code"

// shellWord quotes a word for sh where it has to be.
func shellWord(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+,@%"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// matcher is a member of Claude Code's lists of hooks.
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
