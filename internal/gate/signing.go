package gate

import (
	"context"
	"fmt"
	"net"
	"strings"

	"bailey"
	"bailey/pack"
)

// Signer finds the key with which the person signs commits and tags.
type Signer interface {
	// Prepare returns what signs for one call, or an error with cause and cure if the person's key cannot.
	Prepare(ctx context.Context, p pack.GitPerson, s pack.Signing) (Signing, error)
}

// Signing signs for one call, outside of the cage.
type Signing interface {
	Key() pack.GitKey
	// Serve answers at the socket of the cage until ctx ends. Then no signature is under way.
	Serve(ctx context.Context, l net.Listener) error
	// Report returns how many signatures were made, and why others were refused.
	Report() (made int, refusals []string)
}

// planSigning finds the key if the call makes a commit or a tag that must be signed, and has git sign with it. Without
// a key that can sign, the call is refused.
func (c *callState) planSigning(ctx context.Context) error {
	if c.call.Own { // the agent runs git itself, which signs as its settings say
		return nil
	}
	s, err := c.manifest.PlanSigning(c.argv, c.input, c.person)
	if err != nil || s == nil {
		return err
	}
	if c.Signer == nil {
		return bailey.Denied.Errorf("run this command yourself, or let a person turn the setting off for this repository",
			"the %s must be signed, and this gateway signs nothing: it is never made unsigned", s.Kind)
	}
	if c.signing, err = c.Signer.Prepare(ctx, c.person, *s); err != nil {
		return err
	}
	c.signs = s
	return nil
}

// personArgs returns rendered arguments with the settings of the person.
func (c *callState) personArgs(args []string) []string {
	args = c.manifest.ForPerson(args, c.person)
	if c.signing != nil {
		args = c.manifest.SignArgs(args, *c.signs, c.signing.Key())
	}
	return args
}

// SigningWay is the outer side of a cage's network that has the socket of a signer after its own sockets.
type SigningWay struct {
	bailey.Way // the network that the tool has anyway; nil if it has none
	Signing    Signing
}

func (w SigningWay) Trusted() []byte {
	if w.Way == nil {
		return nil
	}
	return w.Way.Trusted()
}

func (w SigningWay) Serve(ctx context.Context, listeners []net.Listener) error {
	last := len(listeners) - 1
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signed := make(chan error, 1)
	go func() { signed <- w.Signing.Serve(ctx, listeners[last]) }()
	if w.Way == nil {
		return <-signed
	}
	err := w.Way.Serve(ctx, listeners[:last])
	cancel()
	<-signed // only the network's own error counts: a signature that is missing fails git
	return err
}

func (w SigningWay) Report() bailey.EgressReport {
	if w.Way == nil {
		return bailey.EgressReport{}
	}
	return w.Way.Report()
}

// ownNetwork returns the network that the tool has without the socket of a signer.
func (c *callState) ownNetwork() *bailey.Network {
	if c.signing == nil || c.job.Network == nil {
		return c.job.Network
	}
	own := *c.job.Network
	own.Listen = own.Listen[:len(own.Listen)-1]
	return &own
}

// outerWay returns the outer side of all sockets of the cage, or nil if it has none.
func (c *callState) outerWay() bailey.Way {
	if c.signing == nil {
		return c.way
	}
	return SigningWay{c.way, c.signing}
}

// signatureRecord returns the line of a receipt about the signatures of the call.
func (c *callState) signatureRecord() []string {
	if c.signing == nil {
		return nil
	}
	made, refusals := c.signing.Report()
	line := fmt.Sprintf("git signatures: %d with %s (%s)", made, c.signing.Key().Fingerprint, c.signing.Key().Holder)
	if len(refusals) > 0 {
		line += fmt.Sprintf(", %d refused: %s", len(refusals), clipText(c.redactMessage(refusals[0]), maxWords))
	}
	return []string{line}
}

// signatureHint says why a signature was refused, because git may not say it.
func (c *callState) signatureHint() string {
	if c.signing == nil {
		return ""
	}
	if _, refusals := c.signing.Report(); len(refusals) > 0 {
		return "a signature was refused: " + strings.TrimSpace(refusals[0])
	}
	return ""
}
