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

// patience bounds every wait: for the agent's next word, for a gateway to be gone. Builds of a project that nobody has built
// before have buildPatience, on a busy machine too.
const patience, buildPatience = 40 * time.Second, 4 * time.Minute

func patienceFor(tool string) time.Duration {
	if strings.HasPrefix(tool, "go_") {
		return buildPatience
	}
	return patience
}

// A model is the far end of the agent's conversation: it says what the story has it say, and hands over what the agent sent back.
type model struct {
	url   string
	heard chan scripted.Turn  // what the agent sends, one for each request of its conversation
	says  chan scripted.Reply // what the model answers it
}

func newModel(t *testing.T) *model {
	m := &model{heard: make(chan scripted.Turn), says: make(chan scripted.Reply)}
	server := httptest.NewServer(&scripted.Model{Prefix: prefix, Say: m.converse})
	t.Cleanup(server.CloseClientConnections)
	m.url = server.URL
	return m
}

// converse passes a turn to the story and waits for what it wants said.
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
