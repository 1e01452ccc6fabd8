package pack

import (
	"slices"
	"strings"
	"testing"

	"bailey"
)

const opened = `
name: desk
version: 1.0.0
capabilities:
  - name: note
    risk: low
    sideEffectClass: SIDE
    reversibility: reversible
    isolation: none
    backend: {type: subprocess, command: notify-send, cwdFromInput: dir}
    inputSchema: {type: object, properties: {dir: {type: string, format: path}, file: {type: string, format: path}, stdin: {type: string, format: path}}}
`

// TestUncagedIsAWaiver checks that a tool without a cage waives the whole isolation, and that all its paths count as
// writable.
func TestUncagedIsAWaiver(t *testing.T) {
	for _, side := range []string{"additive", "mutating", "destructive"} {
		p, err := Parse("pack.yaml", []byte(strings.Replace(opened, "SIDE", side, 1)+"    stdin: file\n"))
		if err != nil {
			t.Fatal(err)
		}
		m := p.Capabilities[0]
		if !m.Uncaged() || !m.Writes() || !slices.Equal(m.Waivers(), []string{NoIsolation}) || NoIsolation != "isolation" {
			t.Errorf("%+v waives %q", m, m.Waivers())
		}
		// the gateway passes stdin
		want := []PathInput{{Name: "dir", Write: true, Dir: true}, {Name: "file", Write: true}, {Name: "stdin", File: true}}
		if got := m.PathInputs(); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		j := m.Job(nil, []bailey.Place{{Input: "dir", Path: "/w", Write: true}})
		if j.Dir != "/w" || j.Wall != nil || j.Network != nil || j.Limits != (bailey.Limits{}) {
			t.Errorf("%+v", j)
		}
	}
	m := mustParse(t, sample).Capabilities[0]
	if m.Uncaged() || len(m.Waivers()) > 0 {
		t.Errorf("%s waives %q", m.ID, m.Waivers())
	}
}

// TestUncagedContradicts checks that each key that needs a cage is refused at load, with its place and its name.
func TestUncagedContradicts(t *testing.T) {
	text := strings.Replace(opened, "SIDE", "mutating", 1)
	for key, want := range map[string]string{
		`sandboxProfile: {fs: {ro: [/usr/share]}}`:                                "contradicts fs,",
		`sandboxProfile: {fs: {rw: ["{{ input.dir }}"]}}`:                         "contradicts fs,",
		`sandboxProfile: {fs: {hide: ["{{ input.dir }}/x"]}}`:                     "contradicts fs,",
		`sandboxProfile: {fs: {exec: [/usr/bin/git]}}`:                            "contradicts fs,",
		`sandboxProfile: {fs: {libs: [/usr/lib/x]}}`:                              "contradicts fs,",
		`sandboxProfile: {fs: {exec: [/usr/]}}`:                                   "contradicts fs.exec, fs.keep, cache and loopback",
		`sandboxProfile: {cache: true}`:                                           "contradicts fs.exec, fs.keep, cache and loopback",
		`sandboxProfile: {network: {loopback: true}}`:                             "contradicts fs.exec, fs.keep, cache and loopback",
		`sandboxProfile: {network: {egress: ["a.example:443"]}}`:                  "contradicts egress",
		`sandboxProfile: {network: {api: {socket: docker, allow: [GET /_ping]}}}`: "contradicts api",
		`sandboxProfile: {limits: {memoryMiB: 4}}`:                                "contradicts limits",
		`sandboxProfile: {limits: {tasks: 4}}`:                                    "contradicts limits",
		`sandboxProfile: {proc: true}`:                                            "contradicts proc",
		`credentials: [{name: t, env: T}]`:                                        "contradicts credentials",
		`credentials: [{name: t, env: T, file: true}]`:                            "contradicts credentials",
		`preview: {args: [-h]}`:                                                   "contradicts preview",
	} {
		_, err := parsePack("pack.yaml", []byte(text+"    "+key+"\n"), true)
		if err == nil || !strings.Contains(err.Error(), "isolation none "+want) || !strings.HasPrefix(err.Error(), "pack.yaml:") {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := parsePack("pack.yaml", []byte(strings.Replace(text, "isolation: none", "isolation: jail", 1)+"    "+key+"\n"), true); err != nil && strings.Contains(err.Error(), "isolation") {
			t.Errorf("in a cage, %s: %v", key, err)
		}
	}
	for _, key := range []string{"", `sandboxProfile: {env: {A: x}, fs: {}, network: {}}`, `timeout: 5s`} {
		if _, err := Parse("pack.yaml", []byte(text+"    "+key+"\n")); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
