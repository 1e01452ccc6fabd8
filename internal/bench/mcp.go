package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// echoMessage is the input of the echo tool.
type echoMessage struct {
	Message string `json:"message"`
}

// serveEcho serves one tool, echo, over standard input and output. It uses only the SDK.
func serveEcho(ctx context.Context) error {
	server := sdk.NewServer(&sdk.Implementation{Name: "echo", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "echo", Description: "Say it again."},
		func(_ context.Context, _ *sdk.CallToolRequest, in echoMessage) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Message}}}, nil, nil
		})
	return server.Run(ctx, &sdk.StdioTransport{})
}

// syncsPerCall is the number of disk syncs in the sum that a call is compared with: for the intent, the outcome, and one more.
const syncsPerCall = 3

func (a *commands) benchMCPVerb() *cobra.Command {
	var b jailBench
	var peer bool
	cmd := &cobra.Command{
		Use: "mcp", Short: "Compare a call over MCP with an echo over MCP, a jail and the disk", Args: cobra.NoArgs,
		Long: `Time these operations in one run, in random order with a pause before each:

  sdk-echo   a tools/call of an echo, over the pipes of a process that is only a server of the same SDK
  fdatasync  512 bytes appended to a file and synced, as the ledger does it
  jail-warm  true in a warm jail, planned and run in this process: the row warm of bench jail
  call       a tools/call of a capability that runs true, over the pipes of bailey serve: decided, jailed,
             with a durable receipt

Row sum is the necessary work of a call: sdk-echo, jail-warm and three times fdatasync. "required" is the
limit of call as a ratio of sum. The benchmark has a separate home and gateway, on the disk of TMPDIR.`,
		Example: "  bailey bench mcp\n  bailey bench mcp --json -n 1000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if peer {
				return serveEcho(cmd.Context())
			}
			a.After = ""
			rows, err := b.measureMCP(cmd.Context(), a.Progress("measuring"))
			if err != nil {
				return err
			}
			return a.printRows(rows)
		},
	}
	cmd.Flags().IntVarP(&b.turns, "n", "n", 500, "number of runs of each row")
	cmd.Flags().BoolVar(&peer, "peer", false, "run the echo server")
	cmd.Flags().MarkHidden("peer")
	return cmd
}

func (b *jailBench) measureMCP(ctx context.Context, tell func(done, all int64)) ([]Row, error) {
	if err := b.checkTurns(); err != nil {
		return nil, err
	}
	defer b.tearDown()
	if err := b.setUp(); err != nil {
		return nil, err
	}
	times, err := b.measureWays(ctx, b.mcpWays(), tell)
	if err != nil {
		return nil, err
	}
	return newMCPRows(times), nil
}

func (b *jailBench) mcpWays() []way {
	var echo, door *lineClient
	var raw *rawFile
	line := []byte(strings.Repeat("x", benchLine-1) + "\n")
	return []way{
		{"sdk-echo", func(ctx context.Context) (err error) {
			echo, err = b.startMCPServer("bench", "mcp", "--peer")
			return err
		},
			func(context.Context) ([]time.Duration, error) {
				return echo.callTool("echo", map[string]any{"message": "hi"})
			}},
		{"fdatasync", func(context.Context) (err error) {
			if raw, err = newRawFile(b.dir); err == nil {
				b.closing = append(b.closing, func() { raw.Close() })
			}
			return err
		}, func(context.Context) ([]time.Duration, error) {
			start := time.Now()
			err := raw.Append(line)
			return []time.Duration{time.Since(start)}, err
		}},
		{"jail-warm", func(ctx context.Context) (err error) { b.warm, err = b.openJail(ctx, jail.Config{}); return err },
			func(ctx context.Context) ([]time.Duration, error) { return b.timeCall(ctx, b.warm) }},
		{"call", func(ctx context.Context) (err error) {
			if err = b.installBenchPack(); err == nil {
				door, err = b.startMCPServer("serve")
			}
			return err
		}, func(context.Context) ([]time.Duration, error) { return door.callTool("bench_true", map[string]any{}) }},
	}
}

