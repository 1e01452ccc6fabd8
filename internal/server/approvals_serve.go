package server

import (
	"context"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// serveNoted records in the ledger that the interface was opened, and by which operator right.
func (s *Server) serveNoted(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	return map[string]bool{"ok": true}, s.scribe.note(ctx, apitype.ApprovalsServeEvent, map[string]any{
		"listen": text(q.Args, "listen"), "tls": q.Args["tls"] == true, "operator": q.Operator, "person": from.Principal.Person})
}
