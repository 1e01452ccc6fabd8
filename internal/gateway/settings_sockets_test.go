//go:build linux || darwin

package gateway

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/settings"
	"bailey/internal/workspace"
)

// TestSocketSettings checks that the operator sets the socket of a daemon and that the setting holds after a start. The
// socket must not be in a workspace, because an agent could reach it there without the gate.
func TestSocketSettings(t *testing.T) {
	b := newBook(t)
	want := map[string]string{"docker": "/run/user/1000/docker.sock", "incus": "/srv/incus.socket"}
	if _, err := b.put(t, "network:\n  sockets: {docker: /run/user/1000/docker.sock, incus: /srv/incus.socket}\n"); err != nil {
		t.Fatal(err)
	}
	if got := b.Applied().Network.Sockets; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	for text, want := range map[string]string{
		"{dockr: /x}":              `"dockr" is not a daemon; use docker, incus, podman`,
		"{docker: x}":              "a socket must be an absolute path",
		"{docker: /a/../b}":        "a socket must be an absolute path",
		"{docker: /a/}":            "a socket must be an absolute path",
		"{docker: }":               "must be one line",
		"{docker: [/a]}":           "must be one line",
		"{docker: /a, docker: /b}": "docker",
		"[docker]":                 "must have keys",
		"/var/run/docker.sock":     "must have keys",
		"{docker: tcp://x:1}":      "",
	} {
		if said, err := settings.ParseSettings([]byte("network:\n  sockets: " + text + "\n")); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), want) || said.Network.Sockets != nil {
			t.Errorf("%s: %v, %v", text, said.Network.Sockets, err)
		}
	}
	dir := workspace.Canonical(t.TempDir())
	text := "workspaces: [" + dir + "]\nnetwork:\n  sockets: {docker: " + filepath.Join(dir, "deep", "d.sock") + "}\n"
	if _, err := b.put(t, text); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "is in a workspace") || bailey.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}
