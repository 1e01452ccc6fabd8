package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/agenthook"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/workspace"
	"bailey/pack"
)

func grantOf(r apitype.TokenRequest, from gateway.Caller) gateway.Grant {
	return gateway.Grant{Agent: cmp.Or(r.Agent, apitype.LocalAgent), Scope: r.Scope,
		TTL:      time.Duration(r.TTL) * time.Second,
		Operator: from.Operator, Person: from.Principal.Person}
}

func issuedAs(bearer string, t apitype.Token, err error) (apitype.IssuedToken, error) {
	return apitype.IssuedToken{OK: true, Token: t, Bearer: bearer}, err
}

func (s *Server) addAgent(ctx context.Context, r apitype.TokenRequest,
	from gateway.Caller) (apitype.IssuedToken, error) {
	return issuedAs(s.agents.Add(ctx, grantOf(r, from)))
}

func (s *Server) rotateAgent(ctx context.Context, r apitype.TokenRequest,
	from gateway.Caller) (apitype.IssuedToken, error) {
	return issuedAs(s.agents.Rotate(ctx, grantOf(r, from), time.Duration(r.Overlap)*time.Second))
}

func (s *Server) addToken(ctx context.Context, r apitype.TokenRequest,
	from gateway.Caller) (apitype.IssuedToken, error) {
	return issuedAs(s.agents.Issue(ctx, grantOf(r, from)))
}

func (s *Server) removeAgent(ctx context.Context, r apitype.AgentName, from gateway.Caller) (apitype.AgentName, error) {
	return apitype.AgentName{OK: true, Agent: r.Agent}, s.agents.Remove(ctx, r.Agent, from.Operator,
		from.Principal.Person)
}

func (s *Server) revokeToken(ctx context.Context, r apitype.ID, from gateway.Caller) (apitype.Token, error) {
	return s.agents.Revoke(ctx, r.ID, from.Operator, from.Principal.Person)
}

func (s *Server) listAgents(context.Context, localapi.None, gateway.Caller) (apitype.AgentList, error) {
	return apitype.AgentList{Agents: s.agents.Names()}, nil
}

func (s *Server) listTokens(context.Context, localapi.None, gateway.Caller) (apitype.TokenList, error) {
	all := s.agents.List()
	for i := range all {
		all[i].Hash = "" // no client needs it
	}
	return apitype.TokenList{Tokens: all}, nil
}

// judgeToolCall decides about a tool call of an agent. Each part of it becomes a call with its own receipt.
func (s *Server) judgeToolCall(ctx context.Context, r apitype.ToolCall, from gateway.Caller) (agenthook.Verdict, error) {
	e := agenthook.Event{Tool: r.Tool, Dir: r.Dir, Shim: r.Shim, Session: r.Session, Input: map[string]string{}}
	for _, key := range agenthook.Inputs {
		e.Input[key], _ = r.Input[key].(string)
	}
	return s.hook.Judge(ctx, from.Call, e), nil
}

func (s *Server) judgeConfig() agenthook.Config {
	home, _ := os.UserHomeDir() // without a home, a path with ~ is not literal
	homes := workspace.Homes()
	masks := workspace.Masks(string(s.home), homes)
	var files []string
	for _, dir := range homes {
		// an agent that writes these could remove the hook
		for _, name := range []string{"settings.json", "settings.local.json", "hooks"} {
			files = append(files, filepath.Join(dir, ".claude", name))
		}
		files = append(files, filepath.Join(dir, ".claude.json"))
	}
	places := agenthook.FindPlaces(home, os.Getenv("CLAUDE_CONFIG_DIR"))
	places.Readable = func() []string { return s.settings.Applied().Readable }
	s.workspaces.Elsewhere = places.Permit
	ours := func(tool string) bool {
		return slices.ContainsFunc(s.shelf.Catalog().All(), func(m *pack.Capability) bool {
			return m.Isolation != pack.Agent && m.Isolation != pack.Model && strings.ReplaceAll(string(m.ID), ".", "_") == tool
		})
	}
	return agenthook.Config{Do: s.limit.Do, Catalog: s.shelf.Active, Ours: ours, Home: home, Root: os.Geteuid() == 0,
		Masks: slices.Concat(masks, files), Settings: files, Grants: agenthook.NewGrants(s.scribe.recordEvent),
		Verbs: s.commands.All, Open: s.commands.ForAgents}
}

// beginSession is open to every caller.
func (s *Server) beginSession(ctx context.Context, _ localapi.None, from gateway.Caller) (apitype.OwnSession, error) {
	bearer, id, err := s.sessions.Issue(ctx, from.Principal)
	if err != nil {
		return apitype.OwnSession{}, err
	}
	return apitype.OwnSession{OK: true, Session: id, Bearer: bearer}, nil
}

