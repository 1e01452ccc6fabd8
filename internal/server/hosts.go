package server

import (
	"bytes"
	"crypto/ed25519"
	"os/user"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/remote"
	"bailey/internal/source"
	"bailey/internal/sshca"
)

// hostAccess opens the SSH authority of the home when a call needs it.
type hostAccess struct {
	home localapi.Home
	pool *remote.Pool

	mu     sync.Mutex
	key    ed25519.PrivateKey // of access
	access *source.Access
}

func newHostAccess(home localapi.Home) *hostAccess {
	return &hostAccess{home: home, pool: &remote.Pool{Now: time.Now}}
}

// hasPrepared reports whether agents can read a host.
func (a *hostAccess) hasPrepared() bool {
	hosts, err := (&source.Registry{Dir: string(a.home)}).List()
	return err == nil && slices.ContainsFunc(hosts, source.Host.Prepared)
}

// newHostRunner returns the runner of calls on source hosts.
func (a *hostAccess) newHostRunner() bailey.Runner {
	return &source.Runner{Registry: &source.Registry{Dir: string(a.home)}, Access: a.open}
}

// open returns the access with the key that signs now: a rotation replaces it.
func (a *hostAccess) open() (*source.Access, error) {
	store, err := sshca.NewStore(sshca.StoreConfig{Path: filepath.Join(string(a.home), "ssh_ca"), Now: time.Now})
	if err != nil {
		return nil, err
	}
	key, err := store.Load()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.access != nil && bytes.Equal(a.key, key) {
		return a.access, nil
	}
	person, err := user.Current()
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "give the user of the gateway an account", "the user of the gateway has no name")
	}
	access, err := source.NewAccess(key, a.pool, person.Username)
	if err != nil {
		return nil, err
	}
	a.key, a.access = key, access
	return access, nil
}
