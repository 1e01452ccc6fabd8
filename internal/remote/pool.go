package remote

import (
	"context"
	"errors"
	"sync"
	"time"

	"bailey"
)

// Target is a host with the way to log in to it.
type Target struct {
	Key string // identifies the connections that may serve the target
	// Route returns the way to the host. It is called for a new connection only, because it starts a process.
	Route func(ctx context.Context) (Route, error)
	// Login returns the login and the time at which it expires, for example that of a certificate.
	Login func(ctx context.Context) (Login, time.Time, error)
}

// renewBefore is the time before the expiry of a login at which a new connection replaces the kept one.
const renewBefore = 30 * time.Second

// Pool keeps one connection for each host. It is safe for concurrent use.
type Pool struct {
	Dialer Dialer
	Now    func() time.Time
	Idle   time.Duration // after which an unused connection is closed; 0 means ten minutes

	mu     sync.Mutex
	closed bool
	conns  map[string]*kept
}

// kept is a connection of the pool, or the attempt to make one.
type kept struct {
	ready   chan struct{} // closed when client and err are set
	client  *Client
	err     error
	expires time.Time
	login   string // its text
	users   int
	stale   bool // closed when the last user is done
	idle    *time.Timer
}

const defaultIdle = 10 * time.Minute

// Run runs a command on a host, over a kept connection or a new one. If a kept connection proves broken before the
// command was sent, one new connection is made.
func (p *Pool) Run(ctx context.Context, t Target, cmd Command) (Result, error) {
	for attempt := 1; ; attempt++ {
		k, fresh, err := p.acquireConn(ctx, t)
		if err != nil {
			return Result{Code: -1}, err
		}
		res, err := k.client.Run(ctx, cmd)
		res.Login = k.login
		var network *networkError
		broken := err != nil && (errors.As(err, &network) || bailey.KindOf(err) == bailey.Unavailable)
		p.releaseConn(t.Key, k, broken)
		if broken && !res.Sent && !fresh && attempt == 1 && ctx.Err() == nil {
			continue
		}
		return res, err
	}
}

// acquireConn returns a connection, and whether it is new.
func (p *Pool) acquireConn(ctx context.Context, t Target) (*kept, bool, error) {
	name := t.Key
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, bailey.Unavailable.New("connections to hosts are closed", "start the gateway again")
	}
	k := p.conns[name]
	if k != nil && !k.expires.IsZero() && !p.Now().Before(k.expires.Add(-renewBefore)) {
		p.dropLocked(name, k)
		k = nil
	}
	fresh := k == nil
	if fresh {
		k = &kept{ready: make(chan struct{})}
		if p.conns == nil {
			p.conns = map[string]*kept{}
		}
		p.conns[name] = k
	}
	k.users++
	if k.idle != nil {
		k.idle.Stop()
	}
	p.mu.Unlock()
	if fresh {
		go p.openConn(context.WithoutCancel(ctx), t, k) // others may wait for it when this caller is gone
	}
	select {
	case <-k.ready:
	case <-ctx.Done():
		p.releaseConn(name, k, false)
		return nil, fresh, context.Cause(ctx)
	}
	if k.err != nil {
		p.releaseConn(name, k, true)
		return nil, fresh, k.err
	}
	return k, fresh, nil
}

// openConn makes the connection of k.
func (p *Pool) openConn(ctx context.Context, t Target, k *kept) {
	var client *Client
	route, err := t.Route(ctx)
	var login Login
	var expires time.Time
	if err == nil {
		login, expires, err = t.Login(ctx)
	}
	if err == nil {
		client, err = p.Dialer.Dial(ctx, route, login)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed {
		client.Close()
		err = bailey.Unavailable.New("connections to hosts are closed", "start the gateway again")
	}
	k.client, k.expires, k.login, k.err = client, expires, login.Text, err
	close(k.ready)
	if k.users == 0 { // all callers have left
		p.dropLocked(t.Key, k)
	}
}

// releaseConn returns a connection. A broken one is not used again.
func (p *Pool) releaseConn(name string, k *kept, broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.users--
	if broken {
		p.dropLocked(name, k)
	}
	if k.users > 0 || k.client == nil {
		return
	}
	if k.stale {
		p.closeStale(k)
		return
	}
	idle := p.Idle
	if idle == 0 {
		idle = defaultIdle
	}
	k.idle = time.AfterFunc(idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if k.users == 0 && !k.stale {
			p.dropLocked(name, k)
		}
	})
}

// dropLocked removes a connection from the pool and closes it as soon as no command uses it. The caller holds mu.
func (p *Pool) dropLocked(name string, k *kept) {
	if p.conns[name] == k {
		delete(p.conns, name)
	}
	k.stale = true
	p.closeStale(k)
}

// closeStale closes a connection that no command uses. The caller holds mu.
func (p *Pool) closeStale(k *kept) {
	if k.users == 0 && k.client != nil {
		k.client.Close()
	}
}

// CloseAll closes all connections at once, and with them the running commands: for the kill switch. The pool can be used
// again afterwards.
func (p *Pool) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, k := range p.conns {
		select {
		case <-k.ready:
			if k.client != nil {
				k.client.Close()
			}
		default: // the caller of openConn ends it
		}
		p.dropLocked(name, k)
	}
}

// Close closes all connections and refuses new ones.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.CloseAll()
}
