package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// said is what the echo gets and gives back.
type said struct {
	Message string `json:"message"`
}

// Echo serves one tool, echo, over stdin and stdout, as a program does that has the SDK and nothing of Bailey's: it is what this
// door is measured against.
func Echo(ctx context.Context) error {
	server := sdk.NewServer(&sdk.Implementation{Name: "echo", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "echo", Description: "Say it again."}, func(_ context.Context, _ *sdk.CallToolRequest, in said) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Message}}}, nil, nil
	})
	return server.Run(ctx, &sdk.StdioTransport{})
}
