package readonly

import (
	"fmt"
	"strings"
	"testing"
)

// ownFile is a file of commands with every key.
const ownFile = `{
  "commands": [
    {
      "program": "/opt/app/bin/appctl",
      "stops": "flush and purge, which empty the queue",
      "subcommands": ["status", "queue list"],
      "options": [
        {"name": "-v"},
        {"name": "--json"},
        {"name": "-n", "value": "number"},
        {"name": "--since", "value": "name"},
        {"name": "--config", "value": "file"},
        {"name": "--output", "one_of": ["text", "json"]},
        {"name": "--no-pager"}
      ],
      "refused": [{"options": ["-f", "--flush"], "reason": "empties the queue"}],
      "operands": {"kind": "words", "most": 2},
      "hint": "Use appctl status"
    },
    {"program": "/usr/bin/appstat", "stops": "everything but a file", "operands": {"kind": "files", "least": 1},
     "options": [{"name": "-wide"}, {"name": "-top", "value": "number"}]}
  ]
}
`

// TestOwnCommands checks lines with the commands of a file.
func TestOwnCommands(t *testing.T) {
	own, err := ParseOwn([]byte(ownFile))
	if err != nil || len(own.Rules) != 2 || len(own.Digest) != 64 {
		t.Fatalf("%+v %v", own, err)
	}
	for line, want := range map[string]string{
		"appctl status -v":                         "/opt/app/bin/appctl status -v",
		"appctl status | grep -c x":                "/opt/app/bin/appctl status | /usr/bin/grep -c x",
		"/opt/app/bin/appctl queue list a b":       "/opt/app/bin/appctl queue list a b",
		"appctl status -vn 5 --since=2026-01-01":   "/opt/app/bin/appctl status -vn 5 --since=2026-01-01",
		"appctl status --out json":                 "/opt/app/bin/appctl status --output json",
		"appctl status --config /etc/app.conf":     "/opt/app/bin/appctl status --config /etc/app.conf",
		"appctl status --no-pager -- x":            "/opt/app/bin/appctl status --no-pager -- x",
		"appstat -wide -top 3 /var/log/app.log":    "/usr/bin/appstat -wide -top 3 /var/log/app.log",
		"timeout 5 appctl status":                  "/usr/bin/timeout 5 /opt/app/bin/appctl status",
		"find /var -name x -exec appstat {} ';'":   "/usr/bin/find /var -name x -exec /usr/bin/appstat '{}' ';'",
		"appctl status --output /tmp/x":            "",
		"appctl status --output":                   "",
		"appctl status -n -1":                      "",
		"appctl status -n5x":                       "",
		"appctl status --since ../x":               "",
		"appctl status --since=-x":                 "",
		"appctl status --config x":                 "",
		"appctl status --config /dev/watchdog":     "",
		"appctl status --config=https://x/":        "",
		"appctl status --flush":                    "",
		"appctl status -vf":                        "",
		"appctl status --fl":                       "",
		"appctl status --help":                     "",
		"appctl status https://example.com/":       "",
		"appctl status '|id'":                      "",
		"appctl status @/etc/passwd":               "",
		"appctl status a b c":                      "",
		"appctl purge":                             "",
		"appctl":                                   "",
		"/usr/bin/appctl status":                   "",
		"/opt/app/bin/../bin/appctl status":        "",
		"/tmp/appctl status":                       "",
		"appstat --wide /x":                        "",
		"appstat -wi /x":                           "",
		"appstat /dev/tty":                         "",
		"echo x | xargs appctl status":             "",
		"find / -exec appctl status {} ';'":        "",
		"find / -exec appctl status --config {} +": "",
	} {
		// On a host, another program of the name may be in a directory of the system.
		v := Check(line, Options{Rules: own.Rules, Paths: map[string]string{"appctl": "/usr/bin/appctl"}})
		if v.Text != want {
			t.Errorf("%s: %q %s, want %q", line, v.Text, v.Reason, want)
		}
		marked := false
		for _, c := range v.Commands {
			marked = marked || c.Added
			if c.Added != strings.HasPrefix(c.Name, "app") || c.Network {
				t.Errorf("%s: %+v", line, c)
			}
		}
		if want != "" && !marked {
			t.Errorf("%s: no command is marked", line)
		}
		if v := Check(line, Options{}); v.Accepted() {
			t.Errorf("%s is accepted without the file", line)
		}
	}
}

