// Package auth has the parts of the control plane that check who is calling: passwords, passkeys, tokens,
// the address of a client, and how often it may try.
package auth

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"sync"

	"bailey"

	"golang.org/x/crypto/bcrypt"
)

// Passwords hashes and checks passwords with bcrypt. Each check takes about a quarter of a second of a processor, so
// only a few run at once, and a client that must wait too long is refused.
type Passwords struct {
	Cost    int // 12 if it is 0
	running chan struct{}
	waiting chan struct{}
	none    func() []byte // the hash that is compared if there is no account
}

// NewPasswords returns a checker that runs at most n checks at once, and lets 16 wait for each of them.
func NewPasswords(n int) *Passwords {
	p := &Passwords{running: make(chan struct{}, n), waiting: make(chan struct{}, 17*n)}
	p.none = sync.OnceValue(func() []byte {
		hash, _ := bcrypt.GenerateFromPassword([]byte(rand.Text()), p.bcryptCost())
		return hash
	})
	return p
}

// Limits of a password: bcrypt ignores what follows 72 bytes, so that is refused.
const (
	MinPassword = 8  // characters
	MaxPassword = 72 // bytes
)

func (p *Passwords) bcryptCost() int {
	if p.Cost == 0 {
		return 12
	}
	return p.Cost
}

// waitForTurn waits for a processor.
func (p *Passwords) waitForTurn(ctx context.Context) (leave func(), err error) {
	select {
	case p.waiting <- struct{}{}:
	default:
		return nil, bailey.Unavailable.New("too many people sign in at this moment", "try again in a minute")
	}
	select {
	case p.running <- struct{}{}:
		return func() { <-p.running; <-p.waiting }, nil
	case <-ctx.Done():
		<-p.waiting
		return nil, ctx.Err()
	}
}

// Hash returns the form in which a new password is stored. It must not be one that is easily guessed, also by somebody
// who knows words of the account: its name, address and organisation.
func (p *Passwords) Hash(ctx context.Context, password string, words ...string) (string, error) {
	if n := len([]rune(password)); n < MinPassword || len(password) > MaxPassword {
		return "", bailey.Invalid.Errorf("use a sentence, or let a password manager make one",
			"a password has at least %d characters and at most %d bytes", MinPassword, MaxPassword)
	}
	if err := checkGuessable(password, words); err != nil {
		return "", err
	}
	leave, err := p.waitForTurn(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), p.bcryptCost())
	return string(hash), err
}

// Check reports whether the password is the one of the hash. If the hash is "", because there is no such account, it
// takes as long and returns false.
func (p *Passwords) Check(ctx context.Context, hash, password string) (bool, error) {
	leave, err := p.waitForTurn(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	known := hash != ""
	compare := []byte(hash)
	if !known {
		compare = p.none()
	}
	err = bcrypt.CompareHashAndPassword(compare, []byte(password))
	return known && err == nil && len(password) <= MaxPassword, nil
}

// Prefixes of tokens. They let a scanner find a token that was published.
const (
	SetupToken      = "bsetup_"
	SessionToken    = "bsess_"
	InvitationToken = "binv_"
	APIToken        = "bapi_"
	HostToken       = "bhost_"
	CeremonyToken   = "bcer_"
)

// NewToken returns 32 random bytes behind a prefix.
func NewToken(prefix string) string {
	var b [32]byte
	rand.Read(b[:])
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// IsToken reports whether a text has the form of a token with this prefix.
func IsToken(text, prefix string) bool {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	return err == nil && len(b) == 32 && len(rest) == base64.RawURLEncoding.EncodedLen(32) // the decoder skips newlines
}
