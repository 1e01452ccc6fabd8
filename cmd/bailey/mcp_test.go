package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
)

// yard is a fresh home and a repository with one commit, for tests that run the program itself.
type yard struct {
	t             *testing.T
	program, repo string
	env           []string
	home          localapi.Home
}

func newYard(t *testing.T) *yard {
	t.Helper()
	ktest.Require(t, "userns", "netns", "git")
	heedInterrupts()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("bailey") // this test binary, see TestMain
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, program: program, repo: filepath.Join(dir, "project"), home: localapi.Home(filepath.Join(dir, "home"))}
	y.env = append(os.Environ(), "HOME="+filepath.Join(dir, "me"), "BAILEY_HOME="+string(y.home), "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b")
	y.must("git", "init", "-q", y.repo)
	y.must("git", "-C", y.repo, "commit", "-q", "--allow-empty", "-m", "the first commit")
	t.Cleanup(func() { // if its home is removed, the gateway ends
		os.RemoveAll(string(y.home))
	})
	return y
}

// heedInterrupts makes child processes react to SIGINT and SIGHUP. A shell starts background processes with SIGINT
// ignored, nohup with SIGHUP, and children inherit that unless their parent handles the signal.
func heedInterrupts() {
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

func (y *yard) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = y.env
	return cmd
}

func (y *yard) must(name string, args ...string) string {
	y.t.Helper()
	out, err := y.command(name, args...).CombinedOutput()
	if err != nil {
		y.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestMCPConversation uses `bailey serve` with the protocol's own SDK. The gateway is killed during the session, which
// must continue with the next gateway.
func TestMCPConversation(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	cmd := y.command(y.program, "serve")
	cmd.Dir = y.repo
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "a client", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()

	list, err := session.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	for _, want := range []string{"git_log", "git_status", "system_echo"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("tools %v lack %s", names, want)
		}
	}
	call := func(name string, args map[string]any) (string, bool) {
		t.Helper()
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := json.Marshal(res.Content)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), res.IsError
	}
	if text, bad := call("git_log", map[string]any{"repo": ".", "limit": 3}); bad || !strings.Contains(text, "the first commit") {
		t.Errorf("allowed: %v %s", bad, text)
	}
	if text, bad := call("git_log", map[string]any{"repo": "/etc"}); !bad || !strings.Contains(text, "outside the workspace") {
		t.Errorf("refused: %v %s", bad, text)
	}
	if text, bad := call("git_log", map[string]any{"repo": ".", "limit": "x"}); !bad || !strings.Contains(text, "/limit") {
		t.Errorf("bad input: %v %s", bad, text)
	}
	if text, bad := call("no_such", nil); !bad || !strings.Contains(text, "no_such") && !strings.Contains(text, "no.such") {
		t.Errorf("unknown: %v %s", bad, text)
	}

	conn, err := peer.Dial(y.home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	y.must("kill", "-9", strconv.Itoa(conn.PID))
	conn.Close()
	if text := persist(ctx, t, session); !strings.Contains(text, "the first commit") {
		t.Errorf("after the gateway was killed: %s", text)
	}
	session.Close()

	var receipts apitype.ReceiptList
	decode(t, y.must(y.program, "receipts", "list", "--json"), &receipts)
	var got []string
	for _, r := range receipts.Receipts {
		got = append(got, string(r.Outcome))
		if r.Door != "mcp" {
			t.Errorf("%s came through %s", r.ID, r.Door)
		}
	}
	if want := "ok failed failed denied ok"; strings.Join(got, " ") != want {
		t.Errorf("receipts %v, want %s", got, want)
	}
	if out := y.must(y.program, "audit", "verify"); !strings.HasPrefix(out, "ok: ") {
		t.Error(out)
	}
}

// persist calls until a gateway answers. A call that reaches the socket of the dead gateway fails with an error that
// says so. It has no receipt, because no gateway read it.
func persist(ctx context.Context, t *testing.T, session *mcp.ClientSession) string {
	t.Helper()
	for range 5 {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "git_log", Arguments: map[string]any{"repo": "."}})
		if err == nil {
			b, _ := json.Marshal(res.Content)
			return string(b)
		}
		if !strings.Contains(err.Error(), "may have run") {
			t.Fatal(err)
		}
	}
	t.Fatal("no gateway answered")
	return ""
}

// TestInspector lists tools and calls two of them with the inspector of the protocol, a real npm client.
func TestInspector(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "mcp-inspector-cli")
	y := newYard(t)
	inspect := func(args ...string) string {
		cmd := y.command("mcp-inspector-cli", append([]string{"--cli", y.program, "serve"}, args...)...)
		cmd.Dir = y.repo
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := inspect("--method", "tools/list"); !strings.Contains(out, `"git_log"`) {
		t.Errorf("tools/list: %s", out)
	}
	if out := inspect("--method", "tools/call", "--tool-name", "git_log", "--tool-arg", "repo=."); !strings.Contains(out, "the first commit") {
		t.Errorf("allowed: %s", out)
	}
	if out := inspect("--method", "tools/call", "--tool-name", "git_log", "--tool-arg", "repo=/etc"); !strings.Contains(out, "outside the workspace") ||
		!strings.Contains(out, `"isError": true`) {
		t.Errorf("refused: %s", out)
	}
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}
