// Package enrol keeps the enrolment of a gateway or a host of sandboxes at a control plane: the file that says where the
// control plane is and has the token, the connection while the program runs, and its state for other programs to read.
//
// All files are in the directory "fleet" of the program's state, mode 0700.
package enrol

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/fleet/pipe"
	"bailey/internal/safefile"
)

// Dir is the directory of an enrolment.
type Dir string

// DirOf returns the directory of a program with that state directory.
func DirOf(state string) Dir { return Dir(filepath.Join(state, "fleet")) }

func (d Dir) fileOf(name string) string { return filepath.Join(string(d), name) }

const (
	enrolmentName = "enrolment.json"
	statusName    = "status.json"
	maxFile       = 1 << 20
)

// Kinds of enrolments, as tokens have them.
const (
	Gateway     = "gateway"
	SandboxHost = "host" // a gateway on a machine of sandboxes
)

// Enrolment is the content of the file.
type Enrolment struct {
	pipe.Target
	Host         string    `json:"host"` // its id at the control plane
	Name         string    `json:"name"`
	Kind         string    `json:"kind"`
	Organisation string    `json:"organisation"`
	Since        time.Time `json:"since"`
	Expires      time.Time `json:"expires"` // of the token
}

// Status is what a program that runs writes about its connection, at least once in 15 s.
type Status struct {
	fleet.State
	Waiting uint64    `json:"waiting"` // events that the control plane does not have yet
	Updated time.Time `json:"updated"`
	PID     int       `json:"pid"`
}

func readFile[T any](name, cure string) (*T, error) {
	text, err := safefile.Read(name, maxFile)
	if err != nil || text == nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, bailey.Invalid.Wrap(err, "cannot read "+name, cure)
	}
	return v, nil
}

func (d Dir) writeFile(name string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.MkdirAll(string(d), 0o700)
	}
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, name, append(text, '\n'), 0o600, func() error { return nil })
}

// Read returns the enrolment, or nil.
func (d Dir) Read() (*Enrolment, error) {
	return readFile[Enrolment](d.fileOf(enrolmentName), "enrol again: bailey unenroll, then bailey enroll URL")
}

// Status returns what the program wrote last, or nil.
func (d Dir) Status() (*Status, error) { return readFile[Status](d.fileOf(statusName), "remove it") }

// Save writes the enrolment, mode 0600. A program that runs notices it.
func (d Dir) Save(e Enrolment) error { return d.writeFile(enrolmentName, e) }

// Remove ends the enrolment. A program that runs notices it, and removes what waited for the control plane.
func (d Dir) Remove() error {
	err := os.Remove(d.fileOf(enrolmentName))
	if errors.Is(err, os.ErrNotExist) {
		return bailey.NotFound.New("this host is not enrolled", "bailey enroll URL")
	}
	return err
}

// patience limits the question whether a token is valid.
const patience = 20 * time.Second

// Ask asks the control plane which host the token or the certificate of a target belongs to.
func Ask(ctx context.Context, t pipe.Target) (e Enrolment, err error) {
	u, err := t.Parse()
	if err != nil {
		return e, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(u.String(), "/")+"/api/v1/host", nil)
	if err != nil {
		return e, err
	}
	if t.Token != "" {
		r.Header.Set("Authorization", "Bearer "+t.Token)
	}
	c, err := newClient(t)
	if err != nil {
		return e, err
	}
	answer, err := c.Do(r)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return e, bailey.Unavailable.Wrap(err, "the control plane at "+u.Host+" does not answer",
			"check the URL, the network and the certificate (--ca)")
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxFile))
	if err != nil {
		return e, bailey.Unavailable.Wrap(err, "the control plane at "+u.Host+" broke off", "try again")
	}
	if answer.StatusCode != http.StatusOK {
		return e, refusalOf(answer.StatusCode, text)
	}
	var host struct {
		ID, Name, Kind, Organisation string
		Expires                      time.Time
	}
	if json.Unmarshal(text, &host) != nil || host.ID == "" || strings.Trim(host.ID, "abcdefghijklmnopqrstuvwxyz234567-") != "" {
		return e, bailey.Invalid.New("the answer is not that of a control plane", "check the URL")
	}
	return Enrolment{Target: t, Host: host.ID, Name: host.Name, Kind: host.Kind, Organisation: host.Organisation,
		Since: time.Now().UTC(), Expires: host.Expires}, nil
}

func newClient(t pipe.Target) (*http.Client, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, bailey.Invalid.New("the CA file has no certificate", "it must be PEM")
		}
	}
	if t.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, bailey.Invalid.Wrap(err, "cannot use the certificate", "both files must be PEM and belong together")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it redirects") }}, nil
}

// refusal is the error for an answer of the control plane.
func refusalOf(status int, text []byte) error {
	var p struct{ Title, Detail, Hint string }
	if json.Unmarshal(text, &p) != nil || p.Detail == "" {
		return bailey.Invalid.Errorf("check the URL", "the answer is not that of a control plane: status %d", status)
	}
	kind := bailey.Kind(p.Title)
	if status == http.StatusUnauthorized {
		kind = bailey.Denied
	}
	return kind.New(p.Detail, p.Hint)
}
