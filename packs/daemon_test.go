package packs_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

// daemonCalls are calls of the packs that query a daemon: each capability with all its inputs.
var daemonCalls = func() (list []struct {
	id    bailey.CapabilityID
	input map[string]any
}) {
	add := func(input map[string]any, ids ...bailey.CapabilityID) {
		for _, id := range ids {
			list = append(list, struct {
				id    bailey.CapabilityID
				input map[string]any
			}{id, input})
		}
	}
	add(nil, "docker.df", "docker.info", "docker.version", "podman.df", "podman.info", "podman.version", "incus.storage-list", "incus.project-list")
	add(map[string]any{"all": true, "untruncated": true, "last": 5, "filter": "label=app=web"}, "docker.ps", "podman.ps")
	add(map[string]any{"options": []any{"-a", "-q", "-fstatus=exited", "--format={{.Names}} {{.Status}}"}}, "docker.ps", "podman.ps")
	add(map[string]any{"all": true, "untruncated": true, "filter": "reference=a/b:1"}, "docker.images", "podman.images")
	add(map[string]any{"container": "web-1", "size": true}, "docker.inspect", "podman.inspect")
	add(map[string]any{"names": []any{"web-1", "a/b:1"}, "options": []any{"-f{{.Id}}"}}, "docker.inspect-any", "podman.inspect-any")
	add(map[string]any{"image": "registry.example:5000/a/b:1.2@sha256:" + strings.Repeat("0a", 32)}, "docker.image-inspect", "docker.image-history", "podman.image-inspect", "podman.image-history", "podman.image-exists", "podman.image-tree")
	add(map[string]any{"container": "web-1", "tail": 10, "timestamps": true, "since": "2026-01-31T12:00:00Z", "until": "5m"}, "docker.logs", "podman.logs")
	add(map[string]any{"container": "web-1"}, "docker.stats", "docker.top", "docker.port", "docker.diff", "podman.stats", "podman.top", "podman.diff", "docker.logs", "podman.logs", "podman.port", "podman.container-exists", "podman.generate-systemd")
	add(map[string]any{"network": "n", "filter": "driver=bridge", "untruncated": true}, "docker.network-ls", "docker.network-inspect", "podman.network-ls", "podman.network-inspect")
	add(map[string]any{"volume": "v", "filter": "driver=local"}, "docker.volume-ls", "docker.volume-inspect", "podman.volume-ls", "podman.volume-inspect")
	add(map[string]any{"pod": "p", "filter": "name=p"}, "podman.pods", "podman.pod-inspect")
	add(map[string]any{"project": "p", "instance": "c1"}, "incus.list", "incus.info", "incus.config-show", "incus.image-list", "incus.network-list", "incus.profile-list")
	add(map[string]any{"term": "postgres", "options": []any{"--limit=5"}}, "docker.search", "podman.search")
	add(map[string]any{"options": []any{"--since=1h"}}, "docker.events", "podman.events")
	add(nil, "podman.secret-ls")
	add(map[string]any{"containers": []any{"web-1", "db"}}, "docker.start", "docker.pause", "docker.unpause", "podman.start", "podman.pause", "podman.unpause", "podman.generate")
	add(map[string]any{"containers": []any{"web-1"}, "options": []any{"-t5"}}, "docker.stop", "docker.restart", "podman.stop", "podman.restart")
	add(map[string]any{"containers": []any{"web-1"}, "options": []any{"-sHUP"}}, "docker.kill", "podman.kill")
	add(map[string]any{"container": "web-1", "name": "web-2"}, "docker.rename", "podman.rename")
	add(map[string]any{"image": "a/b", "target": "registry.example:5000/a/b:2"}, "docker.tag", "podman.tag", "podman.untag", "podman.push")
	add(map[string]any{"image": "a/b:1", "options": []any{"-q"}}, "docker.pull", "docker.push", "podman.pull")
	add(map[string]any{"container": "web-1", "target": "a/b:3"}, "docker.commit", "podman.commit")
	add(map[string]any{"containers": []any{"web-1"}, "options": []any{"-f", "-v"}}, "docker.rm", "podman.rm")
	add(map[string]any{"images": []any{"a/b:1"}, "options": []any{"-f"}}, "docker.rmi", "podman.rmi")
	add(map[string]any{"networks": []any{"n"}}, "docker.network-rm", "podman.network-rm")
	add(map[string]any{"volumes": []any{"v"}}, "docker.volume-rm", "podman.volume-rm")
	add(map[string]any{"pods": []any{"p"}}, "podman.pod-start", "podman.pod-stop", "podman.pod-restart", "podman.pod-rm")
	add(map[string]any{"options": []any{"-f"}}, "docker.container-prune", "docker.image-prune", "docker.volume-prune", "docker.network-prune", "docker.system-prune", "docker.builder-prune",
		"podman.container-prune", "podman.image-prune", "podman.volume-prune", "podman.network-prune", "podman.pod-prune", "podman.system-prune")
	return list
}()

