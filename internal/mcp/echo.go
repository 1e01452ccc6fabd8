package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// echoMessage is the input and output of the echo tool.
type echoMessage struct {
	Message string `json:"message"`
}

// Echo serves one tool, echo, over standard input and output. It uses only the SDK. Benchmarks compare this front end
// with it.
func Echo(ctx context.Context) error {
	server := sdk.NewServer(&sdk.Implementation{Name: "echo", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "echo", Description: "Say it again."},
		func(_ context.Context, _ *sdk.CallToolRequest, in echoMessage) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Message}}}, nil, nil
		})
	return server.Run(ctx, &sdk.StdioTransport{})
}
