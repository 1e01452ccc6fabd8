package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/sshsig"
)

// Approver is a person whose signed answers to approval requests count.
type Approver struct {
	Name  string   `json:"name"`
	Key   string   `json:"key"` // type and key, as in a .pub file
	Roles []string `json:"roles,omitempty"`
}

// Line returns the approver's key in the format of package sshsig.
func (a Approver) Line() string { return a.Name + " " + a.Key }

// Limits of the setting approvers. One ledger entry must hold them all.
const (
	maxApprovers = 32
	maxRoles     = 16
	maxRole      = 64
)

// approversOf reads the setting approvers. A name may have several keys and is one person. A key must have only one
// name, such as ada.
func approversOf(n ast.Node) (list []Approver, err error) {
	var held []string
	err = items(n, "approvers wants a list of names with key and roles", func(item ast.Node) error {
		if len(list) == maxApprovers {
			return fault(item, "over the %d approvers allowed", maxApprovers)
		}
		a, err := approverOf(item)
		if err != nil {
			return err
		}
		keys, err := sshsig.ParseKeys([]byte(a.Line()))
		if err != nil || len(keys) != 1 || keys[0].Name != a.Name {
			return fault(item, "an approver's name is a word, and its key the type and the key of a .pub file (%v)", err)
		}
		if slices.Contains(held, keys[0].Fingerprint()) {
			return fault(item, "the key of %s is named twice: one person must not answer as two", a.Name)
		}
		held = append(held, keys[0].Fingerprint())
		list = append(list, a)
		return nil
	})
	return list, err
}

func approverOf(n ast.Node) (a Approver, err error) {
	err = each(n, "part of an approver", keys{
		"name": func(n ast.Node) (err error) { a.Name, err = wordOf(n, maxSigner); return err },
		"key":  func(n ast.Node) (err error) { a.Key, err = wordOf(n, maxSigner); return err },
		"roles": func(n ast.Node) error {
			return items(n, "roles wants a list of names", func(item ast.Node) error {
				role, err := wordOf(item, maxRole)
				if err == nil && (len(a.Roles) == maxRoles || slices.Contains(a.Roles, role) || strings.Trim(role, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "") {
					err = fault(item, "a role is lower case letters, digits, '.', '_' or '-', and stands once; there are at most %d", maxRoles)
				}
				a.Roles = append(a.Roles, role)
				return err
			})
		},
	})
	if err == nil && (a.Name == "" || a.Key == "" || strings.ContainsAny(a.Name, " \t")) {
		err = fault(n, "an approver has a name and a key")
	}
	return a, err
}

// wordOf reads one line of text.
func wordOf(n ast.Node, most int) (string, error) {
	s, ok := n.(*ast.StringNode)
	if !ok || s.Value == "" || len(s.Value) > most || strings.ContainsAny(s.Value, "\r\n") {
		return "", fault(n, "%s", fmt.Sprintf("want one line of at most %d bytes", most))
	}
	return s.Value, nil
}
