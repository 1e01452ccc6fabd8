//go:build linux

package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey/internal/ktest"
)

// serveHTTP starts `bailey serve --http` and returns its address. The server ends with the test.
func (p *project) serveHTTP(t *testing.T) string {
	t.Helper()
	cmd := p.command(p.program, "serve", "--http", "127.0.0.1:0", "--json")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(line, &said) != nil || said.URL == "" {
		t.Fatalf("%q %v", line, err)
	}
	go io.Copy(io.Discard, out)
	return said.URL
}

// operate runs an operator command and returns its output.
func (p *project) operate(t *testing.T, args ...string) string {
	t.Helper()
	cmd := p.command(p.program, append(args, "--yes")...)
	cmd.Env = append(cmd.Env, "BAILEY_OPERATOR=1")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, &complaint)
	}
	return strings.TrimSpace(string(out))
}

// bearing sends a token with each request.
type bearing struct {
	bearer string
	*http.Transport
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.bearer)
	return b.Transport.RoundTrip(r)
}

func connectHTTP(t *testing.T, url, bearer string) (*sdk.ClientSession, error) {
	return sdk.NewClient(&sdk.Implementation{Name: "http-client", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: url, DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: bearing{bearer, &http.Transport{}}}}, nil)
}

func text(r *sdk.CallToolResult) (all string) {
	for _, c := range r.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			all += c.Text
		}
	}
	return all
}

// TestHTTP checks that a client of the installed program over HTTP can call and see only the capabilities that its
// token permits. If the token is revoked, the session must end at once; if the gateway is killed, only the session is
// lost.
func TestHTTP(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "git", "go")
	p := newProject(t)
	var tok struct{ ID, Bearer string }
	if err := json.Unmarshal([]byte(p.operate(t, "agent", "add", "reviewer", "--scope", "git.*", "--json")), &tok); err != nil {
		t.Fatal(err)
	}
	url := p.serveHTTP(t)
	if _, err := connectHTTP(t, url, "bt-"+strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("an unknown token: %v", err)
	}
	s, err := connectHTTP(t, url, tok.Bearer)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if !strings.HasPrefix(tool.Name, "git_") {
			t.Errorf("%s is listed, and out of scope", tool.Name)
		}
	}
	call := func(s *sdk.ClientSession, name string, args map[string]any) (string, bool) {
		t.Helper()
		r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		return text(r), !r.IsError
	}
	repo := map[string]any{"repo": "."}
	if out, ok := call(s, "git_log", repo); !ok || !strings.Contains(out, "the first commit") {
		t.Errorf("git_log: %s", out)
	}
	if out, ok := call(s, "system_date", nil); ok || !strings.Contains(out, "does not allow system.date") {
		t.Errorf("out of scope: %s", out)
	}

	receipts, err := s.ListResources(t.Context(), nil)
	if err != nil || len(receipts.Resources) != 2 {
		t.Fatalf("the session's receipts: %+v %v", receipts, err)
	}
	one, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: receipts.Resources[1].URI})
	if err != nil || len(one.Contents) != 1 || !strings.Contains(one.Contents[0].Text, `"capability":"git.log"`) || !strings.Contains(one.Contents[0].Text, `"agent":"reviewer"`) {
		t.Errorf("its first: %+v %v", one, err)
	}
	p.kill(t)
	// the session was lost with the gateway; the listener remains, and the next gateway knows the token
	s, err = connectHTTP(t, url, tok.Bearer)
	if err != nil {
		t.Fatal(err)
	}
	if out, ok := call(s, "git_log", repo); !ok || !strings.Contains(out, "the first commit") {
		t.Errorf("after the gateway was killed: %s", out)
	}
	p.operate(t, "token", "revoke", tok.ID)
	if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "git_log", Arguments: repo}); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("after the token was revoked: %v", err)
	}
	all, err := p.command(p.program, "receipts", "list", "--json").Output()
	if n := strings.Count(string(all), `"agent":"reviewer"`); err != nil || n != 3 {
		t.Errorf("%d receipts name the agent, of 3 calls (%v)\n%s", n, err, all)
	}
}

