package shim

import (
	"strings"
	"testing"

	"bailey"
)

// TestVariables checks that a shim refuses to drop a variable that changes the answer of its tool, and names it.
func TestVariables(t *testing.T) {
	for line, name := range map[string]string{
		"go GOOS=windows": "GOOS", "go A=1 CGO_ENABLED=0": "CGO_ENABLED", "go GOFLAGS=-tags=x": "GOFLAGS",
		"git GIT_DIR=../other/.git": "GIT_DIR", "git GIT_INDEX_FILE=/tmp/index": "GIT_INDEX_FILE",
		"npm npm_config_omit=dev": "npm_config_omit", "npm NPM_CONFIG_OMIT=dev": "NPM_CONFIG_OMIT",
		"npm NODE_ENV=production": "NODE_ENV", "cargo CARGO_BUILD_TARGET=x": "CARGO_BUILD_TARGET",
	} {
		words := strings.Fields(line)
		err := checkVariables(words[0], words[1:])
		if bailey.KindOf(err) != bailey.Invalid || !strings.HasPrefix(err.Error(), name+" is set") ||
			!strings.Contains(bailey.HintOf(err), "unset "+name) {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{"go GOOS=", "go GIT_DIR=x", "git GOOS=windows", "go GOPATH=/x GOFLAGS=-buildvcs=false",
		"git GIT_DIR=.git GIT_INDEX_FILE=.git/index GIT_AUTHOR_NAME=a", "npm npm_config_user_agent=npm npm_config_cache=/c",
		"kubectl KUBECONFIG=/x", "go goos=windows", "go"} {
		words := strings.Fields(line)
		if err := checkVariables(words[0], words[1:]); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
