package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"bailey"
)

// Login is how a client identifies itself and the host.
type Login struct {
	User    string
	Signers func() ([]ssh.Signer, error)
	// Pinned are the host keys that were seen at the preparation of the host. No other key is accepted. If it is empty,
	// the known hosts of the route decide.
	Pinned []ssh.PublicKey
	// Text describes the login for receipts, for example the certificate.
	Text string
}

// Limits of connecting.
const (
	connectTimeout  = 15 * time.Second
	connectAttempts = 5
	firstPause      = 2 * time.Second
	longestPause    = 30 * time.Second
)

// Dialer connects to hosts.
type Dialer struct {
	// Pause is the first time between two attempts; 0 means two seconds. It doubles, up to 30 s.
	Pause time.Duration
}

// Client is a connection to a host.
type Client struct {
	*ssh.Client
	HostKey ssh.PublicKey
	closers []func() error // connections to the hosts in between, and agents
}

// Close closes the connection and those to the hosts in between.
func (c *Client) Close() error {
	var errs []error
	if c.Client != nil {
		errs = append(errs, c.Client.Close())
	}
	for _, do := range slices.Backward(c.closers) {
		errs = append(errs, do())
	}
	return errors.Join(errs...)
}

// Dial connects to a host. The hosts in between are logged in to as the person. Only failures of the network are tried
// again, since sshd locks out an address after failed logins (PerSourcePenalties of sshd_config(5)).
func (d Dialer) Dial(ctx context.Context, r Route, login Login) (*Client, error) {
	pause := d.Pause
	if pause == 0 {
		pause = firstPause
	}
	for attempt := 1; ; attempt++ {
		c, err := d.dialOnce(ctx, r, login)
		var network *networkError
		if err == nil || attempt == connectAttempts || !errors.As(err, &network) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// networkError is a failure before the host key was checked.
type networkError struct{ error }

func (e *networkError) Unwrap() error { return e.error }

func (d Dialer) dialOnce(ctx context.Context, r Route, login Login) (c *Client, err error) {
	c = &Client{}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	var through *ssh.Client
	for _, name := range r.Jumps {
		jump, err := Resolver{Config: r.Config}.Route(ctx, name)
		if err != nil {
			return c, err
		}
		person, done := PersonLogin(jump)
		c.closers = append(c.closers, done)
		if through, _, err = dialThrough(ctx, through, jump, person); err != nil {
			return c, err
		}
		c.closers = append(c.closers, through.Close)
	}
	c.Client, c.HostKey, err = dialThrough(ctx, through, r, login)
	return c, err
}

// dialThrough makes one connection, directly or through another host.
func dialThrough(ctx context.Context, through *ssh.Client, r Route, login Login) (*ssh.Client, ssh.PublicKey, error) {
	check, algorithms, err := hostKeyCheck(r, login.Pinned)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	address := net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
	var conn net.Conn
	if through == nil {
		conn, err = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = through.DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return nil, nil, &networkError{
			bailey.Unavailable.Wrapf(err, "check the network, and try: ssh "+r.Name, "cannot connect to %s", r.Name),
		}
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var key ssh.PublicKey
	inner, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: login.User,
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(login.Signers)},
		HostKeyCallback: func(name string, addr net.Addr, k ssh.PublicKey) error {
			key = k
			return check(name, addr, k)
		},
		HostKeyAlgorithms: algorithms,
		ClientVersion:     "SSH-2.0-Bailey",
	})
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return ssh.NewClient(inner, channels, requests), key, nil
	}
	conn.Close()
	var refused *bailey.Error
	switch {
	case errors.As(err, &refused):
		return nil, nil, refused
	case ctx.Err() != nil:
		return nil, nil, &networkError{
			bailey.Unavailable.Wrapf(context.Cause(ctx), "check the network", "%s did not answer in time", r.Name),
		}
	case strings.Contains(err.Error(), "unable to authenticate"):
		return nil, nil, explainRefusal(err, r.Name, login)
	case key == nil:
		return nil, nil, &networkError{
			bailey.Unavailable.Wrapf(err, "check that an SSH server answers there", "%s closed the connection", r.Name),
		}
	}
	return nil, nil, bailey.Unavailable.Wrapf(err, "try: ssh "+r.Name, "the connection to %s failed", r.Name)
}

// explainRefusal returns the error of a refused login. A server does not say why it refuses (RFC 4252, section 5.1), so the
// certificate of the login is examined.
func explainRefusal(err error, host string, login Login) error {
	signers, _ := login.Signers()
	for _, s := range signers {
		if cert, ok := s.PublicKey().(*ssh.Certificate); ok {
			why, hint := refusedCertificate(cert, host, login.User, time.Now())
			return bailey.Denied.Wrapf(err, hint, "%s refused the login of %s: %s", host, login.User, why)
		}
	}
	return bailey.Denied.Wrapf(err, "for an account of your own try: ssh "+host+"; for a prepared host run: bailey source doctor "+host,
		"%s refused the login of %s", host, login.User)
}