// kill kills the gateway without warning.
func (p *project) kill(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.home(), "ledger", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *project) home() string { return filepath.Join(filepath.Dir(p.dir), ".bailey") }

// TestHTTPClientIsGone checks that if a client dies during a call, the cage is ended and the receipt says so.
func TestHTTPClientIsGone(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "git", "go")
	p := newProject(t)
	bearer := p.operate(t, "token", "add")
	url := p.serveHTTP(t)
	index := filepath.Join(p.dir, ".git", "index") // a process that reads it blocks forever
	os.Remove(index)
	if err := syscall.Mkfifo(index, 0o600); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"git_status","arguments":{"repo":"."},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: git_status\r\nContent-Length: %d\r\n\r\n%s", address, bearer, len(body), body)
	look := func(says string) string {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			out, err := p.command(p.program, "receipts", "list", "--json").Output()
			if err == nil && strings.Contains(string(out), says) {
				return string(out)
			}
			if time.Now().After(deadline) {
				t.Fatalf("the receipts never say %q: %s (%v)", says, out, err)
			}
		}
	}
	look(`"capability":"git.status"`)
	conn.Close()
	if out := look(`"outcome":"killed"`); !strings.Contains(out, "the caller disconnected") {
		t.Errorf("the receipt: %s", out)
	}
	status, err := p.command(p.program, "status", "--json").Output()
	if err != nil || !strings.Contains(string(status), `"calls":[]`) {
		t.Errorf("what lives after that: %s (%v)", status, err)
	}
}

// TestTwoHundredClients checks that 200 concurrent clients, by HTTP and then by the socket, all get answers, and that
// the gateway's memory does not grow.
func TestTwoHundredClients(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "git", "go")
	p := newProject(t)
	bearer := p.operate(t, "token", "add")
	url := p.serveHTTP(t)
	const clients = 200
	for _, way := range []struct {
		name    string
		connect func() (*sdk.ClientSession, error)
	}{
		{"http", func() (*sdk.ClientSession, error) { return connectHTTP(t, url, bearer) }},
		{"socket", func() (*sdk.ClientSession, error) {
			cmd := p.command(p.program, "serve")
			var complaint bytes.Buffer
			cmd.Stderr = &complaint
			s, err := sdk.NewClient(&sdk.Implementation{Name: "socket-client", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
			if err != nil {
				err = fmt.Errorf("%w: %s", err, &complaint)
			}
			return s, err
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			sessions := make([]*sdk.ClientSession, clients)
			each := func(do func(i int) error) {
				var all sync.WaitGroup
				for i := range clients {
					all.Go(func() {
						if err := do(i); err != nil {
							t.Errorf("client %d: %v", i, err)
						}
					})
				}
				all.Wait()
			}
			each(func(i int) (err error) { sessions[i], err = way.connect(); return err })
			if t.Failed() {
				return
			}
			var sizes []int
			for range 3 {
				each(func(i int) error {
					want := fmt.Sprintf("of client %d", i)
					r, err := sessions[i].CallTool(t.Context(), &sdk.CallToolParams{Name: "system_echo", Arguments: map[string]any{"message": want}})
					if err == nil && (r.IsError || !strings.Contains(text(r), want)) {
						err = fmt.Errorf("%s", text(r))
					}
					return err
				})
				sizes = append(sizes, p.resident(t))
			}
			each(func(i int) error { return sessions[i].Close() })
			t.Logf("the gateway's resident memory after each round: %v KiB", sizes)
			if sizes[2] > sizes[1]+sizes[1]/4+8<<10 {
				t.Errorf("the gateway's memory grows: %v KiB", sizes)
			}
		})
	}
}

// resident returns the smallest memory in KiB that the gateway holds within a second, because it ends sessions and
// returns memory meanwhile.
func (p *project) resident(t *testing.T) int {
	t.Helper()
	least := p.residentNow(t)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		least = min(least, p.residentNow(t))
	}
	return least
}

func (p *project) residentNow(t *testing.T) int {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join(p.home(), "ledger", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(lock)), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no VmRSS: %s", status)
	return 0
}
