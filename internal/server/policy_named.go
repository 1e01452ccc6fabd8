package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/policy"
)

// named finds a policy that was applied by the prefix of a digest: that of its files, or that of its rules, which
// receipts contain. If several policies have the same rules, it returns the one that was stored last.
func (r *policyStore) named(word string) (digest string, err error) {
	const least = 8
	if len(word) < least || strings.Trim(word, "0123456789abcdef") != "" {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%q is no digest of a policy, nor the first %d characters of one", word, least), Hint: "bailey policy apply and receipts print it"}
	}
	entries, err := os.ReadDir(filepath.Join(string(r.home), keptPolicies))
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int {
		x, _ := a.Info()
		y, _ := b.Info()
		if x == nil || y == nil {
			return 0
		}
		return x.ModTime().Compare(y.ModTime())
	})
	var byFiles []string
	byRules := ""
	for _, e := range entries {
		d, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if strings.HasPrefix(d, word) {
			byFiles = append(byFiles, d)
		}
		if files, err := r.kept(d); err == nil && strings.HasPrefix(policy.Digest(files.Rules), word) {
			byRules = d
		}
	}
	switch {
	case len(byFiles) == 1:
		return byFiles[0], nil
	case len(byFiles) > 1:
		return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%d policies begin with %s", len(byFiles), word), Hint: "give more of the digest"}
	case byRules != "":
		return byRules, nil
	}
	return "", &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no policy %.12s is kept", word), Hint: "those that were applied lie in " + filepath.Join(string(r.home), keptPolicies) + ", named by the digests of their files"}
}
