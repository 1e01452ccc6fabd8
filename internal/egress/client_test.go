package egress

import (
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// trusted returns a file with the authorities that a client in the cage trusts: the world's and the call's.
func (y *yard) trusted() string {
	name := filepath.Join(y.world.t.TempDir(), "roots.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: y.world.ca.Raw}), y.Root()...)
	if err := os.WriteFile(name, text, 0o644); err != nil {
		y.world.t.Fatal(err)
	}
	return name
}

func (y *yard) run(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = y.world.t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestCurl runs curl through HTTP and SOCKS5, to allowed and to other hosts.
func TestCurl(t *testing.T) {
	ktest.Require(t, "curl")
	w := newWorld(t)
	heard := w.told("api.example.com", public)
	w.host("shut.example.com", public2, 443, echo)
	y := w.start(Config{Allow: allow("api.example.com:443", "shut.example.com:443"), Inject: []Injection{secretOf("api.example.com:443")}})
	curl := func(args ...string) (string, error) {
		return y.run("curl", append([]string{"-sS", "--max-time", "60", "--cacert", y.trusted()}, args...)...)
	}
	for _, proxy := range []string{"http://" + y.addr, "socks5h://" + y.addr} {
		if out, err := curl("-x", proxy, "https://shut.example.com/a"); err != nil || !strings.Contains(out, "shut.example.com /a") {
			t.Errorf("%s: %q, %v", proxy, out, err)
		}
		if out, err := curl("-x", proxy, "-H", "Authorization: Bearer "+held, "-d", "x=y", "https://api.example.com/"); err != nil || out != "ok" {
			t.Errorf("%s, opened: %q, %v", proxy, out, err)
		} else if got := (<-heard).Header.Get("Authorization"); got != "Bearer s3cr3t value" {
			t.Errorf("%s: the host got %q", proxy, got)
		}
		if out, err := curl("-x", proxy, "https://evil.example/"); err == nil {
			t.Errorf("%s: %q", proxy, out)
		}
		if out, err := curl("-x", proxy, "--connect-to", "api.example.com:443:shut.example.com:443", "https://api.example.com/"); err == nil {
			t.Errorf("%s, fronting: %q", proxy, out)
		}
	}
	if out, err := curl("-v", "-x", "http://"+y.addr, "https://evil.example/"); err == nil || !strings.Contains(out, "403 egress to evil.example:443 is not allowed") {
		t.Errorf("curl shows %q", out)
	}
	// With socks5 instead of socks5h, curl resolves in the cage, which controls the result, and requests an address.
	if out, err := curl("-x", "socks5://"+y.addr, "--resolve", "shut.example.com:443:"+public2, "https://shut.example.com/"); err == nil {
		t.Errorf("by address: %q", out)
	}
}

// TestGit clones over HTTPS, with an injected secret.
func TestGit(t *testing.T) {
	ktest.Require(t, "git")
	w := newWorld(t)
	site := t.TempDir()
	for _, args := range [][]string{{"init", "-q", "-b", "main", site + "/src"}, {"-C", site + "/src", "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "--allow-empty", "-m", "one"},
		{"clone", "-q", "--bare", site + "/src", site + "/repo.git"}, {"-C", site + "/repo.git", "update-server-info"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", args, out)
		}
	}
	files := http.FileServer(http.Dir(site))
	w.host("git.example.com", public, 443, func(rw http.ResponseWriter, r *http.Request) {
		if _, password, ok := r.BasicAuth(); !ok || password != "s3cr3t value" {
			rw.Header().Set("WWW-Authenticate", "Basic")
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(rw, r)
	})
	y := w.start(Config{Allow: allow("git.example.com:443"), Inject: []Injection{secretOf("git.example.com:443")}})
	git := func(url string) (string, error) {
		return y.run("git", "-c", "http.proxy=http://"+y.addr, "-c", "http.sslCAInfo="+y.trusted(), "clone", url, "there")
	}
	if out, err := git("https://git:" + held + "@git.example.com/repo.git"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := git("https://evil.example/repo.git"); err == nil || !strings.Contains(out, "403") {
		t.Errorf("%v: %s", err, out)
	}
}
