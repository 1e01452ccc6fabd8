package shim

import (
	"slices"
	"strings"

	"bailey"
)

// shapingVariables returns the variables with which a tool gives another answer. A final * means all names that begin
// so. Variables that a pack sets or a lease stands for, such as those of identities, are not among them.
func shapingVariables(tool string) []string {
	switch tool {
	case "go", "gofmt":
		return []string{"GOOS", "GOARCH", "GOAMD64", "GOARM", "GOARM64", "GO386", "GOMIPS", "GOWASM", "GOEXPERIMENT",
			"GOFLAGS", "GOWORK", "GO111MODULE", "CGO_ENABLED"}
	case "git":
		return []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
			"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"}
	case "npm", "npx", "pnpm", "yarn", "node":
		return []string{"NODE_ENV", "NODE_OPTIONS", "npm_config_omit", "npm_config_include", "npm_config_production",
			"npm_config_only", "npm_config_dev", "npm_config_workspace", "npm_config_workspaces", "npm_config_global",
			"npm_config_registry", "npm_config_force", "npm_config_legacy_peer_deps", "npm_config_ignore_scripts"}
	case "cargo":
		return []string{"RUSTFLAGS", "CARGO_BUILD_*", "CARGO_TARGET_*", "CARGO_PROFILE_*", "RUSTUP_TOOLCHAIN"}
	}
	return nil
}

// isUsual reports whether a variable says what holds without it: git sets two for its hooks, and calls of go run with
// this flag.
func isUsual(variable string) bool {
	return slices.Contains([]string{"GIT_DIR=.git", "GIT_INDEX_FILE=.git/index", "GOFLAGS=-buildvcs=false"}, variable)
}

// checkVariables refuses to start a tool whose answer the variables of the caller would change: a call gets none of
// them, and its answer would be a wrong one without a warning. An empty variable counts as absent.
func checkVariables(tool string, environ []string) error {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		shapes := slices.ContainsFunc(shapingVariables(tool), func(known string) bool {
			if start, ok := strings.CutSuffix(known, "*"); ok {
				return strings.HasPrefix(name, start)
			}
			return name == known || strings.HasPrefix(known, "npm_") && strings.EqualFold(name, known)
		})
		if shapes && value != "" && !isUsual(variable) {
			return bailey.Invalid.Errorf("unset "+name+", or pass its meaning as an argument, if bailey shim check accepts it",
				"%s is set, and a call gets no variables of its caller: the answer would not be that of %s with it", name, tool)
		}
	}
	return nil
}
