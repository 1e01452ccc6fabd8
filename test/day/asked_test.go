//go:build linux

package day

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// told is a message about a question, as a webhook receives it.
type told struct {
	Type, ID, Capability string
}

// webhook starts a receiver for the messages to the user.
func webhook(t *testing.T) (url string, heard <-chan told) {
	t.Helper()
	all := make(chan told, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m told
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil || !strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,") {
			t.Errorf("the webhook was sent %q, %v, signed %q", body, err, r.Header.Get("Webhook-Signature"))
		}
		all <- m
	}))
	t.Cleanup(server.Close)
	return server.URL, all
}

// asked pushes to main, which is a release: the call waits for a person. The person gets a message, reads which commit
// would be pushed, and signs.
func (d *day) asked() {
	u := d.u
	key, team := filepath.Join(u.home, ".ssh", "approvals"), filepath.Join(u.project, "team.git")
	u.must(u.home, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", key)
	url, heard := webhook(d.t)
	settings := filepath.Join(u.home, ".bailey", "settings.yaml")
	public := strings.Fields(u.must(u.home, "cat", key+".pub"))
	u.write(settings, u.must(u.home, "cat", settings)+"approvers:\n  - name: me\n    key: "+public[0]+" "+public[1]+"\n    roles: [releaser]\nnotify:\n  webhook: {url: "+url+"}\n")
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "notify", "key", "--yes")
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "init", "--apply", "--yes")

	push := []string{"git.push", "-i", "repo=.", "-i", "to=team.git", "-i", "ref=main"}
	u.must(u.project, "git", "update-ref", "refs/heads/main", "HEAD")
	tip := strings.TrimSpace(u.must(u.project, "git", "rev-parse", "main"))
	d.byCommand("pending", 2, "the same call; it runs once", push...)
	id := d.toldOf(heard, "git.push")
	if out := u.must(u.project, "bailey", "approvals", "show", id); !strings.Contains(out, tip) || !strings.Contains(out, "add a key by mistake") {
		d.t.Errorf("which commit would be pushed is not shown: %s", out)
	}
	if out, code := u.does(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "approve", id, "--yes"); code == 0 {
		d.t.Errorf("granted without a signature: %s", out)
	}
	u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "approve", id, "--key", key, "--yes")
	u.must(u.project, "git", "update-ref", "refs/heads/main", "main~1") // not the commit that was shown
	d.byCommand("pending", 2, "a push to main is a release", push...)
	u.must(u.project, "bailey", "deny", d.toldOf(heard, "git.push"), "--reason", "not that one")
	u.must(u.project, "git", "update-ref", "refs/heads/main", tip)
	d.byCommand("ok", 0, "", push...)
	if got := strings.TrimSpace(u.must(u.project, "git", "-C", team, "rev-parse", "main")); got != tip {
		d.t.Errorf("%s was pushed, and %s was shown", got, tip)
	}

	granted := make(chan string, 1)
	go func() { // a second terminal
		id := d.toldOf(heard, "system.echo")
		u.must(u.project, "env", "BAILEY_OPERATOR=1", "bailey", "approve", id, "--key", key, "--yes")
		granted <- id
	}()
	// waits for the answer
	d.allowed("system_echo", map[string]any{"message": "release: the bell rings"}, "the bell rings")
	d.signed(<-granted, key)
}

// toldOf returns the next question that the webhook receives.
func (d *day) toldOf(heard <-chan told, capability string) string {
	for {
		select {
		case m := <-heard:
			if m.Type == "question.open" {
				if m.Capability != capability {
					d.t.Errorf("told of %+v", m)
				}
				return m.ID
			}
		case <-time.After(patience):
			d.t.Error("the webhook is told of no question")
			return "a-none"
		}
	}
}

// signed verifies an answer in the ledger without Bailey.
func (d *day) signed(id, key string) {
	d.u.must(d.u.home, "sh", "-c", `set -e
bailey approvals show `+id+` --text > question
grep -h '"kind":"answer"' .bailey/ledger/*.jsonl | grep `+id+` | sed 's/.*"signature":"\([^"]*\)".*/\1/; s/\\n/\n/g' > answer
echo "me $(cut -d' ' -f1-2 `+key+`.pub)" > allowed_signers
ssh-keygen -Y verify -n approval@bailey -f allowed_signers -I me -s answer < question`)
}
