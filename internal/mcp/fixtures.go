package mcp

import (
	"context"
	"log/slog"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// NewFixtures is the door with what MCP's conformance suite asks for, and nothing of Bailey's: its tools, resources and prompts.
// Whoever asks is let in.
func NewFixtures(log *slog.Logger) *HTTP {
	h := newHTTP(HTTPConfig{Log: log, Enter: func(context.Context, Caller) (Config, func(), error) {
		return Config{Log: log, Hide: func(text string) string { return text }}, func() {}, nil
	}}, sdk.NewMemoryEventStore(nil))
	h.open = fixtures
	return h
}

func fixtures(t *seat) (*sdk.Server, error) {
	return sdk.NewServer(&sdk.Implementation{Name: "bailey-fixtures", Version: "1"}, nil), nil
}
