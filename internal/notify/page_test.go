package notify

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// block returns the first code block of the page in the given language.
func block(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n```"+language+"\n")
	text, _, end := strings.Cut(rest, "\n```\n")
	if !ok || !end {
		t.Fatalf("docs/notify.md has no block of %s", language)
	}
	return text
}

// arrived returns a message as a receiver gets it now.
func arrived(t *testing.T) got {
	t.Helper()
	srv, list := receiver(t, func(int, http.ResponseWriter) {})
	if st := send(t, sender(srv.URL)); st.Sent != 1 {
		t.Fatalf("%+v", st)
	}
	return list()[0]
}

// verifiers are the programs in docs/notify.md. Each reports whether it accepts a message as signed with the key.
func verifiers(t *testing.T) map[string]func(key string, id, at, signature, body string) bool {
	return map[string]func(key string, id, at, signature, body string) bool{
		"openssl": func(key, id, at, signature, body string) bool {
			name := filepath.Join(t.TempDir(), "body")
			if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", "-c", block(t, "sh"))
			cmd.Env = append(os.Environ(), "key="+key, "id="+id, "timestamp="+at, "signature="+signature, "body="+name)
			out, _ := cmd.CombinedOutput()
			return string(out) == "good\n"
		},
		"python3": func(key, id, at, signature, body string) bool {
			said, err := json.Marshal(map[string]any{"key": key, "body": body, "headers": map[string]string{"webhook-id": id, "webhook-timestamp": at, "webhook-signature": signature}})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("python3", "-c", block(t, "python")+"\nimport json, sys\nm = json.load(sys.stdin)\nprint(verify(m['key'], m['headers'], m['body'].encode()))")
			cmd.Stdin = strings.NewReader(string(said))
			out, err := cmd.CombinedOutput()
			if word := strings.TrimSpace(string(out)); err != nil || word != "True" && word != "False" {
				t.Fatalf("%v: %s", err, out)
			}
			return strings.TrimSpace(string(out)) == "True"
		},
	}
}

// TestPageVerifies checks that the programs in docs/notify.md accept a sent message and nothing else.
func TestPageVerifies(t *testing.T) {
	ktest.Long(t)
	for program, verify := range verifiers(t) {
		t.Run(program, func(t *testing.T) {
			ktest.Require(t, program)
			g := arrived(t)
			k, _ := fixed()
			key, id, at, signature := k.Text().Reveal(), g.header.Get("webhook-id"), g.header.Get("webhook-timestamp"), g.header.Get("webhook-signature")
			if !verify(key, id, at, signature, g.body) {
				t.Error("it does not verify what is sent")
			}
			old := time.Unix(1614265330, 0)
			for name, forged := range map[string]bool{
				"another body": verify(key, id, at, signature, g.body+" "), "another id": verify(key, id+"x", at, signature, g.body), "another time": verify(key, id, at+"0", signature, g.body),
				"another key": verify(NewKey().Text().Reveal(), id, at, signature, g.body), "old": verify(key, id, "1614265330", k.signBody(id, old, []byte(g.body)), g.body), "none": verify(key, id, at, "", g.body),
			} {
				if forged {
					t.Errorf("%s is taken", name)
				}
			}
		})
	}
}
