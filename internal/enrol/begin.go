package enrol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"bailey"
	"bailey/internal/fleet/pipe"
)

// Flags are those of the commands that enrol.
type Flags struct {
	TokenFile, CA, Cert, Key string
	Insecure                 bool
}

// maxToken bounds the text of a token.
const maxToken = 4 << 10

// target reads the files that the flags name, and the token.
func (f Flags) readTarget(url string, in io.Reader) (t pipe.Target, err error) {
	t = pipe.Target{URL: strings.TrimSuffix(url, "/"), Insecure: f.Insecure}
	if _, err := t.Parse(); err != nil {
		return t, err
	}
	if (f.Cert == "") != (f.Key == "") || f.Cert != "" && f.TokenFile != "" {
		return t, bailey.Invalid.New("--cert needs --key, and stands instead of --token-file", "give both, or none of them")
	}
	for _, p := range []struct {
		name string
		text *string
	}{{f.CA, &t.CA}, {f.Cert, &t.Cert}, {f.Key, &t.Key}, {f.TokenFile, &t.Token}} {
		if p.name == "" {
			continue
		}
		text, err := os.ReadFile(p.name)
		if err == nil && len(text) > maxFile {
			err = errors.New("the file is too large")
		}
		if err != nil {
			return t, bailey.Invalid.Wrap(err, "cannot read the file", "check the path")
		}
		*p.text = string(text)
	}
	if f.TokenFile == "" && f.Cert == "" {
		text, err := io.ReadAll(io.LimitReader(in, maxToken))
		if err != nil {
			return t, bailey.Invalid.Wrap(err, "cannot read the token", "give it on standard input, or with --token-file")
		}
		t.Token = string(text)
	}
	t.Token = strings.TrimSpace(t.Token)
	if f.Cert == "" && (t.Token == "" || strings.ContainsAny(t.Token, " \t\r\n") || len(t.Token) > 200) {
		return t, bailey.Invalid.New("there is no token on standard input or in the file",
			"an admin makes one: POST /api/v1/organisations/ID/hosts")
	}
	return t, nil
}

// Begin enrols a gateway as one of a kind after the control plane has accepted its token.
func (d Dir) Begin(ctx context.Context, f Flags, url string, in io.Reader, kind string) (e Enrolment, err error) {
	has, err := d.Read()
	if err != nil {
		return e, err
	}
	if has != nil {
		return e, bailey.Conflict.New("it is enrolled already, at "+has.URL, "end that first: unenroll")
	}
	t, err := f.readTarget(url, in)
	if err != nil {
		return e, err
	}
	if e, err = Ask(ctx, t); err != nil {
		return e, err
	}
	if e.Kind != kind {
		return e, bailey.Denied.Errorf("ask for a token of the kind "+kind, "this token is for a %.20q", e.Kind)
	}
	return e, d.Save(e)
}

// Shown is what may be shown of an enrolment: no token.
type Shown struct {
	URL          string    `json:"url"`
	Host         string    `json:"host"`
	Name         string    `json:"name"`
	Organisation string    `json:"organisation"`
	Since        time.Time `json:"since"`
	Expires      time.Time `json:"expires"`
}

// Shown returns what may be shown.
func (e Enrolment) Shown() Shown {
	return Shown{e.URL, e.Host, e.Name, e.Organisation, e.Since, e.Expires}
}

// Report is the state of an enrolment. Running means that the program has written its state within a minute.
type Report struct {
	OK        bool `json:"ok"`
	Enrolled  bool `json:"enrolled"`
	Running   bool `json:"running"`
	Connected bool `json:"connected"`
	*Shown
	Connection *Status `json:"connection,omitempty"`
}

// Report returns the state of an enrolment.
func (d Dir) Report() (r Report, err error) {
	r.OK = true
	e, err := d.Read()
	if err != nil || e == nil {
		return r, err
	}
	shown := e.Shown()
	r.Enrolled, r.Shown = true, &shown
	s, err := d.Status()
	if err != nil || s == nil {
		return r, err
	}
	r.Connection = s
	r.Running = time.Since(s.Updated) < time.Minute
	r.Connected = r.Running && s.Connected && s.Host == e.Host
	return r, nil
}

// Print writes a report for people. show makes foreign text safe for a terminal.
func (r Report) Print(w io.Writer, show func(string) string) {
	if !r.Enrolled {
		fmt.Fprintln(w, "not enrolled: no control plane")
		return
	}
	fmt.Fprintf(w, "enrolled as %s (%s) at %s, until %s\n", show(r.Name), show(r.Host), show(r.URL),
		r.Expires.Local().Format("2006-01-02"))
	switch c := r.Connection; {
	case !r.Running:
		fmt.Fprintln(w, "the program does not run; it connects when it does")
	case r.Connected && c.Forked:
		fmt.Fprintln(w, "connected, but the control plane refuses the receipts: the ledger is not the one that it knows")
	case r.Connected:
		fmt.Fprintf(w, "connected since %s; %d entries of the ledger there, %d events wait\n",
			c.Since.Local().Format("2006-01-02 15:04:05"), c.Receipts, c.Waiting)
	default:
		fmt.Fprintf(w, "not connected: %s; %d events wait\n", show(c.Error), c.Waiting)
		if c.Hint != "" {
			fmt.Fprintln(w, "  →", show(c.Hint))
		}
	}
}
