package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
)

// shown returns a desktop whose notify-send is a shell script.
func shown(t *testing.T, script string, change ...func(*Config)) (*desktop, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notify-send"), []byte("#!/bin/sh\n"+strings.ReplaceAll(script, "DIR", dir)+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Config{Path: dir, Bus: "unix:path=/nowhere", Patience: 5 * time.Second}
	for _, f := range change {
		f(&c)
	}
	return newDesktop(c), dir
}

const record = `printf '%s\0' "$@" >DIR/argv; env >DIR/env`

// TestDesktopArgv checks that the text of an agent is one argument after --, without markup, escapes or additional
// lines.
func TestDesktopArgv(t *testing.T) {
	t.Setenv("SECRET", "hunter2")
	for _, text := range append(hostile, "main") {
		d, dir := shown(t, record)
		q := question()
		q.Inputs, q.Principal.Agent = []bailey.Input{{Name: "ref", Shown: bailey.Shown{Text: text}}}, text
		if _, err := d.sendMessage(t.Context(), newMessage(Open, q, "", time.Now())); err != nil {
			t.Fatal(err)
		}
		said, err := os.ReadFile(filepath.Join(dir, "argv"))
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Split(strings.TrimSuffix(string(said), "\x00"), "\x00")
		if len(args) != 5 || args[2] != "--" || !strings.HasPrefix(args[3], "Bailey: git.push by ") {
			t.Fatalf("%q: %q", text, args)
		}
		if lines := strings.Split(args[4], "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "ref=") || lines[1] != "main is released" || !strings.Contains(lines[2], "approvals show a-1") {
			t.Errorf("%q", lines)
		}
		if plainly := strings.NewReplacer("&amp;", "", "&lt;", "", "&gt;", "", `\\`, "").Replace(args[4]); strings.ContainsAny(plainly, `<>&\`) {
			t.Errorf("%q", args[4])
		}
		if env, _ := os.ReadFile(filepath.Join(dir, "env")); strings.Contains(string(env), "hunter2") || !strings.Contains(string(env), "DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere") {
			t.Errorf("%s", env)
		}
	}
}

// TestDesktopAbsent checks that the error names the missing part and has a hint.
func TestDesktopAbsent(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	d, _ := shown(t, "exit 0", func(c *Config) { c.Path = t.TempDir() })
	if _, err := d.sendMessage(t.Context(), testMessage(time.Now())); !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "notify-send is not in") || bailey.HintOf(err) == "" {
		t.Error(err)
	}
	for _, bus := range []string{"", "unixexec:path=/bin/sh,argv1=-c", "tcp:host=127.0.0.1", "unix:path=/a;unixexec:path=/bin/sh", "autolaunch:"} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus)
		d, _ := shown(t, "exit 0", func(c *Config) { c.Bus = "" })
		at, err := d.busAddress()
		// a user is logged in here
		if system := fmt.Sprintf("/run/user/%d/bus", os.Getuid()); err == nil && at != "unix:path="+system {
			t.Errorf("%q: %s", bus, at)
		}
		if err != nil && (!errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "no session bus") || bailey.HintOf(err) == "") {
			t.Errorf("%q: %v", bus, err)
		}
	}
}

// TestDesktopFails checks that the error of a failing notify-send is one line, and that a hanging one is ended with its
// child processes.
func TestDesktopFails(t *testing.T) {
	d, _ := shown(t, `printf 'no \033[31mdaemon\nsecond line\n' >&2; head -c 1000000 /dev/zero >&2; exit 1`)
	if _, err := d.sendMessage(t.Context(), testMessage(time.Now())); err == nil || !strings.Contains(err.Error(), `no \u{1b}[31mdaemon`) || strings.Contains(err.Error(), "second") {
		t.Error(err)
	}
	d, _ = shown(t, "sleep 1000 & sleep 1000", func(c *Config) { c.Patience = 100 * time.Millisecond })
	if _, err := d.sendMessage(context.Background(), testMessage(time.Now())); err == nil || !strings.Contains(err.Error(), "took longer") {
		t.Error(err)
	}
}