// installShims records an installation of shims before it happens. Only tools that a pack knows may be installed.
func (s *Server) installShims(ctx context.Context, r apitype.ShimTools, from gateway.Caller) (localapi.None, error) {
	known := shimmableTools(s.shelf.Catalog().All())
	for _, t := range r.Tools {
		if !slices.Contains(known, t) {
			return localapi.None{},
				bailey.NotFound.Errorf("packs know "+strings.Join(known, ", ")+
					"; run bailey pack onboard to create one for another tool",
					"no pack has a capability for %q", t)
		}
	}
	return s.noteShims(ctx, apitype.ShimInstallEvent, r, from)
}

// uninstallShims records a removal of shims before it happens.
func (s *Server) uninstallShims(ctx context.Context, r apitype.ShimTools,
	from gateway.Caller) (localapi.None, error) {
	return s.noteShims(ctx, apitype.ShimUninstallEvent, r, from)
}

func (s *Server) noteShims(ctx context.Context, kind string, r apitype.ShimTools,
	from gateway.Caller) (none localapi.None, err error) {
	if len(r.Tools) == 0 {
		return none, bailey.Invalid.New("the query has no command line",
			"run bailey gateway stop; client and gateway may have different versions")
	}
	return none, s.scribe.recordEvent(ctx, kind,
		map[string]any{"tools": r.Tools, "operator": from.Operator, "person": from.Principal.Person})
}

// shimmableTools returns the tools whose command lines can be mapped to calls.
func shimmableTools(list []*pack.Capability) (tools []string) {
	for _, m := range list {
		if m.Isolation == pack.Agent {
			continue
		}
		for _, words := range m.ArgvPattern() {
			tool, _, _ := strings.Cut(words, " ")
			tools = append(tools, tool)
		}
	}
	slices.Sort(tools)
	return slices.Compact(tools)
}

// interactiveFlags are arguments that make tools ask a person questions, which cannot be answered in a cage.
var interactiveFlags = []string{"-i", "-it", "-ti", "--interactive", "--edit"}

// resolveArgv returns the single call that a command line means in a directory.
func (s *Server) resolveArgv(argv []string, dir string) (gateway.Meant, error) {
	list := slices.DeleteFunc(s.shelf.Active(), func(m *pack.Capability) bool { return m.Isolation == pack.Agent })
	found := pack.Meanings(list, argv)
	switch {
	case len(found) == 0:
		return gateway.Meant{}, meansNothing(argv, pack.Near(list, argv))
	case len(found) > 1:
		var ids []string
		for _, m := range found {
			ids = append(ids, string(m.ID))
		}
		return gateway.Meant{}, bailey.NotFound.New("this command line may mean "+strings.Join(ids, " or "),
			"choose one: bailey run "+ids[0]+" …; bailey capabilities show "+ids[0]+" shows its inputs")
	case len(found[0].Inputs) != 1:
		return gateway.Meant{}, bailey.NotFound.Errorf("run them one by one",
			"this command line is %d calls of %s", len(found[0].Inputs), found[0].ID)
	}
	useProject(found[0].Capability, found[0].Inputs[0], dir, s.workspaces.Written())
	m := gateway.Meant{Capability: found[0].ID, Input: found[0].Inputs[0]}
	if _, given := m.Input[pack.StdinInput]; !given {
		if _, reads := found[0].Stdin(map[string]any{pack.StdinInput: ""}); reads {
			m.Stdin, m.MostStdin = pack.StdinInput, pack.MaxStdin
		}
	}
	return m, nil
}

// meansNothing returns an error that names similar capabilities.
func meansNothing(argv []string, near []*pack.Capability) error {
	e := bailey.NotFound.New("no capability does what this command line of "+argv[0]+" would",
		"run bailey capabilities list to show the capabilities")
	if i := slices.IndexFunc(argv[1:],
		func(w string) bool { return slices.Contains(interactiveFlags, w) || w == "--" }); i >= 0 && argv[i+1] != "--" {
		e.Message = fmt.Sprintf("%s %s may prompt a person, which a jail prevents, and no capability does it",
			argv[0], argv[i+1])
	}
	if len(near) > 0 {
		ids := capabilityNames(near)
		e.Hint = "near are " + strings.Join(ids, ", ") + "; run bailey capabilities show " + ids[0] +
			" for its inputs, and bailey run to call it"
	}
	return e
}

// showKeptSession returns the session with the given id. No query lists ids, so the caller must know the id.
func (s *Server) showKeptSession(_ context.Context, r apitype.KeptQuery,
	_ gateway.Caller) (apitype.KeptSession, error) {
	return s.kept.Find(r.Session)
}
