package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
	"bailey/internal/sshca"
)

// Access logs in to prepared hosts with short certificates.
type Access struct {
	Pool        *remote.Pool
	Credentials *sshca.Credentials
	User        string // the person in the identity of certificates
}

// targetFor returns the way to a host, with a certificate that carries the request of the shell.
func (a *Access) targetFor(h Host, pinned []ssh.PublicKey, r readonlyshell.Request) remote.Target {
	options := strings.Fields(r.Command(ShellPath))[1:]
	key := h.Name + " " + strings.Join(options, " ")
	return remote.Target{Key: key,
		Route: func(ctx context.Context) (remote.Route, error) {
			return remote.Resolver{Config: h.SSHConfig}.Route(ctx, h.Name)
		},
		Login: func(ctx context.Context) (remote.Login, time.Time, error) {
			return a.logIn(ctx, h, pinned, Account, sshca.Target{Principal: sshca.ReadOnly, Name: sshca.PathName(key),
				ShellOptions: options})
		}}
}

// logIn returns a login with a certificate for the target, and its expiry.
func (a *Access) logIn(ctx context.Context, h Host, pinned []ssh.PublicKey, account string, t sshca.Target) (remote.Login, time.Time, error) {
	t.Identity = sshca.Identity{User: sshca.IDFor(a.User), VM: sshca.IDFor(h.Name), Sandbox: "source"}
	c, err := a.Credentials.Get(ctx, t)
	if err != nil {
		return remote.Login{}, time.Time{}, err
	}
	cert := c.Certificate
	text := fmt.Sprintf("ssh-certificate serial %d key %s principal %s identity %s until %s", cert.Serial, cert.Fingerprint,
		cert.Principal, cert.Identity, cert.Expires.UTC().Format(time.RFC3339))
	return remote.Login{User: account, Pinned: pinned, Text: text,
		Signers: func() ([]ssh.Signer, error) { return []ssh.Signer{c.Signer}, nil }}, cert.Expires, nil
}

// Status logs in to a host and returns what its shell reports.
func (a *Access) Status(ctx context.Context, h Host, pinned []ssh.PublicKey) (s readonlyshell.Status, err error) {
	t := a.targetFor(h, pinned, readonlyshell.Request{WithoutLandlock: h.WithoutLandlock})
	var out, log bytes.Buffer
	res, err := a.Pool.Run(
		ctx,
		t,
		remote.Command{Line: readonlyshell.StatusLine, Stdout: &out, Stderr: &log, Timeout: time.Minute},
	)
	if err == nil && res.Code != 0 {
		err = errors.New(strings.TrimSpace(log.String()))
	}
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &s)
	}
	if err != nil && bailey.KindOf(err) != bailey.Denied {
		err = bailey.Unavailable.Wrapf(
			err,
			"prepare the host again: bailey source prepare "+h.Name,
			"the read-only shell of %s does not answer as it must",
			h.Name,
		)
	}
	return s, err
}

// NewAccess returns an access whose keys and certificates exist only in memory.
func NewAccess(issuer sshca.Issuer, pool *remote.Pool, user string) (*Access, error) {
	credentials, err := sshca.NewCredentials(sshca.CredentialsConfig{Issuer: issuer, Now: time.Now})
	if err != nil {
		return nil, err
	}
	return &Access{Pool: pool, Credentials: credentials, User: user}, nil
}
