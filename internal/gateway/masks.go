package gateway

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"bailey/internal/wire"
)

// secrets, and what systemSecrets adds to them, are below a home directory (design.md, section 0): no workspace holds them, every bind hides them.
var secrets = []string{".ssh", ".aws", ".gnupg", ".kube", ".config/gcloud", ".config/op", ".config/containers", ".azure", ".oci", ".password-store",
	".local/share/keyrings", ".cargo/credentials.toml", ".terraform.d", ".vault-token", ".docker", ".netrc", ".pgpass", ".config/gh", ".git-credentials", ".npmrc", ".pypirc", ".local/state/bailey-broker", ".local/state/bailey-wrap"}

// Homes returns the user's home directories: the account's and $HOME, canonical. Both count, because
// whoever starts the gateway chooses $HOME.
func Homes() []string {
	var homes []string
	if u, err := user.Current(); err == nil {
		homes = append(homes, canonical(u.HomeDir))
	}
	if dir, err := os.UserHomeDir(); err == nil {
		homes = append(homes, canonical(dir))
	}
	if os.Geteuid() == 0 {
		homes = append(homes, everyHome()...)
	}
	slices.Sort(homes)
	return slices.Compact(homes)
}

// holdsSecrets tells whether a directory is, or lies in, a place of secrets of whatever home.
func holdsSecrets(dir string) bool {
	dir = fold(filepath.ToSlash(dir)) + "/"
	return slices.ContainsFunc(slices.Concat(secrets, systemSecrets()), func(s string) bool { return strings.Contains(dir, "/"+fold(s)+"/") })
}

// Masks returns the paths that stay hidden in every cage, canonical, whether they exist or not.
func Masks(h wire.Home, homes []string) []string {
	masks := []string{canonical(string(h))}
	for _, dir := range homes {
		for _, s := range slices.Concat(secrets, systemSecrets()) {
			masks = append(masks, canonical(filepath.Join(dir, s)))
		}
	}
	for _, s := range daemonSockets() {
		masks = append(masks, canonical(s))
	}
	for _, name := range wire.SocketVariables() {
		if path := socketPath(os.Getenv(name)); filepath.IsAbs(path) {
			masks = append(masks, canonical(path))
		}
	}
	slices.Sort(masks)
	return slices.Compact(masks)
}

// socketPath is the path in an agent's or a bus's address: a bare path, "path:pid:1", "unix:path=…,guid=…".
func socketPath(address string) string {
	address, _, _ = strings.Cut(strings.TrimPrefix(address, "unix:path="), ",")
	address, _, _ = strings.Cut(address, ";")
	path, _, _ := strings.Cut(address, ":")
	return path
}

// canonical resolves links as far as the path exists.
func canonical(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir, base := filepath.Split(path)
	if dir == path || base == "" {
		return path
	}
	return filepath.Join(canonical(dir), base)
}
