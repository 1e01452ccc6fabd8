//go:build linux

package day

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// overHTTP connects another agent over HTTP with its own token and a smaller scope, until the token is revoked.
func (d *day) overHTTP() {
	u := d.u
	var token struct{ ID, Bearer string }
	d.decode(u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "agent", "add", "reviewer", "--scope", "git.log,git.diff", "--yes", "--json"), &token)
	door := u.command(u.project, "bailey", "serve", "--http", "127.0.0.1:0", "--json")
	out, err := door.StdoutPipe()
	if err == nil {
		err = door.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	defer door.Wait()
	defer door.Process.Signal(syscall.SIGTERM)
	var served struct{ URL string }
	if line, err := bufio.NewReader(out).ReadBytes('\n'); err != nil || json.Unmarshal(line, &served) != nil {
		d.t.Fatalf("%s %v", line, err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "a client", Version: "1"}, nil).Connect(d.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: served.URL, DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: shows(token.Bearer)}}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer session.Close()
	first := d.agent
	defer func() { d.agent = first }()
	d.agent = &plainClient{d.t, session}
	if got := d.agent.tools(); !slices.Equal(got, []string{"git_diff", "git_log"}) {
		d.t.Errorf("the agent of the token is offered %v", got)
	}
	d.allowed("git_log", map[string]any{"repo": "."}, "lay the first stone")
	d.refused("denied", "git_status", map[string]any{"repo": "."}, "of reviewer does not allow git.status")
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "token", "revoke", token.ID, "--yes")
	if got := d.agent.call("git_log", map[string]any{"repo": "."}); !got.Bad || !strings.Contains(got.Text, "Unauthorized") {
		d.t.Errorf("with a token that was revoked: %s", got.Text)
	}
	if got := u.must(u.project, "bailey", "receipts", "list", "--json"); strings.Count(got, `"agent":"reviewer"`) != 2 {
		d.t.Errorf("the receipts of the agent's two calls: %s", got)
	}
}

// shows is a bearer token that is sent with each request.
type shows string

func (s shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(s))
	return http.DefaultTransport.RoundTrip(r)
}
