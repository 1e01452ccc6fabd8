package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// agentClient is a program in which agents run, with the configuration files that it reads and the entries that init
// writes there.
type agentClient struct {
	id      string // as in the flag and in the ledger
	name    string
	program string
	scopes  map[string][]entryLocation
	finds   string // next step for the user; %s is the first file
}

// entryLocation is one entry in one configuration file of a client.
type entryLocation struct {
	variable string // environment variable; if set, its value replaces the first element of dir
	dir      string // below the project, or below HOME for the scope user
	file     string
	entry    fileEntry
	does     string // effect on the client, after "NAME "
	undone   string
	byPath   bool // the entry names this program by its path
}

// fileEntry is the text that init writes to a client's file, and removes again.
type fileEntry interface {
	// add returns old with only the entry added, and how much of the file Bailey owns: "" if the entry was already
	// there. old is nil if the file does not exist.
	addEntry(old []byte, command string) ([]byte, apitype.Added, error)
	// remove returns old without the text that add put there, or nil if the file must be removed.
	removeEntry(old []byte, command string, what apitype.Added) ([]byte, error)
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
	mcpServers = jsonEntry{keys: []string{"mcpServers", serverName},
		made: []apitype.Added{apitype.AddedFile, apitype.AddedServers, apitype.AddedServer},
		noun: "a server named " + serverName, value: stdioServer}
	opencodeServer = jsonEntry{keys: []string{"mcp", serverName},
		made: []apitype.Added{apitype.AddedFile, apitype.AddedServers, apitype.AddedServer},
		noun: "a server named " + serverName, value: func(command string) any {
			return struct {
				Type    string   `json:"type"`
				Command []string `json:"command"`
				Enabled bool     `json:"enabled"`
			}{"local", []string{command, "serve"}, true}
		}}
	preToolUse = jsonEntry{keys: []string{"hooks", "PreToolUse"}, list: true,
		made: []apitype.Added{apitype.AddedFile, apitype.AddedHooks, apitype.AddedEvent, apitype.AddedHook},
		noun: "Bailey's hook", value: func(command string) any { return newMatcher(judgeLine(command)) },
		older: func(command string) any { return newMatcher(shellWord(command) + oldJudge) }}
)

// agentClients returns the clients that init supports, in the order of its flags.
func agentClients() []agentClient {
	const serves, hooks = "starts bailey serve", "runs bailey judge before each use of a tool"
	server := func(variable, dir, file string, e fileEntry) entryLocation {
		return entryLocation{variable, dir, file, e, serves, "no longer " + serves, false}
	}
	hook := func(variable, file string) entryLocation {
		return entryLocation{variable, ".claude", file, preToolUse, hooks, "no longer " + hooks, true}
	}
	return []agentClient{
		{"claude-code", "Claude Code", "claude", map[string][]entryLocation{
			// The hook must not be in a shared file: if bailey is not installed, it fails at each use of a tool.
			"project": {server("", "", ".mcp.json", mcpServers), hook("", "settings.local.json")},
			"user": {server("CLAUDE_CONFIG_DIR", "", ".claude.json", mcpServers),
				hook("CLAUDE_CONFIG_DIR", "settings.json")},
		}, "Claude Code finds Bailey by %s: start claude there once and accept the server; claude mcp list then shows it as connected"},
		{"cursor", "Cursor", "cursor", map[string][]entryLocation{
			"project": {server("", ".cursor", "mcp.json", mcpServers)},
			"user":    {server("", ".cursor", "mcp.json", mcpServers)},
		}, "Cursor finds Bailey by %s: its settings list the server under MCP, where you can switch it on"},
		{"codex", "Codex", "codex", map[string][]entryLocation{
			"user": {server("CODEX_HOME", ".codex", "config.toml", codexServer{})},
		}, "Codex finds Bailey by %s: codex mcp list shows it"},
		{"opencode", "opencode", "opencode", map[string][]entryLocation{
			"project": {server("", "", "opencode.json", opencodeServer)},
			"user":    {server("XDG_CONFIG_HOME", ".config/opencode", "opencode.json", opencodeServer)},
		}, "opencode finds Bailey by %s: opencode mcp list shows it as connected"},
	}
}

