package workspace

import (
	"bailey/internal/peer"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// secretPaths and systemSecrets list paths below a home directory that hold secrets. No workspace
// may contain them, and every bind mount must hide them.
var secretPaths = []string{".ssh", ".aws", ".gnupg", ".kube", ".config/gcloud", ".config/op", ".config/containers",
	".azure", ".oci", ".password-store",
	".local/share/keyrings", ".cargo/credentials.toml", ".terraform.d", ".vault-token", ".docker", ".netrc", ".pgpass", ".config/gh", ".git-credentials", ".npmrc", ".pypirc", ".local/state/bailey-broker", ".local/state/bailey-wrap"}

// Homes returns the canonical home directories of the user: that of the account and $HOME. Both count, because the user
// that starts the gateway chooses $HOME. For root, it adds the homes of all users.
func Homes() []string {
	var homes []string
	if u, err := user.Current(); err == nil {
		homes = append(homes, Canonical(u.HomeDir))
	}
	if dir, err := os.UserHomeDir(); err == nil {
		homes = append(homes, Canonical(dir))
	}
	if os.Geteuid() == 0 {
		homes = append(homes, everyHome()...)
	}
	slices.Sort(homes)
	return slices.Compact(homes)
}

// holdsSecrets reports whether a directory is, or is below, a directory for secrets in any home.
func holdsSecrets(dir string) bool {
	dir = foldCase(filepath.ToSlash(dir)) + "/"
	return slices.ContainsFunc(slices.Concat(secretPaths, systemSecrets()),
		func(s string) bool { return strings.Contains(dir, "/"+foldCase(s)+"/") })
}

// Masks returns the canonical paths that must stay hidden in every cage, even if they do not exist. home is that of the
// gateway, homes are those of users.
func Masks(home string, homes []string) []string {
	masks := []string{Canonical(home)}
	for _, dir := range homes {
		for _, s := range slices.Concat(secretPaths, systemSecrets()) {
			masks = append(masks, Canonical(filepath.Join(dir, s)))
		}
	}
	for _, s := range daemonSockets() {
		masks = append(masks, Canonical(s))
	}
	for _, name := range peer.SocketVariables() {
		if path := socketPath(os.Getenv(name)); filepath.IsAbs(path) {
			masks = append(masks, Canonical(path))
		}
	}
	slices.Sort(masks)
	return slices.Compact(masks)
}

// socketPath returns the path in the address of an agent or bus, such as "path", "path:pid:1" or "unix:path=…,guid=…".
func socketPath(address string) string {
	address, _, _ = strings.Cut(strings.TrimPrefix(address, "unix:path="), ",")
	address, _, _ = strings.Cut(address, ";")
	path, _, _ := strings.Cut(address, ":")
	return path
}

// Canonical resolves symlinks in the part of the path that exists.
func Canonical(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir, base := filepath.Split(path)
	if dir == path || base == "" {
		return path
	}
	return filepath.Join(Canonical(dir), base)
}
