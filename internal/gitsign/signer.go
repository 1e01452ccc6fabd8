// Package gitsign signs the commits and tags of a call with the person's own key, outside of the cage.
//
// git in the cage runs [Request] in place of gpg or ssh-keygen. It sends the text over a socket that exists for this
// call alone; the gateway checks it and signs. The cage has no key, no agent and no part of an agent's protocol: only
// a text goes out, and only a signature comes in. A text is signed if it is exactly one commit or tag, committed by
// the person now, and if the call may have one more signature.
package gitsign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/pack"
)

// Signer finds the person's key. Its zero value is ready for the person of this process.
type Signer struct {
	// Program is the path of the program that calls [Request]; "" is this one.
	Program string
	now     func() time.Time // for tests; nil is time.Now
}

// maxAge is how far the time of a signed commit may be from now.
const maxAge = 15 * time.Minute

// signPatience limits how long one signature takes. A person may have to enter a passphrase or touch a key.
const signPatience = 2 * time.Minute

// readPatience limits how long a client may take to send its text, and how long the search for the key takes.
const readPatience = 30 * time.Second

// maxClients limits the connections of a call that are served at once.
const maxClients = 4

// holder signs with one key.
type holder interface {
	signText(ctx context.Context, text []byte) ([]byte, error)
}

// Prepare returns what signs for a call. If the person's key cannot sign, it returns an error that names the cause and
// the cure, and nothing has run.
func (g Signer) Prepare(ctx context.Context, p pack.GitPerson, s pack.Signing) (*Signing, error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	var key pack.GitKey
	var h holder
	var err error
	switch format := strings.ToLower(p.Signing.Format); format {
	case "", "openpgp":
		key, h, err = findGPGKey(ctx, p.Signing)
	case "ssh":
		key, h, err = findSSHKey(ctx, p.Signing)
	default:
		err = unableError(fmt.Sprintf("gpg.format is %.40q, and only openpgp and ssh are supported", format),
			"use a key of ssh: git config --global gpg.format ssh")
	}
	if err != nil {
		return nil, err
	}
	if key.Program = g.Program; key.Program == "" {
		if key.Program, err = os.Executable(); err != nil {
			return nil, unableError("the path of bailey is not known", "reinstall bailey")
		}
	}
	key.Address = Address
	now := g.now
	if now == nil {
		now = time.Now
	}
	return &Signing{key: key, holder: h, person: p.Signing, limits: s, now: now}, nil
}

// unableError is the error of a call that would have to sign and cannot.
func unableError(cause, cure string) error {
	return bailey.Denied.New("the call cannot sign, and nothing is made unsigned: "+cause, cure)
}

// Signing signs for one call.
type Signing struct {
	key    pack.GitKey
	holder holder
	person pack.GitSigning
	limits pack.Signing
	now    func() time.Time

	mu       sync.Mutex // held while a text is signed: one after the other
	made     int
	refusals []string
}

// Key returns the key and how git asks for it.
func (s *Signing) Key() pack.GitKey { return s.key }

// Report returns how many signatures were made, and why others were refused.
func (s *Signing) Report() (made int, refusals []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, s.refusals
}

// Serve signs the texts that arrive at the socket of the cage until ctx ends. It closes the socket, and returns when no
// signature is under way.
func (s *Signing) Serve(ctx context.Context, l net.Listener) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	free := make(chan struct{}, maxClients)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return nil
		}
		clients.Go(func() {
			defer func() { <-free }()
			s.serveClient(ctx, conn)
		})
	}
}

// serveClient reads one text up to its end and answers.
func (s *Signing) serveClient(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetReadDeadline(time.Now().Add(readPatience))
	text, err := readText(conn)
	var signature []byte
	if err == nil {
		signature, err = s.signOnce(ctx, text)
	} else {
		s.noteRefusal(err)
	}
	conn.SetWriteDeadline(time.Now().Add(readPatience))
	if err != nil {
		conn.Write([]byte(refused + err.Error()))
		return
	}
	conn.Write(append([]byte(granted), signature...))
}

// maxRefusals limits the refusals that a call keeps.
const maxRefusals = 8

func (s *Signing) noteRefusal(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepRefusal(err)
}

// keepRefusal must be called with mu held.
func (s *Signing) keepRefusal(err error) {
	if len(s.refusals) < maxRefusals {
		s.refusals = append(s.refusals, err.Error())
	}
}

// signOnce checks a text and signs it. A text counts from the moment at which the key is asked for it.
func (s *Signing) signOnce(ctx context.Context, text []byte) (signature []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if err != nil {
			s.keepRefusal(err)
		}
	}()
	if err := s.checkText(text); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the call has ended")
	}
	if s.made >= s.limits.Most {
		return nil, fmt.Errorf("this call may have %d signed, and has", s.limits.Most)
	}
	s.made++
	ctx, cancel := context.WithTimeout(ctx, signPatience)
	defer cancel()
	if signature, err = s.holder.signText(ctx, text); err != nil {
		s.made--
	}
	return signature, err
}

// checkText returns why a text is not signed, or nil.
func (s *Signing) checkText(text []byte) error {
	o, err := parseObject(text)
	if err != nil {
		return fmt.Errorf("the text is not signed: %w", err)
	}
	role := map[string]string{"commit": "committer", "tag": "tagger"}[o.kind]
	switch {
	case o.kind != s.limits.Kind:
		return fmt.Errorf("the text is a %s, and this call makes a %s", o.kind, s.limits.Kind)
	case !s.isPerson(o.by):
		return fmt.Errorf("the %s is not %s <%s>", role, s.person.Name, s.person.Email)
	case o.kind == "commit" && !s.limits.OtherAuthors && !s.isPerson(o.author):
		return fmt.Errorf("the author is not %s <%s>", s.person.Name, s.person.Email)
	case !s.isNow(o.by.at), o.kind == "commit" && !s.limits.OtherAuthors && !s.isNow(o.author.at):
		return fmt.Errorf("its date is not that of now")
	}
	return nil
}

func (s *Signing) isNow(at time.Time) bool { return s.now().Sub(at).Abs() <= maxAge }

func (s *Signing) isPerson(i ident) bool {
	return i.name == withoutCrud(s.person.Name) && i.email == withoutCrud(s.person.Email)
}

// withoutCrud returns a name or an address as git writes it into an object (strbuf_addstr_without_crud in ident.c).
func withoutCrud(s string) string {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`.,:;<>"\'`, r) })
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '<' || r == '>' || r < ' ' || r == 0x7f { // control characters: see pack.SetPerson
			return -1
		}
		return r
	}, s)
}

// readText reads a text to its end, at most MaxObject bytes.
func readText(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxObject+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the text did not arrive within %v", readPatience)
	case err != nil:
		return nil, fmt.Errorf("the text did not arrive: %w", err)
	case len(text) > MaxObject:
		return nil, fmt.Errorf("the text has more than %d bytes", MaxObject)
	}
	return text, nil
}