// resolveScope returns the requested scope, or the default of the client if asked is empty.
func (c agentClient) resolveScope(asked string) (string, error) {
	names := slices.Sorted(maps.Keys(c.scopes)) // project sorts before user
	asked = cmp.Or(asked, names[0])
	if c.scopes[asked] == nil {
		return "", bailey.Invalid.Errorf("give --scope "+names[0],
			"%s reads servers only from the scope %s", c.name, strings.Join(names, " or "))
	}
	return asked, nil
}

// openFile reads the place's file. Only the user may read a new file below HOME.
func (p entryLocation) openFile(scope, project string) (*clientFile, error) {
	if scope == "project" {
		return openClientFile(project, filepath.Join(p.dir, p.file), 0o644)
	}
	if dir := os.Getenv(p.variable); dir != "" {
		if !filepath.IsAbs(dir) {
			return nil, bailey.Invalid.Errorf("set it to an absolute path",
				"%s is %q, a relative path, which depends on the current directory", p.variable, dir)
		}
		_, below, _ := strings.Cut(p.dir, "/")
		return openClientFile(dir, filepath.Join(below, p.file), 0o600)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "the home directory is unknown", "set HOME")
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

// hookMatcher is an element of the hook lists of Claude Code.
type hookMatcher struct {
	Matcher string        `json:"matcher"`
	Hooks   []hookCommand `json:"hooks"`
}

type hookCommand struct {
	Type    string `json:"type"`
	Command string `json:"command"`
}

func newMatcher(line string) hookMatcher {
	return hookMatcher{Matcher: "*", Hooks: []hookCommand{{Type: "command", Command: line}}}
}

// maxClientFile limits a client's configuration in bytes. The file of Claude Code grows with its projects.
const maxClientFile = 64 << 20

// clientFile is a file of a client, opened so that no path can lead out of its directory, for example through a
// symlink.
type clientFile struct {
	root *os.Root
	name string // relative to root
	text []byte // nil if the file does not exist
	mode fs.FileMode
	bare bool // nor does its directory
}

func (f *clientFile) filePath() string { return filepath.Join(f.root.Name(), f.name) }

// openClientFile reads dir/name. It refuses a symlink, because the target may belong to another project.
func openClientFile(dir, name string, mode fs.FileMode) (*clientFile, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &clientFile{root: root, name: name, mode: mode}
	if err := f.readFile(); err != nil {
		root.Close()
		return nil, err
	}
	return f, nil
}

func (f *clientFile) readFile() error {
	f.text, f.bare = nil, false
	for dir := filepath.Dir(f.name); dir != "."; dir = filepath.Dir(dir) {
		info, err := f.root.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.bare = true
		case err != nil:
			return err
		case !info.IsDir():
			return bailey.Denied.New(filepath.Join(f.root.Name(), dir)+
				" is not a directory, and links are not followed",
				"replace it by a directory")
		}
	}
	info, err := f.root.Lstat(f.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return bailey.Denied.New(f.filePath()+" is not a regular file, and links are not followed",
			"replace it by a regular file")
	case info.Size() > maxClientFile:
		return bailey.Invalid.Errorf("", "%s is over the %d bytes allowed", f.filePath(), maxClientFile)
	}
	f.mode = info.Mode().Perm()
	r, err := f.root.OpenFile(f.name, os.O_RDONLY|safefile.NoWait|safefile.NoFollow, 0) // by now it may have become a pipe
	if err != nil {
		return err
	}
	defer r.Close()
	f.text, err = io.ReadAll(io.LimitReader(r, maxClientFile))
	return err
}

