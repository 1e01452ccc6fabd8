package pack

import (
	"slices"
	"strings"
	"testing"

	"bailey"
)

const builder = `
name: demo
version: 1.0.0
capabilities:
  - name: build
    risk: medium
    sideEffectClass: mutating
    reversibility: reversible
    backend: {type: subprocess, command: go, cwdFromInput: dir}
    sandboxProfile: {fs: {FS}, cache: true, network: {loopback: true}}
    inputSchema: {type: object, required: [dir], properties: {dir: {type: string, format: path}, too: {type: string, format: path}}}
`

func TestExecIsAWaiver(t *testing.T) {
	manifest := func(fs string) []byte { return []byte(strings.Replace(builder, "FS", fs, 1)) }
	p, err := parsePack("pack.yaml", manifest(`rw: ["{{ input.dir }}"], exec: ["{{ input.dir }}", /usr/, /usr/local/go/bin/, /usr/bin/git]`), true)
	if err != nil {
		t.Fatal(err)
	}
	m := p.Capabilities[0]
	j := m.Job(nil, []bailey.Place{{Input: "dir", Path: "/w", Write: true}})
	if !slices.Equal(m.Waivers(), []string{FSExec}) || !m.Loopback() {
		t.Errorf("%q, loopback %v", m.Waivers(), m.Loopback())
	}
	if got := m.Programs(); !slices.Equal(got, []string{"/usr/local/go/bin/go", "go"}) {
		t.Errorf("%q", got)
	}
	w := j.Wall
	if w == nil || !w.Run || w.Cache != "demo" || w.Home != nil || w.Unix || w.Pty || !slices.Equal(w.Trees, []bailey.Tree{{Path: "/usr"}, {Path: "/usr/local/go/bin"}}) ||
		w.Path != "/usr/local/go/bin:"+searched || !slices.Equal(j.Exec, []string{"/usr/bin/git"}) {
		t.Errorf("%+v %q", w, j.Exec)
	}
	for text, want := range map[string]string{
		`rw: ["{{ input.dir }}"]`:                                               "",
		`rw: ["{{ input.dir }}"], exec: ["{{ input.dir }}"]`:                    FSExec,
		`rw: ["{{ input.dir }}"], exec: ["{{ input.dir }}", "{{ input.dir }}"]`: "exec names input.dir twice",
		`exec: ["{{ input.dir }}"]`:                                             "exec needs inputs in fs.rw",
		`rw: ["{{ input.dir }}"], exec: ["{{ input.dir }}/bin"]`:                "exec must be only a path input",
		`rw: ["{{ input.dir }}"], exec: ["{{ input.none }}"]`:                   "exec must be path inputs",
		`rw: ["{{ input.dir }}", "{{ input.too }}"], exec: ["{{ input.dir }}"]`: "exec must have all of fs.rw",
		`exec: [/usr/]`:        "only built-in packs may name directories of programs in fs.exec; name each program",
		`exec: [/usr/bin/git]`: FSExec,
		`exec: [usr/bin/git]`:  "exec must be absolute paths",
	} {
		p, err := Parse("pack.yaml", manifest(text))
		switch {
		case err != nil && (want == FSExec || want == "" || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", text, err)
		case err == nil && strings.Join(p.Capabilities[0].Waivers(), " ") != want:
			t.Errorf("%s: %q", text, p.Capabilities[0].Waivers())
		}
	}
	for fs, want := range map[string]string{
		`exec: [/usr/]`:                 "exec can name programs, but no directory, only if egress reaches a network",
		`exec: ["{{ input.dir }}"]`:     "exec can name programs, but no directory, only if egress reaches a network",
		`exec: [/usr/bin/rustc]`:        "",
		`exec: [/usr/bin/rustc, /usr/]`: "exec can name programs, but no directory, only if egress reaches a network",
	} {
		text := strings.Replace(string(manifest(`rw: ["{{ input.dir }}"], `+fs)), "{loopback: true}", `{egress: ["example.com:443"]}`, 1)
		if p, err := parsePack("pack.yaml", []byte(text), true); want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && (err != nil || len(p.Capabilities[0].Waivers()) > 0 || !p.Capabilities[0].agentJailRights().Fetches) {
			t.Errorf("%s: %v", fs, err)
		}
	}
	for _, text := range []string{`exec: [usr/]`, `exec: [/]`, `exec: [/usr/../x/]`, `exec: [//]`, `exec: [""]`} {
		if _, err := parsePack("pack.yaml", manifest(text), true); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// TestDigestsStay checks that a manifest without exec, cache and loopback has the digest that it had before these keys
// existed.
func TestDigestsStay(t *testing.T) {
	p, err := Parse("pack.yaml", []byte(strings.NewReplacer("FS", `rw: ["{{ input.dir }}"]`, ", cache: true, network: {loopback: true}", "").Replace(builder)))
	if err != nil {
		t.Fatal(err)
	}
	if m := p.Capabilities[0]; m.Digest != "84110fd5e3a96002fa50ed3194f198e7b7216d0a2ba217907c6690c387d875b8" {
		t.Error(m.Digest)
	}
}
