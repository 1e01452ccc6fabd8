//go:build linux

package server

import (
	"errors"
	"fmt"
	"testing"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/approve"
	"bailey/internal/ktest"
	"bailey/internal/ktest/touch"
	"bailey/internal/localapi"
	"bailey/internal/settings"
)

// card is a simulated security key.
type card struct{ touch.Card }

func newCard(kind, name string, flags byte) card {
	return card{touch.Card{Kind: kind, Name: name, Flags: flags}}
}

// sign returns the signature that ssh-keygen -Y sign makes with the card.
func (c card) sign(text, namespace string) string {
	return enveloped(c.Blob(), text, namespace, func(data []byte) []byte {
		sig, rest := c.Assert(data)
		return append(fields(c.Kind, string(sig)), rest...)
	})
}

// trusted applies settings that name the holders of these cards, each with the role sre.
func (a asking) trusted(t *testing.T, list ...card) {
	t.Helper()
	text := "approvers:\n"
	for _, c := range list {
		text += fmt.Sprintf("  - name: %s\n    key: %s\n    roles: [sre]\n", c.Name, c.Line())
	}
	if _, err := a.settings.Apply(t.Context(), a.settings.Digest(), []byte(text), settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
}

const touchAsks = `
@id("dates-ask") @reason("a person has to know what day it is") @approval("level=signed-touch,count=1,ttl=10m")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`

// TestOnlyATouch checks that if a rule requires a touched security key, no weaker answer counts, such as that of an
// operator, of a key file, or of a security key without a touch.
func TestOnlyATouch(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for _, kind := range touch.Kinds {
		t.Run(kind, func(t *testing.T) {
			a := askingFor(t, touchAsks)
			q, done := a.waiting(t, nil)
			refused := func(what, signature string) {
				t.Helper()
				if got, err := a.answer(t, q, signature); !errors.Is(err, bailey.Denied) || got.Granted || bailey.HintOf(err) == "" {
					t.Errorf("%s: %+v, %v", what, got, err)
				}
			}
			refused("an operator's word", "")
			ada, bob, eve := newCard(kind, "ada", 1), newHolder("bob", "sre"), newCard(kind, "ada", 0)
			a.trust(t, bob)
			refused("a key in a file", bob.sign(q.Text, approvaltext.Namespace))
			a.trusted(t, ada)
			refused("no signature", "")
			refused("an untouched key", eve.sign(q.Text, approvaltext.Namespace))
			eve.Flags = 4 // a PIN was entered, but the key was not touched
			refused("a key that verified somebody and saw nobody", eve.sign(q.Text, approvaltext.Namespace))
			refused("another's key", newCard(kind, "mallory", 1).sign(q.Text, approvaltext.Namespace))
			refused("for another end", ada.sign(q.Text, "git"))
			if got, err := a.answer(t, q, ada.sign(q.Text, approvaltext.Namespace)); err != nil || !got.Granted {
				t.Fatalf("%+v, %v", got, err)
			}
			if r := <-done; r.Status != bailey.OK || !r.Executed {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestUntouchedIsSoftware checks that a security key without a touch has only the level of a key file, as ssh-keygen -Y
// verify treats it.
func TestUntouchedIsSoftware(t *testing.T) {
	for _, kind := range touch.Kinds {
		for level, taken := range map[bailey.Level]map[byte]bool{
			bailey.SignedSoftware: {0: true, 1: true, 4: true, 5: true}, bailey.SignedTouch: {0: false, 1: true, 4: false, 5: true},
		} {
			for flags, want := range taken {
				c := newCard(kind, "ada", flags)
				by, err := verifyAnswer([]byte("text"), approve.Given{Question: "a-1", Grant: true, Signature: c.sign("text", approvaltext.Namespace)}, []settings.Approver{{Name: "ada", Key: c.Line()}})
				if err != nil || by.Level.Meets(level) != want {
					t.Errorf("%s with flags %#x for %s: %+v, %v", kind, flags, level, by, err)
				}
			}
		}
	}
}