// writeFile replaces the file, or removes it if text is nil, after record has recorded the change durably. If another
// program has changed the file since it was read, write does not touch it.
func (f *clientFile) writeFile(text []byte, record func() error) error {
	first := func() error {
		now := &clientFile{root: f.root, name: f.name}
		if err := now.readFile(); err != nil {
			return err
		}
		if !bytes.Equal(now.text, f.text) || (now.text == nil) != (f.text == nil) {
			return errMeanwhile
		}
		return record()
	}
	if text == nil {
		if err := first(); err != nil {
			return err
		}
		return f.root.Remove(f.name)
	}
	dir, err := f.openDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	if err = safefile.Replace(dir, filepath.Base(f.name), text, f.mode, first); err != nil && f.bare {
		f.root.Remove(filepath.Dir(f.name))
	}
	return err
}

// openDir opens the directory of the file, and creates it if it does not exist.
func (f *clientFile) openDir() (*os.Root, error) {
	perm := fs.FileMode(0o755)
	if f.mode&0o077 == 0 {
		perm = 0o700
	}
	if err := f.root.MkdirAll(filepath.Dir(f.name), perm); err != nil {
		return nil, bailey.Unavailable.Wrap(err, filepath.Dir(f.filePath())+" cannot be created",
			"check the mode of the directory above it")
	}
	return f.root.OpenRoot(filepath.Dir(f.name))
}

// planClientChange returns the change that init makes in one file of a client, nil if none.
func (i *initRun) planClientChange(ctx context.Context, client agentClient, scope string,
	p entryLocation) (*fileChange, error) {
	f, err := p.openFile(scope, i.dir)
	if err != nil {
		return nil, err
	}
	c := apitype.Configuration{Client: client.id, Scope: scope, File: f.filePath()}
	had, err := apitype.ShowConfiguration.Ask(ctx, i.client, apitype.ClientFile{File: c.File})
	if err != nil {
		return nil, err
	}
	event, note, now := apitype.ConfigureClient, client.name+" "+p.does, []byte(nil)
	if i.undo {
		event, note, c.Command, c.Added = apitype.UndoConfiguration, client.name+" "+p.undone, had.Command, had.Added
		if had.Added == "" || had.Client != client.id || f.text == nil {
			return nil, nil
		}
		if now, err = p.entry.removeEntry(f.text, c.Command, c.Added.InFile()); errors.Is(err, bailey.NotFound) {
			return nil, nil
		}
	} else {
		if c.Command, err = ownCommand(p.byPath); err != nil {
			return nil, err
		}
		now, c.Added, err = p.entry.addEntry(f.text, c.Command)
		if c.Added == apitype.AddedFile && f.bare {
			c.Added = apitype.AddedDir
		}
		if scope == "project" && filepath.IsAbs(c.Command) && !p.byPath { // the file of a hook is not shared
			note += "; it contains a path of this machine, which everyone who shares the file sees"
		}
	}
	if err != nil {
		return nil, withFileName(c.File, err)
	}
	i.report.Clients = append(i.report.Clients, clientReport{client.id, scope, c.File, c.Command, !i.undo})
	if !i.undo && c.Added == "" {
		return nil, nil
	}
	return &fileChange{file: c.File, note: note, diff: terminal.Diff(string(f.text), string(now)),
		make: func(ctx context.Context) error {
			err := f.writeFile(now, func() error {
				_, err := event.Do(ctx, i.client, i.op, c)
				return err
			})
			if err == nil && now == nil && c.Added == apitype.AddedDir {
				f.root.Remove(filepath.Dir(f.name)) // fails if the directory has other files, so it stays
			}
			return err
		}}, nil
}

// withFileName adds the name of the file to an error.
func withFileName(file string, err error) error {
	return bailey.KindOf(err).Wrap(err, file, bailey.HintOf(err))
}

// ownCommand returns the command with which another program starts this one: its name if that name on PATH is this
// program and byPath is not set, and otherwise its path.
func ownCommand(byPath bool) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if onPath, err := exec.LookPath("bailey"); err == nil && sameFile(onPath, self) {
		if byPath {
			return filepath.Abs(onPath)
		}
		return "bailey", nil
	}
	if strings.Contains(self, "/go-build") {
		return "", bailey.Invalid.New("this bailey is temporary: go run built it and removes it at the end",
			"run go install ./cmd/bailey, then bailey init")
	}
	return self, nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
