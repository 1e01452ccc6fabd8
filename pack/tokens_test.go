package pack

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

func npmWant(to ...string) bailey.Want {
	return bailey.Want{Name: "npmrc", Env: "X", File: true, Inject: &bailey.InjectWant{To: to, Headers: []string{"Authorization"}, Tokens: bailey.TokensNpm}}
}

// TestHideTokens checks that a tool gets placeholders for the tokens of its registry, and nothing else of the file.
func TestHideTokens(t *testing.T) {
	const secret = "npm_theTokenOfTheTest"
	file := "script-shell=/bin/evil\n//other.example/:_authToken=of-another\n  //registry.npmjs.org/:_authToken = \"" + secret + "\"\n" +
		"//registry.npmjs.org/:_password=cGFzcw==\n//registry.npmjs.org/x/:_authToken=${FROM_ENV}\nnode-options=--require /x\n"
	inject, shown, err := HideTokens(npmWant("registry.npmjs.org:443"), bailey.NewSecret(file))
	if err != nil || len(inject) != 1 || inject[0].Value.Reveal() != secret {
		t.Fatalf("%v, %d injections", err, len(inject))
	}
	if got := shown.Reveal(); got != "//registry.npmjs.org/:_authToken="+inject[0].Placeholder+"\n" {
		t.Errorf("the tool sees %q", got)
	}
	for _, other := range []string{"", "registry=https://x\n", "//other.example/:_authToken=x\n", "//registry.npmjs.org/:_authToken=\n",
		"//registry.npmjs.org/:_authToken=${X}\n", "_authToken=x\n"} {
		if inject, shown, err := HideTokens(npmWant("registry.npmjs.org:443"), bailey.NewSecret(other)); err == nil || len(inject) > 0 || shown.Reveal() != "" ||
			bailey.HintOf(err) == "" {
			t.Errorf("%q: %v", other, err)
		}
	}
}

// TestNpmSendsThePlaceholder checks that the real npm reads such a file and sends the placeholder in its header.
func TestNpmSendsThePlaceholder(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "npm")
	sent := make(chan string, 8)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"username": "ada"}`))
	}))
	t.Cleanup(registry.Close)
	place := registry.Listener.Addr().String()
	inject, shown, err := HideTokens(npmWant(place), bailey.NewSecret("//"+place+"/:_authToken=npm_secret\n"))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "npmrc"), []byte(shown.Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("npm", "whoami", "--registry="+registry.URL+"/")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "NPM_CONFIG_USERCONFIG=" + filepath.Join(home, "npmrc"), "NPM_CONFIG_UPDATE_NOTIFIER=false"}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ada") {
		t.Fatalf("%v: %s", err, out)
	}
	if got := <-sent; got != "Bearer "+inject[0].Placeholder {
		t.Errorf("npm sent %q", got)
	}
}

// FuzzHideTokens checks that no token of any file is in what the tool sees.
func FuzzHideTokens(f *testing.F) {
	f.Add("//registry.npmjs.org/:_authToken=x\n")
	f.Add("a=b\n//registry.npmjs.org/a/:_authToken='abc'\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		inject, shown, err := HideTokens(npmWant("registry.npmjs.org:443"), bailey.NewSecret(text))
		if err != nil {
			return
		}
		var held []string
		for _, in := range inject {
			held = append(held, in.Placeholder)
		}
		for line := range strings.Lines(shown.Reveal()) {
			_, value, _ := strings.Cut(line, ":_authToken=")
			if len(inject) > maxTokens || !strings.HasPrefix(line, "//registry.npmjs.org") || !slices.Contains(held, strings.TrimSpace(value)) {
				t.Errorf("%q", line)
			}
		}
	})
}
