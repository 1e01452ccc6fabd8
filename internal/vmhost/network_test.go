//go:build linux

package vmhost

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/guestwire"
	"bailey/internal/hostapi"
)

// manyPlaces returns a network that needs more sockets than a session may have.
func manyPlaces() *hostapi.Network {
	n := &hostapi.Network{}
	for i := range guestwire.MaxListeners {
		n.Endpoints = append(n.Endpoints, bailey.Endpoint{Host: fmt.Sprintf("h%d.example", i), Port: 443})
	}
	return n
}

// place returns a server on this machine, which greets, and its endpoint for sandboxes.
func place(t testing.TB) (bailey.Endpoint, *httptest.Server) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello "+r.URL.Path) }))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	return bailey.Endpoint{Host: "localhost", Port: n, Private: true, Plain: true}, s
}

// TestBoxNetwork checks that a sandbox with a network reaches its places, with and without support for proxies, and nothing
// else; that branches, restarts of the machine and of the host keep that; and that the host reports the connections.
func TestBoxNetwork(t *testing.T) {
	t.Parallel()
	at, _ := place(t)
	_, other := place(t)
	dir := shortDir(t)
	r := runHost(t, testConfig(t, dir))
	reach := &hostapi.Network{Endpoints: []bailey.Endpoint{at}}
	made := must(r, hostapi.Create, hostapi.CreateRequest{Name: "one", Image: "agent", MemoryMB: 96, Network: reach})
	if made.Network != hostapi.NamesNetwork || fmt.Sprint(made.Egress) != fmt.Sprint(reach.Endpoints) {
		t.Errorf("%+v", made)
	}
	r.addBusybox("one")
	get := fmt.Sprintf("(unset http_proxy; wget -qO- http://%s/direct); ", at.String())
	through := fmt.Sprintf("wget -qO- http://%s/proxy; ", at.String())
	if got := r.shell("one", get+through); got != "hello /directhello /proxy" {
		t.Errorf("%q", got)
	}
	refused := "(" + strings.Join([]string{"wget -qO- " + other.URL, "unset http_proxy; wget -qO- " + other.URL,
		"unset http_proxy; wget -qO- http://192.0.2.1/"}, ") 2>&1 || echo no 1; (") + ") 2>&1 || echo no 2; ls /sys/class/net"
	if got := r.shell("one", refused); strings.Contains(got, "hello") || strings.Count(got, "no ") != 3 || !strings.HasSuffix(got, "lo") {
		t.Errorf("other places: %q", got)
	}
	report := must(r, hostapi.TakeEgress, hostapi.Target{Sandbox: "one"})
	if report.Connections < 1 || report.Refused != 1 || report.Down == 0 || len(report.Refusals()) != 1 {
		t.Errorf("reported: %+v", report)
	}
	if again := must(r, hostapi.TakeEgress, hostapi.Target{Sandbox: "one"}); again.Connections != 0 || len(again.Events) > 0 {
		t.Errorf("reported twice: %+v", again)
	}

	must(r, hostapi.Branch, hostapi.BranchRequest{Sandbox: "one", N: 1, Name: "two"})
	must(r, hostapi.Pause, hostapi.Target{Sandbox: "one"})
	must(r, hostapi.Resume, hostapi.Target{Sandbox: "one"})
	must(r, hostapi.Stop, hostapi.Target{Sandbox: "two"})
	must(r, hostapi.Start, hostapi.Target{Sandbox: "two"})
	must(r, hostapi.TakeSnapshot, hostapi.SnapshotRequest{Sandbox: "one", Name: "kept"})
	must(r, hostapi.Create, hostapi.CreateRequest{Name: "without", Snapshot: "kept"})
	if got := r.shell("without", "(wget -qO- http://"+at.String()+") 2>&1 || echo no"); strings.Contains(got, "hello") || !strings.HasSuffix(got, "no") {
		t.Errorf("a sandbox without network: %q", got)
	}
	must(r, hostapi.StartJob, hostapi.Command{Sandbox: "one", Argv: []string{"/bin/busybox", "sh", "-c",
		"while ! /bin/busybox test -e /seen; do /bin/busybox sleep 0.2; done; /bin/busybox wget -qO/answer http://" + at.String() + "/job"}})
	r.stop()
	r = runHost(t, testConfig(t, dir))
	defer clearHost(t, r)
	for _, name := range []string{"one", "two"} {
		if got := r.shell(name, get+through); got != "hello /directhello /proxy" {
			t.Errorf("%s after the restart of the host: %q", name, got)
		}
	}
	r.shell("one", "touch /seen")
	eventually(t, "the job reaches its place", func() bool { return r.shell("one", "cat /answer || true") == "hello /job" })
}

// TestNetworkOfUsers checks that other users than that of the host reach no private addresses through it.
func TestNetworkOfUsers(t *testing.T) {
	t.Parallel()
	private := &hostapi.Network{Endpoints: []bailey.Endpoint{{Host: "db.internal", Port: 5432, Private: true}}}
	if err := checkNetwork(caller{uid: 0}, private); err != nil {
		t.Error(err)
	}
	other := caller{uid: 12345}
	if err := checkNetwork(other, private); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "db.internal:5432") {
		t.Error(err)
	}
	if err := checkNetwork(other, &hostapi.Network{Endpoints: []bailey.Endpoint{{Host: "deb.debian.org", Port: 443}}}); err != nil {
		t.Error(err)
	}
}
