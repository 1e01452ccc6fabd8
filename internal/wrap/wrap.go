// Package wrap is what it takes to have an agent work inside the wall: what it needs of the host, by its name; what of its
// project it may not change, and what becomes of that which appears there; and what a run leaves behind when it is killed.
// It starts nothing and connects to nothing: the program does, by this. Tools that build a project have the same ([Works]).
package wrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// Bin is where the cage has Bailey's own program; it is the first place that a name is looked for.
const Bin = "/run/bailey/bin"

// Memory and Tasks bound an agent and all that it starts, where nobody says otherwise.
const (
	Memory = 4 << 30 // bytes
	Tasks  = 1024
	files  = 65536 // open at once: an agent watches its project
)

// Agent is what is known of an agent by its name.
type Agent struct {
	Name      string
	Endpoints []string          // host:port that it needs to work
	Env       []string          // variables that it gets, where they are set; their values are secrets
	Base      string            // the variable with the URL of its model, in place of the first endpoint
	Files     map[string]string // of its home, made where there is none: how it finds Bailey's MCP server
}

// Variables that any program gets, where they are set: what a terminal is like.
var plain = []string{"TERM", "COLORTERM", "LANG", "LC_ALL", "NO_COLOR", "FORCE_COLOR", "TZ"}

// Known returns what is known of the agent that a command starts. Of another one nothing is, and that is no error.
//
// Sources: Claude Code's documentation, "Network configuration" and "Environment variables"; codex-rs, config.md and
// login; opencode.ai/docs, "Config" and "Network".
func Known(command string) Agent {
	const serve = `{"mcpServers":{"bailey":{"command":"` + Bin + `/bailey","args":["serve"]}}}` + "\n"
	switch name := filepath.Base(command); name {
	case "claude":
		return Agent{Name: name, Base: "ANTHROPIC_BASE_URL",
			Endpoints: []string{"api.anthropic.com:443", "claude.ai:443", "platform.claude.com:443"},
			Env: []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
				"CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER"},
			Files: map[string]string{".claude.json": serve}}
	case "codex":
		return Agent{Name: name, Base: "OPENAI_BASE_URL", Endpoints: []string{"api.openai.com:443", "auth.openai.com:443", "chatgpt.com:443"},
			Env:   []string{"OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"},
			Files: map[string]string{".codex/config.toml": "[mcp_servers.bailey]\ncommand = \"" + Bin + "/bailey\"\nargs = [\"serve\"]\n"}}
	case "opencode":
		return Agent{Name: name, Endpoints: []string{"models.dev:443", "api.anthropic.com:443", "api.openai.com:443"},
			Env: []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"},
			Files: map[string]string{".config/opencode/opencode.json": `{"$schema":"https://opencode.ai/config.json","mcp":{"bailey":{"type":"local","command":["` +
				Bin + `/bailey","serve"],"enabled":true}}}` + "\n"}}
	default:
		return Agent{Name: word(name)}
	}
}

// word is a name as a principal may have it.
func word(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, name)
	if name = strings.Trim(name, ".-"); name == "" || name == "local" || len(name) > 64 {
		return "agent"
	}
	return name
}

// Variables are those that the agent gets: plain ones with their values, and the names and values of its own.
func (a Agent) Variables(here func(string) (string, bool)) (open, secret []string) {
	for _, name := range plain {
		if v, ok := here(name); ok {
			open = append(open, name+"="+v)
		}
	}
	for _, name := range a.Env {
		if v, ok := here(name); ok {
			secret = append(secret, name+"="+v)
		}
	}
	return open, secret
}

// system is what programs need of a host: themselves, their libraries, and how the machine is set up; nothing that is
// anybody's own. The cage's accounts, hosts and name service are its own.
var system = []string{"/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/terminfo", "/etc/inputrc",
	"/etc/protocols", "/etc/services", "/etc/os-release", "/etc/shells", "/etc/bash.bashrc", "/etc/profile.d",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/crypto-policies"}

// searched is where the agent's own search ends.
const searched = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Trees are what the cage of an agent shows of the host, and its search path: the system, this program, and the installation
// of the agent, which is the file at program and what it stands among. One that lies in the project was for an agent to write
// before: its links lead to nothing outside. Of the user's own search path stays what is shown.
func Trees(self, program, project, hostPath string, look func(string) (string, error)) (trees []bailey.Tree, path string) {
	for _, p := range system {
		if _, err := os.Stat(p); err == nil {
			trees = append(trees, bailey.Tree{Path: p})
		}
	}
	trees = append(trees, bailey.Tree{Path: self, At: filepath.Join(Bin, "bailey")})
	dirs := []string{Bin}
	for _, p := range installation(program, project, look) {
		if slices.ContainsFunc(system, func(s string) bool { return within(s, p) }) || slices.ContainsFunc(trees, func(t bailey.Tree) bool { return t.At == "" && t.Path == p }) {
			continue
		}
		trees = append(trees, bailey.Tree{Path: p})
		if info, err := os.Stat(p); err == nil && !info.IsDir() && !slices.Contains(dirs, filepath.Dir(p)) {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	for _, dir := range filepath.SplitList(hostPath) { // as far as the cage shows it: /usr/local/go/bin, say
		dir = filepath.Clean(dir)
		shown := slices.ContainsFunc(trees, func(t bailey.Tree) bool { return t.At == "" && within(t.Path, dir) })
		if shown && !slices.Contains(dirs, dir) && !slices.Contains(strings.Split(searched, ":"), dir) {
			dirs = append(dirs, dir)
		}
	}
	return trees, strings.Join(append(dirs, searched), ":")
}

// installation is a program as it is found, the modules of Node.js that it lies in, and the interpreter that its first line
// names, which may stand beside it.
func installation(program, project string, look func(string) (string, error)) (list []string) {
	list = []string{program}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return list
	}
	leads := func(path string) bool {
		to, err := filepath.EvalSymlinks(path)
		return within(project, path) && (err != nil || !within(project, to))
	}
	if leads(program) {
		return nil
	}
	const modules = "/node_modules/"
	if i := strings.Index(real, modules); i >= 0 {
		list = append(list, real[:i+len(modules)-1])
	}
	if i := interpreter(real); i != "" {
		beside := filepath.Join(filepath.Dir(program), filepath.Base(i))
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && !leads(beside) {
			list = append(list, beside)
		} else if found, err := look(i); err == nil {
			list = append(list, found)
		}
	}
	return list
}

// interpreter is what the first line of a script names; "" where there is none.
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256) // BINPRM_BUF_SIZE
	n, _ := f.Read(head)
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	switch {
	case !strings.HasPrefix(line, "#!") || len(words) == 0:
		return ""
	case filepath.Base(words[0]) != "env":
		return words[0]
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return w
		}
	}
	return ""
}

func within(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// start is the shell's word for: have temporary files where they may be run, and become the agent. A shell of root's is what
// the cage pins; the agent itself is found in its trees, with whatever its first line says.
const start = `TMPDIR=$HOME/.tmp; export TMPDIR; exec "$0" "$@"`

// Job is the cage of an agent, but for its places' descriptors and its network.
func Job(program string, args []string) bailey.Job {
	return bailey.Job{Capability: "agent.wrap", Command: "/bin/sh", Args: append([]string{"-c", start, program}, args...), NeedsProc: true, Timeout: bailey.Endless,
		Limits: bailey.Limits{MemoryBytes: Memory, Tasks: Tasks, OpenFiles: files}, Wall: &bailey.Wall{Run: true, Unix: true, Pty: true}}
}
