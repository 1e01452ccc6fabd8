package direct

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/modelproxy"
)

// modelHosts are the hosts to which agents send requests for models. The model proxy answers for them, if the settings say
// so; it knows the endpoints of their models and refuses others.
var modelHosts = []string{"api.anthropic.com", "api.openai.com", "chatgpt.com", "generativelanguage.googleapis.com"}

// modelKeys are the variables with the keys of providers.
var modelKeys = map[string][]string{"anthropic": {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"},
	"openai": {"OPENAI_API_KEY", "CODEX_API_KEY"}, "gemini": {"GEMINI_API_KEY"}}

// markModels opens the TLS of the endpoints whose requests pass the model proxy.
func (w *agentRun) markModels(list []bailey.Endpoint) []bailey.Endpoint {
	if !w.through.Wrap {
		return list
	}
	for i, e := range list {
		if w.isModel(e) && !e.Plain {
			list[i].Inspect = true
		}
	}
	return list
}

// isModel reports whether an endpoint is a usual host of models, that of a provider of the settings, or the agent's base
// URL.
func (w *agentRun) isModel(e bailey.Endpoint) bool {
	if slices.Contains(modelHosts, strings.ToLower(e.Host)) {
		return true
	}
	urls := []string{os.Getenv(w.agent.Base)}
	for _, p := range w.through.Providers {
		urls = append(urls, p.URL)
	}
	return slices.ContainsFunc(urls, func(text string) bool {
		u, err := url.Parse(text)
		return text != "" && err == nil && strings.EqualFold(u.Hostname(), e.Host)
	})
}

// withoutModelKeys leaves out the keys that the model proxy adds itself. The agent gets a word in their place, so that it
// does not ask for a login.
func (w *agentRun) withoutModelKeys(secret []string) []string {
	if !w.through.Wrap {
		return secret
	}
	for _, p := range w.through.Providers {
		names := modelKeys[p.Name]
		if p.KeyFile == "" && p.Lease == "" || !slices.Contains(w.agent.Env, names[0]) {
			continue
		}
		secret = slices.DeleteFunc(secret, func(v string) bool {
			name, _, _ := strings.Cut(v, "=")
			return slices.Contains(names, name)
		})
		secret = append(secret, names[0]+"=the-model-proxy-has-the-key")
	}
	return secret
}

// modelTransports returns a transport to the gateway for each endpoint of a model. client has the session of the agent,
// whose bearer never enters the cage.
func (w *agentRun) modelTransports(client *localapi.Client) map[string]http.RoundTripper {
	all := map[string]http.RoundTripper{}
	if !w.through.Wrap {
		return all
	}
	for _, e := range w.job.Network.Endpoints {
		if w.isModel(e) {
			all[e.String()] = newModelTransport(client, modelproxy.Front{Upstream: e.String(), Plain: e.Plain})
		}
	}
	return all
}

// modelTransport sends requests to the model proxy of the gateway.
type modelTransport struct{ http.Transport }

func newModelTransport(client *localapi.Client, front modelproxy.Front) *modelTransport {
	t := &modelTransport{http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20}}
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		says, err := json.Marshal(front)
		if err != nil {
			return nil, err
		}
		c, err := client.Model(ctx, says)
		if err != nil {
			return nil, err
		}
		conn, ok := c.(net.Conn)
		if !ok {
			return nil, errors.New("the connection to the gateway cannot carry HTTP")
		}
		return conn, nil
	}
	return t
}

// RoundTrip sends a request of the client. Between the two processes there is no TLS.
func (t *modelTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return t.Transport.RoundTrip(r)
}
