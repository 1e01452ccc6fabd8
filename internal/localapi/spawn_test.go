package localapi

import (
	"slices"
	"testing"
)

// TestEnviron checks that the gateway gets only those variables of the client's environment that it reads.
func TestEnviron(t *testing.T) {
	got := gatewayEnv([]string{"PATH=/bin", "LC_ALL=C", "SSH_AUTH_SOCK=/s", "BAILEY_X=1", "XLC_ALL=1", "PATHS=1", "DB_PASSWORD=1", "https_proxy=1",
		"BAILEY_HOME=/h", "BAILEY_OPERATOR=1", SessionVariable + "=1", TokenVariable + "=1", TraceVariable + "=/t", ReadyVariable + "=3", "odd"})
	if want := []string{"PATH=/bin", "LC_ALL=C", "SSH_AUTH_SOCK=/s", "BAILEY_X=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
