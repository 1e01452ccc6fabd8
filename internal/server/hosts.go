package server

import (
	"context"
	"os/user"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/localapi"
	"bailey/internal/remote"
	"bailey/internal/settings"
	"bailey/internal/source"
	"bailey/internal/sshca"
)

// HostAuthority issues certificates for source hosts: at the broker if the settings name a lease for that, otherwise with
// the key in the home.
type HostAuthority struct {
	sshca.Issuer
	// Name changes when another key signs: a rotation replaces it.
	Name string
	// Trusted returns the public keys that hosts must trust.
	Trusted func(context.Context) ([]byte, error)
}

// OpenHostAuthority returns the authority of a home. b is the setting broker, or nil.
func OpenHostAuthority(home localapi.Home, b *settings.Broker) (HostAuthority, error) {
	if b != nil && b.SSHLease != "" {
		c := broker.Certifier{Client: clientOf(b), Lease: b.SSHLease}
		return HostAuthority{c, "broker " + b.Socket + " " + b.SSHLease, c.Trusted}, nil
	}
	store, err := sshca.NewStore(sshca.StoreConfig{Path: filepath.Join(string(home), "ssh_ca"), Now: time.Now})
	if err != nil {
		return HostAuthority{}, err
	}
	key, err := store.Load()
	if err != nil {
		return HostAuthority{}, err
	}
	authority, err := sshca.New(sshca.Config{Signer: key, Now: time.Now})
	if err != nil {
		return HostAuthority{}, err
	}
	return HostAuthority{authority, authority.Fingerprint(), func(context.Context) ([]byte, error) { return store.Export() }}, nil
}

// OpenAccess returns the login with certificates of the authority, in the name of the user of this process.
func (a HostAuthority) OpenAccess(pool *remote.Pool) (*source.Access, error) {
	person, err := user.Current()
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "give this user an account", "the name of this user is not known")
	}
	return source.NewAccess(a.Issuer, pool, person.Username)
}

// hostAccess opens the SSH authority of the home when a call needs it.
type hostAccess struct {
	home   localapi.Home
	broker func() *settings.Broker
	pool   *remote.Pool

	mu     sync.Mutex
	name   string // of the authority of access
	access *source.Access
}

func newHostAccess(home localapi.Home, broker func() *settings.Broker) *hostAccess {
	return &hostAccess{home: home, broker: broker, pool: &remote.Pool{Now: time.Now}}
}

// hasPrepared reports whether agents can read a host.
func (a *hostAccess) hasPrepared() bool {
	hosts, err := (&source.Registry{Dir: string(a.home)}).List()
	return err == nil && slices.ContainsFunc(hosts, source.Host.Prepared)
}

// expandNames replaces labels by the hosts that have them.
func (a *hostAccess) expandNames(names []string) ([]string, error) {
	return (&source.Registry{Dir: string(a.home)}).Expand(names)
}

// newHostRunner returns the runner of calls on source hosts.
func (a *hostAccess) newHostRunner() bailey.Runner {
	return &source.Runner{Registry: &source.Registry{Dir: string(a.home)}, Access: a.openAccess}
}

// openAccess returns the access with the authority that signs now.
func (a *hostAccess) openAccess() (*source.Access, error) {
	authority, err := OpenHostAuthority(a.home, a.broker())
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.access != nil && a.name == authority.Name {
		return a.access, nil
	}
	access, err := authority.OpenAccess(a.pool)
	if err != nil {
		return nil, err
	}
	a.name, a.access = authority.Name, access
	return access, nil
}
