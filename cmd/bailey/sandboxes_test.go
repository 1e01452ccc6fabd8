//go:build linux

package main

import (
	osuser "os/user"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest/guestimage"
)

// othersBox makes a sandbox as another agent, and tries to reach it as the first one: by its id, by its name, and by each call
// that could change it.
const othersBox = `BAILEY_OPERATOR=1 bailey agent add codex --yes >added
export BAILEY_TOKEN=$(cat added)
bailey sandbox create debian --name theirs
id=$(bailey sandbox list | grep -o 'sb-[a-z2-7]*')
unset BAILEY_TOKEN
bailey sandbox list
for words in show destroy stop 'extend SB 1h' 'exec SB -- id' 'snapshot SB s' 'branch SB'; do
  case $words in *SB*) words=$(echo "$words" | sed "s/SB/$id/") ;; *) words="$words $id" ;; esac
  bailey sandbox $words 2>&1 | head -n 1
done
bailey sandbox show theirs 2>&1`

// TestSandboxesGuide follows docs/sandboxes.md with real machines.
func TestSandboxesGuide(t *testing.T) {
	u := newcomer(t)
	home := ""
	for _, pair := range u.env {
		if v, ok := strings.CutPrefix(pair, "HOME="); ok {
			home = filepath.Join(v, ".bailey")
		}
	}
	u.follow(t, step{words: "mkdir -m 700 " + home})
	guestimage.Put(t, home, "debian")
	person, err := osuser.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guestimage.DestroyAll(t, home, person.Username) })
	u.walk(t, "docs/sandboxes.md")
	for _, s := range []step{
		{words: "bailey sandbox create debian --name web --json", prints: []string{`…"ok":true…"structured":{…"name":"web"…`}},
		{words: "bailey sandbox list --json", prints: []string{`…"sandboxes":[…`}},
		{words: "bailey sandbox show web --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox exec web --json -- id", prints: []string{`…"machine":{…"imageDigest":"…`}},
		{words: "echo hello | bailey sandbox exec web --stdin -- cat", prints: []string{"hello"}},
		{words: "bailey sandbox exec web --dir /etc --env A=b -- sh -c 'pwd; echo $A'", prints: []string{"/etc", "b"}},
		{words: "bailey sandbox exec web -- sh -c 'echo password=hunter2hunter'", prints: []string{"password=[REDACTED_PASSWORD_1]"}},
		{words: "bailey sandbox snapshot web kept --json", prints: []string{`…"name":"kept"…`}},
		{words: "bailey sandbox snapshots --json", prints: []string{`…"kept"…`}},
		{words: "bailey sandbox restore web kept --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox branch web --json", prints: []string{`…"sandboxes":[…`}},
		{words: "bailey sandbox pause web --json", prints: []string{`…"state":"paused"…`}},
		{words: "bailey sandbox resume web --json", prints: []string{`…"state":"running"…`}},
		{words: "bailey sandbox stop web --json", prints: []string{`…"state":"stopped"…`}},
		{words: "bailey sandbox start web --json", prints: []string{`…"state":"running"…`}},
		{words: "bailey sandbox extend web 48h --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox create none", exit: 126, prints: []string{"…there is no image none…"}},
		{words: "printf 'a\\0b' >f && BAILEY_OPERATOR=1 bailey sandbox cp f web:/tmp/f --yes --json", prints: []string{`…"size":3…`}},
		{words: "BAILEY_OPERATOR=1 bailey sandbox cp web:/tmp/f g --yes && cmp f g && echo same", prints: []string{"same"}},
		{words: "BAILEY_OPERATOR=1 bailey sandbox cp web:/tmp/f g --yes", exit: 1, prints: []string{"…is there already…"}},
		{words: "bailey sandbox cp f web:/tmp/f", exit: 1, prints: []string{"…needs a person at a terminal…"}},
		{words: "echo 'id -u; exit 4' | BAILEY_OPERATOR=1 bailey sandbox shell web --yes", exit: 4, prints: []string{"0"}},
		{words: "BAILEY_OPERATOR=1 bailey sandbox shell web --yes --json -- true", prints: []string{`{"code":0}`}},
		{words: `grep -ho '"kind":"sandbox.enter"' "$HOME"/.bailey/ledger/*.jsonl`, prints: []string{`"kind":"sandbox.enter"`}},
		{words: othersBox, exit: 1, prints: []string{"…theirs…", "…not found: there is no sandbox sb-…", "…there is no sandbox theirs"}},
		{words: "bailey sandbox exec web -- touch /etc/changed"},
		{words: "bailey sandbox diff web --json", prints: []string{`…"changes":[{…/etc/changed…`}},
		{words: "bailey sandbox export web --json", prints: []string{`…"ok":true…`}},
		{words: "bailey sandbox verify web --shell --json", prints: []string{`…"verified":true…`}},
		{words: "echo true >none.sh && bailey sandbox verify web none.sh --shell", exit: 3, prints: []string{"still differs: file /etc/changed…", "…exited with code 1"}},
		{words: "bailey sandbox destroy web --json", prints: []string{`…"destroyed":"sb-…`}},
	} {
		u.follow(t, s)
	}
}
