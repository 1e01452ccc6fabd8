package direct

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/settings"
	"bailey/internal/toolchain"
	"bailey/internal/workspace"
)

// examineWorkspace reports whether calls with paths work from this directory. A running gateway knows the home's
// workspaces. If none runs, the directory is checked by itself.
func examineWorkspace(home localapi.Home, here string, s apitype.Status) apitype.Finding {
	const name = "workspace"
	why := s.Workspace
	if _, err := os.Lstat(filepath.Join(string(home), settings.FileName)); !s.Running && err == nil {
		return warningFinding(name,
			"the home names workspaces, and no gateway is running to tell whether this is one",
			"run bailey run system.date to start one; then try again")
	}
	if !s.Running {
		homes := workspace.Homes()
		if err := workspace.NewWorkspaces(workspace.Masks(string(home), homes), homes).Fit(here); err != nil {
			why = apitype.WithHint(err)
		}
	}
	if why != "" {
		return warningFinding(name, "calls with paths are refused from here: "+why,
			"start from a directory that is a workspace, or follow the hint")
	}
	return goodFinding(name, here+" is used as the workspace")
}

// examineToolchains shows the versions in the person's home that calls in this directory would use, and why others are not
// used.
func examineToolchains(home localapi.Home, here string) (found []apitype.Finding) {
	text, err := safefile.Read(filepath.Join(string(home), settings.FileName), 1<<20)
	if err != nil {
		text = nil // another finding says so
	}
	said, _ := settings.ParseSettings(text)
	real := workspace.Canonical(here)
	list, errs := toolchain.NewFinder(func() []string { return said.Workspaces }).All(real)
	for _, t := range list {
		tried := t.Version + " of " + t.Manager + ": " + t.Dir
		if t.Chosen != "" {
			tried += ", selected by " + t.Chosen
		}
		found = append(found, goodFinding("toolchain "+t.Language, tried))
	}
	for _, err := range errs {
		found = append(found, errorFinding("toolchain", apitype.Warning, "looked for the tools of the project", err))
	}
	return found
}

// examineProgram compares this program with the one that agents and shells would start by name.
func examineProgram() apitype.Finding {
	const name = "program"
	own, err := cli.StatSelf()
	if err != nil {
		return errorFinding(name, apitype.Warning, "examined this program's own file", err)
	}
	path, err := exec.LookPath("bailey")
	if err != nil {
		return warningFinding(name, "bailey is not on PATH: agents that start it by name do not find it",
			"add the directory of bailey to PATH")
	}
	other, err := os.Stat(path)
	if err != nil {
		return errorFinding(name, apitype.Warning, "looked at "+path, err)
	}
	if !os.SameFile(own, other) {
		return warningFinding(name, fmt.Sprintf("%s comes first on PATH, but is not this program", path),
			"keep only one of them, or put the directory of the right one first on PATH")
	}
	return goodFinding(name, fmt.Sprintf("%s on PATH is this program, version %s", path, apitype.Version))
}

// programPatience limits the time for which a program may take to print its version.
const programPatience = 10 * time.Second

// oldestNode is the oldest major version that current agents for Node.js require.
const oldestNode = 18

func examineNode(ctx context.Context) apitype.Finding {
	const name = "node"
	path, err := exec.LookPath("node")
	if err != nil {
		return goodFinding(name, "not on PATH; Bailey does not need it, some agents do")
	}
	ctx, cancel := context.WithTimeout(ctx, programPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return errorFinding(name, apitype.Warning, "ran "+path+" --version",
			&bailey.Error{Message: err.Error(), Hint: "reinstall it: agents that need node will not start"})
	}
	said := strings.TrimSpace(string(out[:min(len(out), 64)]))
	if majorVersion(said) < oldestNode {
		return warningFinding(name, fmt.Sprintf("%s has version %q", path, said),
			fmt.Sprintf("agents that need node require version %d or newer", oldestNode))
	}
	return goodFinding(name, path+" is "+said)
}

// majorVersion returns the first number of a version such as "v22.1.0", or 0 if there is none.
func majorVersion(v string) int {
	first, _, _ := strings.Cut(strings.TrimPrefix(v, "v"), ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

// examineClaude looks for Claude Code, and for Bailey among the MCP servers that it would start here.
func examineClaude(here string) apitype.Finding {
	const name, cure = "claude code", "run bailey init --claude-code, or: claude mcp add bailey -- bailey serve"
	path, err := exec.LookPath("claude")
	if err != nil {
		path = "claude (not on PATH)"
	}
	user, _ := os.UserHomeDir() // "" if unknown: then there are no user files
	for _, file := range []string{filepath.Join(here, ".mcp.json"), filepath.Join(user, ".claude.json")} {
		s, err := serverIn(file, here)
		switch {
		case err != nil:
			return warningFinding(name, fmt.Sprintf("read %s: %v", file, err),
				"correct the file: Claude Code cannot read it either")
		case s == nil:
			continue
		}
		if _, err := exec.LookPath(s.Command); err != nil {
			return warningFinding(name, fmt.Sprintf("%s starts %q, which is not found", file, s.Command),
				"put bailey's directory on PATH, or run bailey init --claude-code --undo and init again by bailey's full path")
		}
		if !s.isOwnServer() {
			return warningFinding(name,
				fmt.Sprintf("%s starts %q %q, which is not this program as bailey init would start it", file, s.Command, s.Args),
				"find out who wrote it: a project's file may come from someone else")
		}
		return goodFinding(name, fmt.Sprintf("%s; %s starts %q %q", path, file, s.Command, s.Args))
	}
	if err != nil {
		return goodFinding(name, "not on PATH, and not configured to use Bailey; Bailey does not need it")
	}
	return warningFinding(name,
		path+" is installed but not connected to Bailey here: neither .mcp.json nor ~/.claude.json starts bailey serve",
		cure)
}

// mcpServer is one MCP server in the files of Claude Code. The other fields are not read.
type mcpServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
}

// isOwnServer reports whether the server is this program, with the arguments that init writes. Another program of the same
// name may not be the user's choice.
func (s *mcpServer) isOwnServer() bool {
	return len(s.Args) == 1 && len(s.Env) == 0 && cli.IsSelf(s.Command)
}

// serverIn returns Bailey's server in a configuration file, or nil if it is not there.
func serverIn(file, here string) (*mcpServer, error) {
	text, err := cli.ReadConfig(file)
	if text == nil || err != nil {
		return nil, err
	}
	return baileyIn(text, here)
}

// baileyIn looks for Bailey in the servers of the file itself and in those of the project here.
func baileyIn(text []byte, here string) (*mcpServer, error) {
	type servers map[string]json.RawMessage
	var config struct {
		Servers  servers `json:"mcpServers"`
		Projects map[string]struct {
			Servers servers `json:"mcpServers"`
		} `json:"projects"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	for _, list := range []servers{config.Projects[here].Servers, config.Servers} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			var s mcpServer // a server of another kind has no command
			if json.Unmarshal(list[name], &s) == nil && filepath.Base(s.Command) == "bailey" && len(s.Args) > 0 &&
				s.Args[0] == "serve" {
				return &s, nil
			}
		}
	}
	return nil, nil
}
