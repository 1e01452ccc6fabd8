package server

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/ledger/notary"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
)

// brokerLender borrows credentials from the broker that the settings name at the time of the call.
type brokerLender struct{ at func() broker.Client }

func (l brokerLender) Scope(ctx context.Context, wants []bailey.Want) ([]bailey.LeaseScope, error) {
	return l.at().Scope(ctx, wants)
}

func (l brokerLender) Lend(ctx context.Context, loan bailey.Loan) (bailey.Lease, error) {
	return l.at().Lend(ctx, loan)
}

// brokerClient returns a client for the configured broker. Without a broker, the client lends nothing.
func (s *Server) brokerClient() broker.Client { return clientOf(s.brokerSetting()) }

// brokerSetting returns the setting broker, or nil.
func (s *Server) brokerSetting() *settings.Broker { return s.settings.Applied().Broker }

func clientOf(b *settings.Broker) broker.Client {
	if b == nil {
		return broker.Client{}
	}
	return broker.Client{Socket: b.Socket, UID: b.UID}
}

// helloPatience limits how long a query waits for the broker.
const helloPatience = 2 * time.Second

// askBroker asks the broker for its state. It returns nil if b is nil.
func askBroker(ctx context.Context, b *settings.Broker) *apitype.BrokerStatus {
	if b == nil {
		return nil
	}
	s := &apitype.BrokerStatus{Socket: b.Socket, UID: b.UID, SameUID: b.UID == os.Geteuid()}
	c := clientOf(b)
	c.Patience = helloPatience
	h, err := c.Hello(ctx)
	if err != nil {
		s.Fault, s.Cure = err.Error(), cmp.Or(bailey.HintOf(err), "docs/broker.md")
		return s
	}
	s.Running, s.Changed, s.Leases, s.Wide = true, h.Changed, h.Leases, h.Wide
	return s
}

// keyring finds the keys of the audit log: in files of the home, or at the broker if the settings say so. The settings
// are read for each signature, so a change takes effect with the next one.
type keyring struct {
	files notary.KeyFiles
	at    func() *settings.Broker
}

func (s *Server) newKeyring(home localapi.Home) keyring {
	return keyring{notary.KeyFiles{Dir: home.Keys()}, s.brokerSetting}
}

// keyPatience limits how long a signature waits for the broker.
const keyPatience = 5 * time.Second

// signingBroker returns the broker that signs, or nil if the keys are in the home.
func (k keyring) signingBroker() *broker.Client {
	b := k.at()
	if b == nil || !b.CheckpointKey {
		return nil
	}
	c := clientOf(b)
	c.Patience = keyPatience
	return &c
}

func (k keyring) Make() (crypto.Signer, error) {
	c := k.signingBroker()
	if c == nil {
		return k.files.Make()
	}
	public, err := c.MakeKey(context.Background())
	return brokerKey{*c, public}, err
}

// Find returns the signer for the public key. If the broker should sign but the private key is still a file of the
// home, that key only signs the announcement of the broker's key.
func (k keyring) Find(public ed25519.PublicKey) (crypto.Signer, error) {
	c := k.signingBroker()
	private, err := k.files.Find(public)
	missing := errors.Is(err, bailey.NotFound)
	switch {
	case c == nil && missing:
		return nil, bailey.NotFound.New(err.Error(),
			"if the broker created it, set broker: {…, checkpointKey: true} in settings.yaml, then run bailey init --apply; otherwise "+bailey.HintOf(err))
	case c == nil || err != nil && !missing:
		return private, err
	case !missing:
		return retiringKey{private}, nil
	}
	return brokerKey{*c, public}, c.HasKey(context.Background(), public)
}

// Forget removes a key from the home. The gateway cannot remove a key of the broker.
func (k keyring) Forget(public ed25519.PublicKey) error {
	if _, err := k.files.Find(public); errors.Is(err, bailey.NotFound) {
		return nil
	}
	return k.files.Forget(public)
}

// mayLeave returns an error if the broker holds the key, because the broker announces no successor. It must be called
// before a rotation creates anything.
func (k keyring) mayLeave(public ed25519.PublicKey) error {
	by, err := k.Find(public)
	if _, held := by.(brokerKey); err == nil && held {
		return bailey.Conflict.New("the log's key is the broker's, which cannot be rotated",
			"Do not delete this key: the broker holds the only copy. To use a different key, stop the gateway and move ledger/, checkpoint and checkpoint.cosigned aside together; a new ledger will be started.")
	}
	return err
}

// keyLocation returns "" if the settings place the key in the home.
func (k keyring) keyLocation() string {
	switch {
	case k.signingBroker() == nil:
		return ""
	case len(k.files.Publics()) > 0:
		return apitype.KeyAtHome
	}
	return apitype.KeyAtBroker
}

// brokerKey signs at the broker, which holds the private key.
type brokerKey struct {
	c      broker.Client
	public ed25519.PublicKey
}

func (k brokerKey) Public() crypto.PublicKey { return k.public }

func (k brokerKey) Sign(_ io.Reader, text []byte, opts crypto.SignerOpts) ([]byte, error) {
	if opts.HashFunc() != 0 {
		return nil, errors.New("a log's key signs texts, not digests")
	}
	return k.c.SignLog(context.Background(), k.public, text)
}

// retiringKey is a key in the home that should be replaced by one of the broker.
type retiringKey struct{ crypto.Signer }

// keyChange is the prefix of the text with which a key announces its successor (audit.KeyChange).
const keyChange = "bailey.audit/key/v1\n"

func (l retiringKey) Sign(rand io.Reader, text []byte, opts crypto.SignerOpts) ([]byte, error) {
	if !strings.HasPrefix(string(text), keyChange) {
		return nil, bailey.Conflict.New("settings.yaml sets checkpointKey, but the log's key is a file of the home",
			"run bailey audit key --rotate, which replaces it by a key of the broker and removes the file; or remove checkpointKey from settings.yaml and run bailey init --apply")
	}
	return l.Signer.Sign(rand, text, opts)
}