// refusedCertificate returns the most likely reason for which a host refuses a certificate, and the cure.
func refusedCertificate(cert *ssh.Certificate, host, user string, now time.Time) (why, hint string) {
	const clock = "check the clock of this machine: a new certificate is issued for each connection, and is valid at once"
	at := func(t uint64) string { return time.Unix(int64(min(t, math.MaxInt64)), 0).UTC().Format(time.RFC3339) }
	switch seconds := uint64(max(now.Unix(), 0)); {
	case seconds >= cert.ValidBefore:
		return "the certificate expired at " + at(cert.ValidBefore), clock
	case seconds < cert.ValidAfter:
		return "the certificate is not valid before " + at(cert.ValidAfter), clock
	case !slices.Contains(cert.ValidPrincipals, user):
		return fmt.Sprintf("the certificate is for the principal %q", cert.ValidPrincipals),
			"use a certificate for " + user + ": one for another principal never logs in there"
	}
	return "it does not trust the authority " + ssh.FingerprintSHA256(cert.SignatureKey) + " that signed the certificate, or its clock is wrong",
		"compare with bailey ssh-ca show, then run: bailey source prepare " + host + "; if the key is the same, check the clock of the host"
}

// hostKeyCheck returns the check of a host key, and the algorithms that the host may use: only those of keys that can be
// accepted, because a host with several keys would otherwise offer one that is not known.
func hostKeyCheck(r Route, pinned []ssh.PublicKey) (ssh.HostKeyCallback, []string, error) {
	if len(pinned) > 0 {
		return func(_ string, _ net.Addr, key ssh.PublicKey) error {
			for _, p := range pinned {
				if bytes.Equal(p.Marshal(), key.Marshal()) {
					return nil
				}
			}
			return bailey.Denied.Errorf("find out why, and only then run: bailey source prepare "+r.Name,
				"the host key of %s has changed: it is now %s", r.Name, ssh.FingerprintSHA256(key))
		}, algorithmsOf(pinned), nil
	}
	files := slices.DeleteFunc(slices.Clone(r.KnownHosts), func(file string) bool {
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
	known, err := knownhosts.New(files...)
	if err != nil {
		return nil, nil, bailey.Invalid.Wrapf(err, "correct the file", "the known hosts for %s cannot be read", r.Name)
	}
	name := net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
	if r.Alias != "" {
		name = net.JoinHostPort(r.Alias, "22")
	}
	// A key that no file contains makes the callback name the keys that are known.
	var wanted *knownhosts.KeyError
	if err := known(name, &net.TCPAddr{}, noKey{}); !errors.As(err, &wanted) {
		return nil, nil, bailey.Invalid.Wrapf(
			err,
			"correct the known hosts",
			"the known hosts for %s cannot be searched",
			r.Name,
		)
	}
	if len(wanted.Want) == 0 {
		return nil, nil, bailey.Denied.Errorf("connect once with ssh "+r.Name+" and compare the fingerprint",
			"the host key of %s is not known", r.Name)
	}
	keys := make([]ssh.PublicKey, len(wanted.Want))
	for i, k := range wanted.Want {
		keys[i] = k.Key
	}
	return func(_ string, _ net.Addr, key ssh.PublicKey) error {
		if err := known(name, &net.TCPAddr{}, key); err != nil {
			return bailey.Denied.Wrapf(err, "find out why before you trust the new key",
				"the host key of %s is not the known one: it is %s", r.Name, ssh.FingerprintSHA256(key))
		}
		return nil
	}, algorithmsOf(keys), nil
}

// algorithmsOf returns the algorithms of host keys, the strongest hash first.
func algorithmsOf(keys []ssh.PublicKey) (list []string) {
	for _, k := range keys {
		names := []string{k.Type()}
		if k.Type() == ssh.KeyAlgoRSA {
			names = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, n := range names {
			if !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list
}

// noKey is a public key that no host has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

// PersonLogin is the login of the person, with the agent and the key files of the route. done must be called when the
// connection has ended.
func PersonLogin(r Route) (login Login, done func() error) {
	var conn net.Conn
	done = func() error {
		if conn == nil {
			return nil
		}
		return conn.Close()
	}
	return Login{User: r.User, Signers: func() (signers []ssh.Signer, err error) {
		if r.Agent != "" && conn == nil {
			if conn, err = net.Dial("unix", r.Agent); err == nil {
				if signers, err = agent.NewClient(conn).Signers(); err != nil {
					signers = nil
				}
			}
		}
		locked := ""
		for _, file := range r.Identities {
			data, err := os.ReadFile(file)
			if err != nil {
				continue // as ssh does: most of the files in its list do not exist
			}
			signer, err := ssh.ParsePrivateKey(data)
			var missing *ssh.PassphraseMissingError
			switch {
			case errors.As(err, &missing):
				locked = file
			case err == nil:
				signers = append(signers, signer)
			}
		}
		if len(signers) == 0 && locked != "" {
			return nil, bailey.Denied.Errorf(
				"run: ssh-add "+locked,
				"the key %s has a passphrase, and no agent holds it",
				locked,
			)
		}
		if len(signers) == 0 {
			return nil, bailey.Denied.Errorf(
				"start ssh-agent and run ssh-add, or create a key",
				"there is no SSH key for %s",
				r.Name,
			)
		}
		return signers, nil
	}}, done
}
