package server

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/modelproxy"
	"bailey/internal/redact"
	"bailey/internal/safefile"
	"bailey/internal/settings"
)

// openModel makes the model proxy. Its calls pass the same path as all others.
func (s *Server) openModel() (err error) {
	s.model, err = modelproxy.New(modelproxy.Config{
		Enter: func(ctx context.Context, token string, known bailey.SessionID, f modelproxy.Front) (bailey.Call, func(), error) {
			from, leave, err := s.gateway.EnterModel(ctx, token, known, f.Dir)
			if _, wall := s.sessions.Wall(from.Session.ID); err == nil && f.Upstream != "" && !wall {
				if leave != nil {
					leave()
				}
				return from, nil, bailey.Denied.New("only an agent in the agent jail connects to a provider by its own address",
					"point the client to the model proxy: bailey model start")
			}
			return from, leave, err
		},
		Do:       func(ctx context.Context, call bailey.Call) bailey.Result { return s.limit.Do(ctx, call) },
		Table:    func(id bailey.SessionID) *redact.Table { return s.redaction.Table(id) },
		Provider: s.modelProvider,
		Prompt:   s.hooks.runPrompt,
		Render:   s.hooks.renderFor,
		Restores: func() []string { return s.settings.Applied().Model.Restores },
		Prices:   s.modelPrices,
		Upstream: modelproxy.NewTransport(s.hostProxy),
		Log:      s.Log,
	})
	return err
}

// hostProxy returns the host's own proxy, or nil.
func (s *Server) hostProxy() *url.URL {
	if said := s.networkSettings(); said.Upstream != "" {
		if u, err := url.Parse(said.Upstream); err == nil {
			return u
		}
	}
	return nil
}

// modelProvider returns a provider with the settings that an operator applied.
func (s *Server) modelProvider(name string) modelproxy.Provider {
	p := modelproxy.Provider{Name: name, Base: settings.ModelProviders()[name], Hosts: settings.ModelHosts()[name]}
	for _, one := range s.settings.Applied().Model.Providers {
		if one.Name != name {
			continue
		}
		p.KeyFile, p.Lease = one.KeyFile, one.Lease
		if one.URL != "" {
			p.Base = one.URL
		}
	}
	return p
}

// modelPrices returns the prices that an operator applied.
func (s *Server) modelPrices() (list []modelproxy.Price) {
	for _, p := range s.settings.Applied().Model.Prices {
		list = append(list, modelproxy.Price(p))
	}
	return list
}

// modelListener decodes what the listener of a connection says of itself.
type modelListener struct{ *modelproxy.Proxy }

func (m modelListener) Serve(l net.Listener) error {
	return m.Proxy.Serve(l, func(c net.Conn) (f modelproxy.Front) {
		if c, ok := c.(*gateway.WebConn); ok {
			json.Unmarshal(c.Front, &f) // an unreadable description is that of a client without a provider
			f.Session, f.Dir = c.Bearer, c.Dir
		}
		return f
	})
}

func (m modelListener) Close(error) { m.Proxy.Close() }

// showModel is the query of `bailey model status`.
func (s *Server) showModel(context.Context, localapi.None, gateway.Caller) (st apitype.ModelStatus, err error) {
	st.Counts, st.Sessions, st.Wrap = s.model.Counts(), s.model.Sessions(), s.settings.Applied().Model.Wrap
	st.Restores = s.settings.Applied().Model.Restores
	for _, name := range []string{"anthropic", "openai", "gemini"} {
		p := s.modelProvider(name)
		row := apitype.ModelProvider{Name: name, URL: p.Base, Key: "none"}
		switch {
		case p.Lease != "":
			row.Key = "broker " + p.Lease
		case p.KeyFile != "":
			row.Key = p.KeyFile
			if info, err := os.Lstat(p.KeyFile); err != nil || safefile.Wide(info) {
				row.Fault = "the file does not exist, or other users can read it"
			}
		}
		st.Providers = append(st.Providers, row)
	}
	return st, nil
}
