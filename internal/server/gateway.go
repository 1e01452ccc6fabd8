package server

import (
	"io"
	"log/slog"

	"bailey/internal/gateway"
)

// NewLog returns the gateway's log. Errors and panics can carry data of calls into it, so each record is redacted.
func NewLog(r *gateway.Redaction, to io.Writer) *slog.Logger {
	return slog.New(r.Log(slog.NewTextHandler(to, nil)))
}