// TestDaemonCommands compares every command line of these packs, and the permitted routes of each, with
// testdata/daemons.golden. If BAILEY_GOLDEN=write is set, it first writes that file.
func TestDaemonCommands(t *testing.T) {
	var b strings.Builder
	seen := map[bailey.CapabilityID]bool{}
	for _, c := range daemonCalls {
		m, err := catalog(t).Lookup(c.id)
		if err != nil {
			t.Fatal(err)
		}
		input := map[string]any{}
		for k, v := range c.input {
			if strings.Contains(string(m.InputSchema()), `"`+k+`":`) {
				input[k] = v
			}
		}
		j := job(t, c.id, input, nil)
		fmt.Fprintf(&b, "%s\n  %s %s\n", c.id, j.Command, strings.Join(j.Args, " "))
		if !seen[c.id] {
			fmt.Fprintf(&b, "  env %s\n  %s %s\n", strings.Join(j.Env, " "), m.API(), strings.Join(m.API().Allow, ", "))
		}
		seen[c.id] = true
	}
	for _, m := range catalog(t).All() {
		if m.API() != nil != seen[m.ID] {
			t.Errorf("%s is not among the calls, or has no daemon", m.ID)
		}
	}
	const golden = "testdata/daemons.golden"
	if os.Getenv("BAILEY_GOLDEN") == "write" {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || b.String() != string(want) {
		t.Errorf("%v; BAILEY_GOLDEN=write shows what differs:\n%s", err, b.String())
	}
}

// TestDaemonsStateTheirChanges checks that no capability that uses a daemon has more than its socket, that its class
// states what its routes do, and that nothing streams but logs, events and what ends by itself.
func TestDaemonsStateTheirChanges(t *testing.T) {
	for _, m := range catalog(t).All() {
		api := m.API()
		if api == nil {
			continue
		}
		j := m.Job(nil, nil)
		if (m.Reversibility == pack.NothingDone) != (m.SideEffect == pack.ReadOnly) || len(j.Read)+len(j.Exec)+len(m.PathInputs())+len(m.Wants()) > 0 || j.NeedsProc || m.Uncaged() {
			t.Errorf("%s has more than a socket", m.ID)
		}
		var change, remove bool
		for _, route := range api.Allow {
			r, err := bailey.ParseRoute(route)
			if err != nil || r.Method == "HEAD" && route != "HEAD /_ping" {
				t.Errorf("%s: %s, %v", m.ID, route, err)
			}
			changes, removes := r.Changes()
			change, remove = change || changes, remove || removes
			for name, values := range r.Query {
				if slices.Contains([]string{"follow", "stream", "sync", "ps_args"}, name) && values == nil && m.SideEffect == pack.ReadOnly &&
					!slices.Contains([]string{"logs", "events"}, strings.SplitN(string(m.ID), ".", 2)[1]) && m.ID != "podman.port" {
					t.Errorf("%s: %s leaves %s open", m.ID, route, name)
				}
				if slices.Contains([]string{"fromSrc", "changes", "authfile", "password", "username"}, name) && !slices.Equal(values, []string{""}) {
					t.Errorf("%s: %s has %s", m.ID, route, name)
				}
			}
		}
		if reaches := m.Reaches(); len(reaches) != 1 || strings.HasSuffix(reaches[0], ":changes") != change {
			t.Errorf("%s reaches %q", m.ID, reaches)
		}
		if untag := strings.HasSuffix(string(m.ID), ".untag"); change != (m.SideEffect != pack.ReadOnly) || remove != (m.SideEffect == pack.Destructive) && !untag {
			t.Errorf("%s is %s, and its routes change %v and remove %v", m.ID, m.SideEffect, change, remove)
		}
	}
}

func TestDaemonsRefuse(t *testing.T) {
	names := []any{"", "-x", "--help", "a b", "a/b", "a:b", "../a", ".", "..", "a%2fb", "a?b", "a#b", "a\n", "a\x00", "@a", "$(id)", "a;b", strings.Repeat("a", 200)}
	for id, input := range map[bailey.CapabilityID]string{"docker.inspect": "container", "docker.logs": "container", "docker.stats": "container", "docker.network-inspect": "network", "docker.volume-inspect": "volume",
		"podman.inspect": "container", "podman.top": "container", "podman.pod-inspect": "pod", "incus.info": "instance", "incus.config-show": "instance"} {
		refuses(t, id, input, names...)
	}
	for _, id := range []bailey.CapabilityID{"docker.image-inspect", "docker.image-history", "podman.image-inspect"} {
		refuses(t, id, "image", "", "-x", "/a", "a/", "a//b", "a/../b", "../a", "a/.", "a b", "a%2fb", "a@sha256:0", "http://a/b", "docker://a", "a?b", "a:b:c", "@a", "a\n")
	}
	refuses(t, "docker.ps", "filter", "", "a", "=b", "a=", "--a=b", "a=b c", "A=b", "a=$(id)")
	refuses(t, "docker.ps", "last", 0, -1, 1001, "x")
	refuses(t, "docker.logs", "tail", 0, "all", 10001)
	refuses(t, "docker.logs", "since", "", "-1", "now", "1 h", "5m&follow=1")
	refuses(t, "docker.logs", "follow", true)
	refuses(t, "docker.stop", "containers", []any{"-x"}, []any{"a/b"}, []any{"a?v=1"})
	refuses(t, "docker.rm", "options", []any{"--help"}, []any{"-fx"}, []any{"-fv"})
	refuses(t, "docker.run", "options", []any{"--privileged"}, []any{"--network=host"}, []any{"--network=container:a"}, []any{"-v/:/h"}, []any{"--volume=./a:/h"}, []any{"--env-file=/etc/passwd"}, []any{"-it"})
	refuses(t, "docker.top", "options", "aux")
	refuses(t, "incus.list", "project", "", "-x", "a/b", "remote:a")
}

// refuses checks that each of the values is refused as an input of a call that is otherwise valid.
func refuses(t *testing.T, id bailey.CapabilityID, input string, values ...any) {
	t.Helper()
	m, err := catalog(t).Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		all := map[string]any{"container": "web", input: v}
		if !strings.Contains(string(m.InputSchema()), `"container":`) {
			delete(all, "container")
		}
		clean, err := m.Check(all, true)
		if err == nil {
			_, err = m.Render(clean, nil)
		}
		if bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%s takes %s %q: %v", id, input, v, err)
		}
	}
}