// benchPack declares the only capability that is measured. benchRule permits it.
const (
	benchPack = `name: bench
version: 1.0.0
description: The pack that bench mcp calls.
capabilities:
  - name: "true"
    description: Do nothing.
    backend: {type: subprocess, command: %q, args: [], cwd: none}
    risk: low
    sideEffectClass: none
    reversibility: readOnly
    inputSchema: {type: object}
`
	benchRule = `@id("bench") @reason("it is measured") permit (principal, action == Action::"bench.true", resource);`
)

// installBenchPack installs benchPack and benchRule in the home. The first command starts the gateway of the home, which is a
// separate process.
func (b *jailBench) installBenchPack() error {
	pack, rules := filepath.Join(b.dir, "pack"), filepath.Join(b.dir, "rules")
	for name, text := range map[string]string{filepath.Join(pack, "pack.yaml"): fmt.Sprintf(benchPack, b.command[0]),
		filepath.Join(rules, "bench.cedar"): benchRule} {
		if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	b.closing = append(b.closing, func() { b.runBailey("gateway", "stop") })
	return errors.Join(b.runBailey("pack", "install", "--dev", pack, "--yes"),
		b.runBailey("policy", "apply", rules, "--yes"))
}

// baileyCommand returns a command that runs this program with the home of the benchmark, and with no session or token of another
// home.
func (b *jailBench) baileyCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(b.self, args...)
	cmd.Args[0], cmd.Dir = filepath.Base(os.Args[0]), b.dir // the name that this program expects
	cmd.Env = append(os.Environ(), "BAILEY_OPERATOR=1", "BAILEY_HOME="+string(b.homeDir()),
		localapi.SessionVariable+"=", localapi.TokenVariable+"=")
	return cmd
}

func (b *jailBench) runBailey(args ...string) error {
	out, err := b.baileyCommand(args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("bailey %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// lineClient speaks MCP over the pipes of a process, one message per line. It does nothing else, so it adds little to
// the measured time.
type lineClient struct {
	in  io.Writer
	out *bufio.Reader
	id  int
}

// startMCPServer starts this program as an MCP server, which runs until the benchmark ends.
func (b *jailBench) startMCPServer(args ...string) (*lineClient, error) {
	cmd := b.baileyCommand(args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.closing = append(b.closing, func() { in.Close(); io.Copy(io.Discard, out); cmd.Wait() })
	c := &lineClient{in: in, out: bufio.NewReader(out)}
	_, _, err = c.sendRequest("initialize",
		map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
			"clientInfo": map[string]any{"name": "bench", "version": apitype.Version}})
	if err == nil {
		_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	return c, err
}

// callTool calls a tool. A tool error is an error.
func (c *lineClient) callTool(tool string, args map[string]any) ([]time.Duration, error) {
	result, took, err := c.sendRequest("tools/call", map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return nil, err
	}
	var r struct {
		IsError bool
	}
	if err := json.Unmarshal(result, &r); err != nil || r.IsError {
		return nil, cmp.Or(err, fmt.Errorf("%s", result))
	}
	return []time.Duration{took}, nil
}

// sendRequest sends a request and waits for its response. took is the time from the request line to the response line.
func (c *lineClient) sendRequest(method string, params any) (result json.RawMessage, took time.Duration, err error) {
	c.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err != nil {
		return nil, 0, err
	}
	start := time.Now()
	if _, err := c.in.Write(append(b, '\n')); err != nil {
		return nil, 0, err
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return nil, 0, fmt.Errorf("%s: the server is gone: %w", method, err)
		}
		took := time.Since(start)
		var m struct {
			ID     *int
			Result json.RawMessage
			Error  json.RawMessage
		}
		switch err := json.Unmarshal(line, &m); {
		case err != nil:
			return nil, 0, fmt.Errorf("%s: %w: %q", method, err, line)
		case m.ID == nil || *m.ID != c.id: // a notification
		case m.Error != nil:
			return nil, 0, fmt.Errorf("%s: %s", method, m.Error)
		default:
			return m.Result, took, nil
		}
	}
}

func newMCPRows(times map[string][]time.Duration) []Row {
	rows, p50 := timeRows(times, "", "sdk-echo", "fdatasync", "jail-warm", "call")
	sum := Row{Name: "sum", N: rows[0].N, P50: p50["sdk-echo"] + p50["jail-warm"] + syncsPerCall*p50["fdatasync"]}
	rows[3] = rows[3].comparedTo("sum", rows[3].P50, sum.P50, 1.2)
	return slices.Insert(rows, 3, sum)
}
