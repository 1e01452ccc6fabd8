package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// wideCheck is implemented by adapters that can tell that their part of the table allows more than a call needs.
type wideCheck interface {
	// tooWide returns one line for each right that should be narrower, and how.
	tooWide() []string
}

// maxCalm is the longest time of a lease that is not reported as too long.
const maxCalm = time.Hour

// TooWide returns, in sorted lines, what the leases allow beyond the needs of a call. A line begins with the name of its
// lease and contains no value.
func (t *Table) TooWide() (lines []string) {
	for name, e := range t.Leases {
		for _, found := range e.tooWide() {
			lines = append(lines, name+": "+found)
		}
	}
	slices.Sort(lines)
	return lines
}

func (e Entry) tooWide() (found []string) {
	if w, ok := e.mint.(wideCheck); ok {
		found = w.tooWide()
	}
	if e.TTL > maxCalm {
		found = append(found, fmt.Sprintf("a loan may last %v; set ttl to the time of the longest call", e.TTL))
	}
	return found
}

func (g *github) tooWide() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(g.permissions)) {
		level := g.permissions[name]
		account := strings.HasPrefix(name, "organization_") || name == "members" || name == "administration"
		if level == "admin" || account && level != "read" {
			list = append(list, fmt.Sprintf("permission %s: %s lets a call change who may do what; remove it, or require an approval", name, level))
		}
	}
	if len(g.repositories) > 10 {
		list = append(list, fmt.Sprintf("a call that names no repository gets all %d; split the lease", len(g.repositories)))
	}
	return list
}

func (a *aws) tooWide() []string {
	if a.policy != "" {
		return nil
	}
	return []string{"a session has all rights of the role; add policy, the file of a session policy"}
}

func (g *gcloud) tooWide() (list []string) {
	if len(g.boundary) == 0 && slices.ContainsFunc(g.scopes, func(s string) bool { return strings.HasSuffix(s, "/cloud-platform") }) {
		list = append(list, "the scope cloud-platform is every API; name the scopes of the calls, or add boundary")
	}
	return list
}

func (v *vault) tooWide() []string {
	if v.token == "" {
		return nil
	}
	return []string{"the broker's login is a fixed token, which does not end by itself; use appRole or kubernetes"}
}

func (i *infisical) tooWide() []string {
	if i.token == "" {
		return nil
	}
	return []string{"the broker's login is a fixed token; use client and secret of an identity"}
}

func (e *tokenExchange) tooWide() (list []string) {
	if e.revoke == "" {
		list = append(list, "a token stays valid after its call; add revoke if the server has a revocation endpoint")
	}
	return list
}

func (k *kubectl) tooWide() (list []string) {
	if k.namespace == "kube-system" || slices.Contains(k.namespaces, "kube-system") {
		list = append(list, "an account in kube-system; use one in the namespace of the calls")
	}
	if k.account == "default" {
		list = append(list, "the account default is that of every pod of its namespace; make one for the agents")
	}
	return list
}
