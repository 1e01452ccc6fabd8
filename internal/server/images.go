package server

import (
	"context"

	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// recordImage records in the ledger that an operator adds or removes an image, which the command line does itself.
func (s *Server) recordImage(ctx context.Context, c apitype.ImageChange, from gateway.Caller) (none localapi.None, err error) {
	return none, s.scribe.recordEvent(ctx, apitype.ImageEvent, map[string]any{
		"action": c.Action, "name": c.Name, "digest": c.Digest, "os": c.OS, "release": c.Release,
		"from": s.redaction.Text(from.Session.ID, c.From), "operator": from.Operator, "person": from.Principal.Person})
}
