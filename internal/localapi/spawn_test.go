package localapi

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestEnviron checks that the gateway gets only those variables of the client's environment that it reads.
func TestEnviron(t *testing.T) {
	got := gatewayEnv([]string{"PATH=/bin", "LC_ALL=C", "SSH_AUTH_SOCK=/s", "BAILEY_X=1", "XLC_ALL=1", "PATHS=1", "DB_PASSWORD=1", "https_proxy=1",
		"BAILEY_HOME=/h", "BAILEY_OPERATOR=1", SessionVariable + "=1", TokenVariable + "=1", TraceVariable + "=/t", ReadyVariable + "=3", "odd",
		"NVM_DIR=/home/u/.nvm"}, nil)
	if want := []string{"PATH=/bin", "LC_ALL=C", "SSH_AUTH_SOCK=/s", "BAILEY_X=1", "NVM_DIR=/home/u/.nvm"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHookVariables checks that a gateway that a client starts gets the variables that hooks declare, and no loader's.
func TestHookVariables(t *testing.T) {
	home := Home(t.TempDir())
	if got := home.hookVariables(); got != nil {
		t.Errorf("without a file: %q", got)
	}
	for text, want := range map[string][]string{
		`{"hooks": {"PreToolUse": [{"command": "x", "env": ["TEAM", "LD_PRELOAD"]}, {"argv": ["y"]}]}}`: {"TEAM"},
		`{"hooks": `: nil, `[]`: nil, `{"hooks": {"PreToolUse": [{"env": "TEAM"}]}}`: nil,
	} {
		if err := os.WriteFile(filepath.Join(string(home), "hooks.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := home.hookVariables()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", text, got)
		}
		env := gatewayEnv([]string{"TEAM=a", "LD_PRELOAD=b", "BAILEY_OPERATOR=1"}, append(got, "BAILEY_OPERATOR"))
		if slices.Contains(env, "TEAM=a") != (want != nil) || len(env) > 1 {
			t.Errorf("%s: %q", text, env)
		}
	}
}
