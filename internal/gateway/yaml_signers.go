package gateway

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/sshsig"
)

// An entry of the ledger holds them all.
const (
	maxSigners = 32
	maxSigner  = 1 << 10 // bytes of one
)

// signersOf reads the key policySigners: whoever is named there may sign a policy, and one without such a signature is
// not applied.
func signersOf(n ast.Node) (lines []string, err error) {
	err = items(n, "policySigners wants a list of keys", func(item ast.Node) error {
		n, ok := item.(*ast.StringNode)
		switch {
		case len(lines) == maxSigners:
			return fault(item, "over the %d signers allowed", maxSigners)
		case !ok || len(n.Value) > maxSigner || strings.ContainsAny(n.Value, "\r\n"):
			return fault(item, "a signer is a name, a key's type and the key, as in: ada ssh-ed25519 AAAA…")
		}
		keys, err := sshsig.ParseKeys([]byte(n.Value))
		if err != nil || len(keys) != 1 {
			return fault(item, "a signer is a name, a key's type and the key, as in: ada ssh-ed25519 AAAA… (%v)", err)
		}
		if slices.Contains(lines, n.Value) {
			return fault(item, "a signer is named twice")
		}
		lines = append(lines, n.Value)
		return nil
	})
	return lines, err
}
