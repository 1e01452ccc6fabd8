package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/mcp"
)

func (s *Server) exportTools(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return mcp.Export(mcpBackend{s: s}.Tools(ctx, from.Principal), text(q.Args, "format"))
}
