package sandboxdiff

import (
	"crypto/sha256"
	"encoding/hex"
)

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Compare returns what changed from before to after.
func Compare(before, after *Inventory) *Difference {
	return &Difference{OS: after.OS, Release: after.Release, Changes: []Change{}, Notes: []string{}, Omitted: []Omitted{}}
}
