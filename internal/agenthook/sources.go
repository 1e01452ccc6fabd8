package agenthook

import (
	"path/filepath"
	"strings"
)

// sourcePatterns match the usual directories of the sources of dependencies. Relative ones are below the home
// directory.
var sourcePatterns = []string{
	// Go
	"go/pkg/mod", "sdk/go*", "/usr/local/go", "/usr/lib/go", "/usr/lib/go-*", "/usr/share/go-*", "/opt/homebrew/Cellar/go",
	// JavaScript
	"/usr/lib/node_modules", "/usr/local/lib/node_modules", "/usr/share/nodejs", ".nvm/versions/node/*/lib/node_modules",
	".npm-global/lib/node_modules", ".local/share/pnpm/store", ".local/share/pnpm/global", ".bun/install/cache", ".deno",
	// Python
	"/usr/lib/python3*", "/usr/local/lib/python3*", ".local/lib/python3*", ".pyenv/versions/*/lib",
	".local/share/uv/python", ".cache/uv", ".local/share/virtualenvs/*/lib",
	// Rust
	".cargo/registry/src", ".cargo/git/checkouts", ".rustup/toolchains",
	// C
	"/usr/include", "/usr/local/include",
}

// FindPlaces returns the places of the agent of a user, as they are on this machine. It reads no variables such as
// GOPATH: an agent could set them for a gateway that it starts. A person can name other directories in the settings.
func FindPlaces(home, config string) Places {
	p := Places{Config: config, State: filepath.Join(home, ".claude.json"), Temp: scratchDir()}
	if home == "" {
		p.State = ""
	}
	if config == "" && home != "" {
		p.Config = filepath.Join(home, ".claude")
	} else if config != "" {
		p.State = filepath.Join(config, ".claude.json")
	}
	if home = resolveLinks(home); filepath.Dir(home) != home {
		for _, pattern := range sourcePatterns {
			if !strings.HasPrefix(pattern, "/") {
				pattern = filepath.Join(home, pattern)
			}
			p.Sources = append(p.Sources, pattern)
		}
		p.Shots = []string{filepath.Join(home, "Desktop"), filepath.Join(home, "Pictures", "Screenshots"),
			filepath.Join(home, "Screenshots")}
	}
	if p.Config != "" {
		p.Config = resolveLinks(p.Config)
	}
	// Every user can create a link in the directory above it, so only that directory is resolved.
	p.Temp = filepath.Join(resolveLinks(filepath.Dir(p.Temp)), filepath.Base(p.Temp))
	return p
}

// isBelowMatch reports whether path is a directory that matches a pattern, or below it.
func isBelowMatch(pattern, path string) bool {
	const sep = string(filepath.Separator)
	parts, n := strings.Split(path, sep), len(strings.Split(pattern, sep))
	if len(parts) < n {
		return false
	}
	ok, err := filepath.Match(pattern, strings.Join(parts[:n], sep))
	return err == nil && ok
}
