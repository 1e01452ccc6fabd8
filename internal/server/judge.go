package server

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/judge"
	"bailey/internal/localapi"
	"bailey/internal/workspace"
	"bailey/pack"
)

// judge decides about a tool call of an agent. Each part of it becomes a call with its own receipt.
func (s *Server) judge(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	e := judge.Event{Tool: text(q.Args, "tool"), Dir: text(q.Args, "dir"), Input: map[string]string{}}
	input, _ := q.Args["input"].(map[string]any)
	for _, key := range judge.Inputs {
		e.Input[key] = text(input, key)
	}
	return s.hook.Judge(ctx, from, e), nil
}

func (s *Server) judging() judge.Config {
	home, _ := os.UserHomeDir() // without a home, a path with ~ is not literal
	homes := workspace.Homes()
	masks := workspace.Masks(s.home, homes)
	for _, dir := range homes {
		// an agent that writes these could remove the hook
		for _, name := range []string{"settings.json", "settings.local.json", "hooks"} {
			masks = append(masks, filepath.Join(dir, ".claude", name))
		}
		masks = append(masks, filepath.Join(dir, ".claude.json"))
	}
	ours := func(tool string) bool {
		return slices.ContainsFunc(s.shelf.Catalog().All(), func(m *pack.Capability) bool {
			return m.Isolation != pack.Agent && strings.ReplaceAll(string(m.ID), ".", "_") == tool
		})
	}
	return judge.Config{Do: s.limit.Do, Catalog: s.shelf.Active, Ours: ours, Home: home, Masks: masks, Verbs: s.commands.All, Open: s.commands.ForAgents}
}
