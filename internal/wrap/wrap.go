// Package wrap contains the parts of the agent jail (`bailey wrap`): the parts of the host that each kind of agent
// needs, the files of its project that it must not change, the treatment of new files there, and the cleanup after a
// killed run. The package starts nothing and connects to nothing; the program does that. Tools that build a project use
// the same parts ([Works]).
package wrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// Bin is the directory of Bailey's own program in the cage. It is first in the search path.
const Bin = "/run/bailey/bin"

// Memory and Tasks are the default limits for an agent and all its processes.
const (
	Memory = 4 << 30 // bytes
	Tasks  = 1024
	files  = 65536 // open at the same time: an agent watches its project
)

// Agent describes a known kind of agent.
type Agent struct {
	Name      string
	Endpoints []string          // host:port that it needs to work
	Env       []string          // variables that it gets if they are set; their values are secrets
	Base      string            // variable with the URL of its model, which replaces the first endpoint
	Files     map[string]string // for its home, created if missing: its configuration of Bailey's MCP server
}

// Variables that every program gets if they are set, such as the type of the terminal.
var commonVariables = []string{"TERM", "COLORTERM", "LANG", "LC_ALL", "NO_COLOR", "FORCE_COLOR", "TZ"}

// Known returns the description of the agent that a command starts. If the agent is unknown, the description has only a
// name.
//
// Sources: Claude Code's documentation, "Network configuration" and "Environment variables"; codex-rs, config.md and
// login; opencode.ai/docs, "Config" and "Network".
func Known(command string) Agent {
	const serve = `{"mcpServers":{"bailey":{"command":"` + Bin + `/bailey","args":["serve"]}}}` + "\n"
	switch name := filepath.Base(command); name {
	case "claude":
		return Agent{Name: name, Base: "ANTHROPIC_BASE_URL",
			Endpoints: []string{"api.anthropic.com:443", "claude.ai:443", "platform.claude.com:443"},
			Env: []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL",
				"ANTHROPIC_SMALL_FAST_MODEL",
				"CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY",
				"DISABLE_AUTOUPDATER"},
			Files: map[string]string{".claude.json": serve}}
	case "codex":
		return Agent{Name: name, Base: "OPENAI_BASE_URL",
			Endpoints: []string{"api.openai.com:443", "auth.openai.com:443", "chatgpt.com:443"},
			Env:       []string{"OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"},
			Files: map[string]string{".codex/config.toml": "[mcp_servers.bailey]\ncommand = \"" + Bin +
				"/bailey\"\nargs = [\"serve\"]\n"}}
	case "opencode":
		return Agent{Name: name, Endpoints: []string{"models.dev:443", "api.anthropic.com:443", "api.openai.com:443"},
			Env: []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"},
			Files: map[string]string{".config/opencode/opencode.json": `{"$schema":"https://opencode.ai/config.json","mcp":{"bailey":{"type":"local","command":["` +
				Bin + `/bailey","serve"],"enabled":true}}}` + "\n"}}
	default:
		return Agent{Name: principalName(name)}
	}
}

// principalName returns a name in a form that a principal may have.
func principalName(name string) string {
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

// Variables returns the variables for the agent, NAME=value: the plain ones in open, its own in secret.
func (a Agent) Variables(here func(string) (string, bool)) (open, secret []string) {
	for _, name := range commonVariables {
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

// systemPaths lists the parts of a host that programs need: programs, libraries and settings of the machine, but no data of
// a user. The cage has its own accounts, hosts and name service.
var systemPaths = []string{"/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
	"/etc/mime.types", "/etc/terminfo", "/etc/inputrc",
	"/etc/protocols", "/etc/services", "/etc/os-release", "/etc/shells", "/etc/bash.bashrc", "/etc/profile.d",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/crypto-policies"}

// searched is the end of the agent's search path.
const searched = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Trees returns the parts of the host that an agent's cage contains, and its search path. The parts are the system,
// this program, and the installation of the agent: the file program and the files that belong to it. If these lie in
// the project, an agent may have written them, so a link that leads out of the project is not followed. Of the user's
// own search path, only directories in the cage remain. toolchains are directories with programs in bin, which come
// before those of the system.
func Trees(self, program, project, hostPath string, look func(string) (string, error),
	toolchains ...string) (trees []bailey.Tree, path string) {
	for _, p := range systemPaths {
		if _, err := os.Stat(p); err == nil {
			trees = append(trees, bailey.Tree{Path: p})
		}
	}
	trees = append(trees, bailey.Tree{Path: self, At: filepath.Join(Bin, "bailey")})
	dirs := []string{Bin}
	for _, p := range installedPaths(program, project, look) {
		if slices.ContainsFunc(systemPaths, func(s string) bool { return isWithin(s, p) }) ||
			slices.ContainsFunc(trees, func(t bailey.Tree) bool { return t.At == "" && t.Path == p }) {
			continue
		}
		trees = append(trees, bailey.Tree{Path: p})
		if info, err := os.Stat(p); err == nil && !info.IsDir() && !slices.Contains(dirs, filepath.Dir(p)) {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	for _, dir := range toolchains {
		trees, dirs = append(trees, bailey.Tree{Path: dir}), append(dirs, filepath.Join(dir, "bin"))
	}
	for _, dir := range filepath.SplitList(hostPath) { // only if the cage contains it, for example /usr/local/go/bin
		dir = filepath.Clean(dir)
		shown := slices.ContainsFunc(trees, func(t bailey.Tree) bool { return t.At == "" && isWithin(t.Path, dir) })
		if shown && !slices.Contains(dirs, dir) && !slices.Contains(strings.Split(searched, ":"), dir) {
			dirs = append(dirs, dir)
		}
	}
	return trees, strings.Join(append(dirs, searched), ":")
}

// installedPaths returns a program as it was found, the Node.js modules that contain it, and the interpreter in its first
// line, which may lie beside it.
func installedPaths(program, project string, look func(string) (string, error)) (list []string) {
	list = []string{program}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return list
	}
	leads := func(path string) bool {
		to, err := filepath.EvalSymlinks(path)
		return isWithin(project, path) && (err != nil || !isWithin(project, to))
	}
	if leads(program) {
		return nil
	}
	const modules = "/node_modules/"
	if i := strings.Index(real, modules); i >= 0 {
		list = append(list, real[:i+len(modules)-1])
	}
	if i := scriptInterpreter(real); i != "" {
		beside := filepath.Join(filepath.Dir(program), filepath.Base(i))
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && !leads(beside) {
			list = append(list, beside)
		} else if found, err := look(i); err == nil {
			list = append(list, found)
		}
	}
	return list
}

// scriptInterpreter returns the interpreter that the first line of a script names, or "".
func scriptInterpreter(path string) string {
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

func isWithin(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// start is the shell command that makes TMPDIR a directory in which files may be executed, and then executes the agent.
// The cage pins root's shell; the agent is found in the cage's trees, together with its interpreter.
const start = `TMPDIR=$HOME/.tmp; export TMPDIR; exec "$0" "$@"`

// Job returns the job for an agent's cage, without the descriptors of its places and without its network.
func Job(program string, args []string) bailey.Job {
	return bailey.Job{Capability: "agent.wrap", Command: "/bin/sh",
		Args: append([]string{"-c", start, program}, args...), NeedsProc: true, Timeout: bailey.Endless,
		Limits: bailey.Limits{MemoryBytes: Memory, Tasks: Tasks, OpenFiles: files}, Wall: &bailey.Wall{Run: true,
			Unix: true, Pty: true}}
}
