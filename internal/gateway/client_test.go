package gateway

import (
	"context"
	"errors"
	"testing"

	"bailey/internal/localapi"
)

// TestEndingsAreCancellations checks that a call counts as killed if the gateway's own end cuts it off, with that end
// as the reason.
func TestEndingsAreCancellations(t *testing.T) {
	for _, err := range []error{errIdle, errReplaced, errStopped, callerGone} {
		if !errors.Is(err, context.Canceled) || err.Error() == context.Canceled.Error() {
			t.Errorf("%v is not a cancellation in words", err)
		}
	}
	g, client, done := start(t, nil)
	go client.Call(context.Background(), localapi.CallQuery{Capability: "wait"}, nil, nil)
	<-g.started
	stopped, err := client.Stop(t.Context())
	if err != nil || !stopped {
		t.Fatalf("%v %v", stopped, err)
	}
	if why := <-g.killed; !errors.Is(why, context.Canceled) {
		t.Errorf("the open call ended with %v", why)
	}
	if err := <-done; err != errStopped {
		t.Errorf("the gateway ended with %v", err)
	}
	if stopped, err = client.Stop(t.Context()); stopped || err != nil {
		t.Errorf("a second stop: %v %v", stopped, err)
	}
}
