package cli

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/localapi"
)

// TestSilentGateway checks the message for a gateway that accepts connections and never answers.
func TestSilentGateway(t *testing.T) {
	home := localapi.Home(t.TempDir())
	l, err := net.Listen("unix", home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = AskStatus(t.Context(), home, 20*time.Millisecond)
	if !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "does not answer") || bailey.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}
