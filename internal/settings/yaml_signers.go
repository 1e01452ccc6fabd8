package settings

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/sshsig"
)

// Limits of the setting policySigners. One ledger entry must hold all signers.
const (
	maxSigners = 32
	maxSigner  = 1 << 10 // bytes per signer
)

// signersOf reads the setting policySigners, the keys that may sign a policy. If it is set, a policy without such a
// signature is not applied.
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