// ownEntry returns a file with one command, of which one part is replaced.
func ownEntry(old, with string) string {
	return strings.Replace(`{"commands":[{"program":"/opt/a/bin/appctl","stops":"x","options":[{"name":"-v"}],"operands":{"kind":"words"}}]}`, old, with, 1)
}

// TestOwnFileRefused checks that a file that is malformed, or a grammar that could act by known means, is an error with
// its place.
func TestOwnFileRefused(t *testing.T) {
	if _, err := ParseOwn([]byte(ownEntry("", ""))); err != nil {
		t.Fatal(err)
	}
	for says, text := range map[string]string{
		"line 1: ":                            "",
		"line 3: it is not JSON":              "{\n\"commands\":\n[,]}",
		"is twice in one object":              `{"commands":[],"commands":[]}`,
		`the key "Commands" is unknown`:       `{"Commands":[]}`,
		`the key "STOPS" is unknown`:          ownEntry(`"stops"`, `"STOPS"`),
		`unknown key "rules"`:                 `{"rules":[]}`,
		`commands[0]: unknown key "inert"`:    ownEntry(`"stops"`, `"inert":true,"stops"`),
		`unknown key "network"`:               ownEntry(`"stops"`, `"network":true,"stops"`),
		"commands[0]: stops: a number cannot": ownEntry(`"x"`, "1"),
		"commands: a string cannot":           `{"commands":"x"}`,
		"nested deeper":                       strings.Repeat("[", 20) + strings.Repeat("]", 20),
		"more than 262144 bytes":              strings.Repeat(" ", MaxOwnFile+1),
		"commands[0].program: \"appctl\" is":  ownEntry("/opt/a/bin/appctl", "appctl"),
		"\"/opt/a/../sh\" is not":             ownEntry("/opt/a/bin/appctl", "/opt/a/../sh"),
		"\"/opt/a b\" is not":                 ownEntry("/opt/a/bin/appctl", "/opt/a b"),
		"is below /tmp":                       ownEntry("/opt/a/bin/appctl", "/tmp/appctl"),
		"is below /home":                      ownEntry("/opt/a/bin/appctl", "/home/ann/appctl"),
		"commands[0].stops: write one line":   ownEntry(`"x"`, `""`),
		"stops: write one":                    ownEntry(`"x"`, `"a\u202eb"`),
		"has the name appctl":                 `{"commands":[{"program":"/opt/a/appctl","stops":"x"},{"program":"/opt/b/appctl","stops":"x"}]}`,
		"subcommands[1]: \"a;b\" is not":      ownEntry(`"stops"`, `"subcommands":["a","a;b"],"stops"`),
		"options[0].name: \"v\" is not":       ownEntry(`"-v"`, `"v"`),
		"options[0].name: \"-\" is not":       ownEntry(`"-v"`, `"-"`),
		"options[0].name: \"--\" is not":      ownEntry(`"-v"`, `"--"`),
		"options[0].name: \"--a=b\" is not":   ownEntry(`"-v"`, `"--a=b"`),
		"has two hyphens":                     ownEntry(`{"name":"-v"}`, `{"name":"-wide"},{"name":"--x"}`),
		"the option -v occurs twice":          ownEntry(`{"name":"-v"}`, `{"name":"-v"},{"name":"-v","value":"number"}`),
		"value: \"text\" is unknown":          ownEntry(`"-v"`, `"-v","value":"text"`),
		"write either value or one_of":        ownEntry(`"-v"`, `"-v","value":"name","one_of":["a"]`),
		"one_of[1]: \"/tmp/x\" is not":        ownEntry(`"-v"`, `"--output","one_of":["a","/tmp/x"]`),
		"the option -v is accepted too":       ownEntry(`"operands"`, `"refused":[{"options":["-v"],"reason":"x"}],"operands"`),
		"refused[0].reason: write":            ownEntry(`"operands"`, `"refused":[{"options":["-x"]}],"operands"`),
		"operands.kind: write":                ownEntry(`"words"`, `"checked"`),
		"least and most are not":              ownEntry(`"words"`, `"words","least":3,"most":1`),
	} {
		if _, err := ParseOwn([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestOwnFileKnownMeans checks that no file makes a program or an option known that executes, writes or connects.
func TestOwnFileKnownMeans(t *testing.T) {
	for _, program := range strings.Fields("sh bash bash5 bash-static busybox python3 python3.13 perl5.40.1 perl ruby3.3 node node22 nodejs22 " +
		"vim.basic nano gdb strace ld.so ld-linux-x86-64.so.2 ld-musl-x86_64.so.1 env xargs find awk gawk-5.3 sed ssh curl wget nc " +
		"nc.openbsd socat rsync tar sudo su doas setpriv systemd-run at docker kubectl git rm cp mv dd tee install mkfs.ext4 mount " +
		"iptables tcpdump lua5.4 php8.4 tclsh8.6 gcc-14 make apt-get dpkg systemctl java sqlite3 screen nsenter") {
		for _, dir := range []string{"/usr/bin/", "/opt/app/"} {
			if _, err := ParseOwn([]byte(ownEntry("/opt/a/bin/appctl", dir+program))); err == nil {
				t.Errorf("%s%s can be added", dir, program)
			}
			r := Rule{Name: program, Dir: strings.TrimSuffix(dir, "/"), Operands: Words}
			if v := Check(program+" x", Options{Rules: []Rule{r}}); v.Accepted() && v.Commands[0].Added {
				t.Errorf("%s is added by a rule", program)
			}
		}
	}
	for _, option := range strings.Fields("--exec --command --eval --shell --pre-exec --exec-batch --use-pager --pager --editor --plugin-dir --preload " +
		"--output --output-file --out --outfile --write --overwrite --append --save-as --log-file --delete --in-place --create --truncate " +
		"--flush --reset --connect --proxy --upload --listen --url --socket -o -e -c -x -w") {
		for _, value := range []string{"name", "file"} {
			text := ownEntry(`"-v"`, fmt.Sprintf(`%q,"value":%q`, option, value))
			if _, err := ParseOwn([]byte(text)); err == nil || !strings.Contains(err.Error(), "options[0].name: an option ") {
				t.Errorf("%s with a %s: %v", option, value, err)
			}
		}
	}
}

// FuzzOwn checks that a file that is accepted adds no command that has a rule or that is refused, and that a line that
// is accepted with it is accepted again, with programs of the system or of the file only.
func FuzzOwn(f *testing.F) {
	f.Add([]byte(ownFile), "appctl status -v --out json | grep x")
	f.Add([]byte(ownFile), "appstat -wide -top 3 /x")
	f.Add([]byte(ownEntry("", "")), "appctl -v x")
	f.Add([]byte(ownEntry(`"-v"`, `"-n","one_of":["a"]`)), "appctl -na")
	f.Fuzz(func(t *testing.T, data []byte, line string) {
		own, err := ParseOwn(data)
		if err != nil {
			return
		}
		programs := map[string]bool{}
		for _, r := range own.Rules {
			if err := r.Validate(); err != nil {
				t.Fatalf("%s is added: %v", r.Name, err)
			}
			if builtinRules().rules[r.Name] != nil || builtinRules().refused[r.Name] != nil || r.Inert || r.Network || r.nests {
				t.Fatalf("%+v is added", r)
			}
			programs[r.Dir+"/"+r.Name] = true
		}
		v := Check(line, Options{Rules: own.Rules})
		if !v.Accepted() {
			return
		}
		for _, c := range v.Commands {
			if c.Added && !programs[c.Path] {
				t.Fatalf("%q runs %s", line, c.Path)
			}
		}
		if again := Check(v.Text, Options{Rules: own.Rules}); again.Text != v.Text {
			t.Fatalf("%q: %q is checked again as %q %s", line, v.Text, again.Text, again.Reason)
		}
	})
}
