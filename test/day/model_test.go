//go:build linux

package day

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"bailey/test/scripted"
)

// patience bounds every wait, for example for the agent's next request or the end of a gateway. buildPatience is for
// the first build of a project. Both must suffice on a busy machine.
const patience, buildPatience = 40 * time.Second, 4 * time.Minute

func patienceFor(tool string) time.Duration {
	if strings.HasPrefix(tool, "go_") {
		return buildPatience
	}
	return patience
}

// A model is the other end of the agent's conversation. It returns the replies of the script and passes on what the
// agent sends.
type model struct {
	url   string
	heard chan scripted.Turn  // one message per request of the conversation
	says  chan scripted.Reply // the model's replies
}

func newModel(t *testing.T) *model {
	m := &model{heard: make(chan scripted.Turn), says: make(chan scripted.Reply)}
	server := httptest.NewServer(&scripted.Model{Prefix: prefix, Say: m.converse})
	t.Cleanup(server.CloseClientConnections)
	m.url = server.URL
	return m
}

// converse passes a turn to the script and waits for the reply.
func (m *model) converse(ctx context.Context, now scripted.Turn) (scripted.Reply, bool) {
	select {
	case m.heard <- now:
	case <-ctx.Done():
		return scripted.Reply{}, false
	}
	select {
	case said := <-m.says:
		return said, true
	case <-ctx.Done():
		return scripted.Reply{}, false
	}
}
