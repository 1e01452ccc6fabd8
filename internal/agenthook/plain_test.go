package agenthook

import (
	"context"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/shellparse"
)

// Programs of everyday work are decided by the files that they open, and every other use of them asks.
func TestPlainPrograms(t *testing.T) {
	y := newYard(t)
	for line, want := range map[string]bailey.Effect{
		"sed -n 1,20p sub/x": bailey.Allow, "sed -n '3p;5,$p' sub/x": bailey.Allow, "sed -n '10,+5p' sub/x": bailey.Allow, "git status | sed -n 5p": bailey.Allow,
		"sed -n 1p /etc/passwd": bailey.Deny, "sed -i s/a/b/ sub/x": bailey.Allow, "sed -i 's|a/b|c&\\||g' sub/x sub/y": bailey.Allow, "sed -i s/a/b/w x": bailey.Ask, "sed -i s/a/id/e x": bailey.Ask, "sed -i s/a/b/ ../x": bailey.Deny,
		"sed -i 's/a/b/;w out' x": bailey.Ask, "sed -i 's/[/]/b/w x/' x": bailey.Ask, "sed -i.bak s/a/b/ x": bailey.Ask, "sed -i s/a/b/ x -n": bailey.Ask, "sed -i s/a/b/ keys": bailey.Ask, "sed -i $'s/a/b/\nw x' x": bailey.Ask,
		"sleep 1": bailey.Allow, "date": bailey.Allow, "date +%F": bailey.Allow, "date -s now": bailey.Ask, "date 0101": bailey.Ask, "test -f sub/x && git status": bailey.Allow, "test -d sub": bailey.Allow,
		"node --version": bailey.Allow, "./node --version": bailey.Ask, "yarn --version": bailey.Ask, "test -v 'a[$(id)]'": bailey.Ask,
		"cp sub/x sub/y": bailey.Allow, "cp sub/x /etc/y": bailey.Deny, "cp /etc/passwd x": bailey.Deny, "cp -r sub x": bailey.Ask, "cp a b c": bailey.Ask, "cp out/x y": bailey.Deny, "cp x out": bailey.Deny,
		"cat > sub/x <<'EOF'\n$(id)\nEOF": bailey.Allow, "cat > /etc/x <<'EOF'\nx\nEOF": bailey.Deny, "cat > sub/x <<EOF\n$(id)\nEOF": bailey.Ask, "sh <<'EOF'\nid\nEOF": bailey.Ask, "sed -n 1p x -i": bailey.Ask, "sed -n '1w out' x": bailey.Ask, "sed -n '1e id' x": bailey.Ask,
		"sed -n 1p\\;e x": bailey.Ask, "sed -n $'1p\\ne id' x": bailey.Ask, "sed s/a/b/ x": bailey.Ask, "sed -n": bailey.Ask,
		"which go": bailey.Allow, "pwd": bailey.Allow, "mkdir -p sub/a sub/b": bailey.Allow, "mkdir /etc/x": bailey.Deny, "mkdir -m 777 x": bailey.Ask, "mkdir": bailey.Ask,
		"touch sub/x": bailey.Allow, "touch -r /etc/passwd x": bailey.Ask, "touch -- -x": bailey.Allow, "touch out/x": bailey.Deny,
		"wc -l sub/x": bailey.Allow, "head -n 5 sub/x": bailey.Allow, "tail -f sub/x": bailey.Ask, "ls -la sub": bailey.Allow, "find . -name '*.go'": bailey.Allow,
		"find . -delete": bailey.Ask, "find . -exec rm {} +": bailey.Ask, "find . -fprint x": bailey.Ask,
		"sort -u sub/x": bailey.Allow, "sort -o x sub/x": bailey.Ask, "sort --compress-program=id x": bailey.Ask, "git log -5 | sort | tr -d a": bailey.Allow, "jq .a sub/x.json": bailey.Allow,
		"./mkdir x": bailey.Ask, "mkdir -p ~/.ssh/x": bailey.Deny,
	} {
		if v := y.judge("Bash", "command", line); v.Effect != want {
			t.Errorf("%s: %s, want %s (%s)", line, v.Effect, want, v.Reason)
		}
	}
}

// judgeShimmed judges a line of a shell that has the shim.
func (y *yard) judgeShimmed(line string) Verdict {
	y.asked = nil
	return y.Judge(context.Background(), bailey.Call{}, Event{Tool: "Bash", Dir: y.dir, Shim: "/opt/a b/bailey-shim", Input: map[string]string{"command": line}})
}

// A command that stands for a capability with its own jail runs there, by a changed line.
func TestShimmedLines(t *testing.T) {
	y := newYard(t)
	const shim = "'/opt/a b/bailey-shim' ./"
	for _, c := range []struct{ line, want string }{
		{"go test ./...", shim + "go test ./..."},
		{"go test ./... 2>&1 | tail -20", shim + "go test ./... 2>&1 | tail -20"},
		{"cd sub && go vet ./...", "cd sub && " + shim + "go vet ./..."},
		{"npm test", shim + "npm test"},
		{"go build ./... && go test -run 'A|B' ./x", shim + "go build ./... && " + shim + "go test -run 'A|B' ./x"},
		{"git status", ""}, // harmless as it is
		{"timeout 60 go test ./...", "timeout 60 " + shim + "go test ./..."},
		{"time go build ./... 2>&1 | tail -3", "time " + shim + "go build ./... 2>&1 | tail -3"},
		{"cd sub && timeout -k 5 1m nice go vet .", "cd sub && timeout -k 5 1m nice " + shim + "go vet ."},
		// a change of the repository, which rules allow in the jail only
		{"git add sub", shim + "git add sub"},
		{"git add -A && git stash push -m 'a b'", shim + "git add -A && " + shim + "git stash push -m 'a b'"},
		{"git switch -c topic && git status", shim + "git switch -c topic && git status"},
		{"git status && go vet . > sub/out", "git status && " + shim + "go vet . > sub/out"},
	} {
		if v := y.judgeShimmed(c.line); v.Effect != bailey.Allow || v.Line != c.want {
			t.Errorf("%s: %s %q, want %q (%s)", c.line, v.Effect, v.Line, c.want, v.Reason)
		}
	}
	for _, line := range []string{
		"'go' test ./...", "A=1 go test", "sudo go test", "go test $x", "./go test", "go test; go test", "echo 'go vet' && go vet", "for i in a; do go vet; done",
		"go test -exec ./x ./...", "go vet &", "go test ./... && ./x", "timeout 9 'go' vet", "timeout $x go vet", "./timeout 9 go vet",
	} {
		if v := y.judgeShimmed(line); v.Effect != bailey.Ask || v.Line != "" && line != "go test ./... && ./x" {
			t.Errorf("%s: %s %q (%s)", line, v.Effect, v.Line, v.Reason)
		}
	}
	for _, line := range []string{"go vet > /etc/x", "go vet ~/.ssh", "go vet && bailey approve a-1"} {
		if v := y.judgeShimmed(line); v.Effect != bailey.Deny || v.Line != "" {
			t.Errorf("%s: %s %q (%s)", line, v.Effect, v.Line, v.Reason)
		}
	}
	for _, a := range y.asked {
		if !a.DryRun {
			t.Errorf("%+v ran", a)
		}
	}
}

// TestAttackLostVariables checks that no line starts the shim behind a program that could take the variables by which
// the shim knows its session, also if the user is root, for whom sudo without options changes nothing else.
func TestAttackLostVariables(t *testing.T) {
	y := newYard(t)
	for _, root := range []bool{false, true} {
		y.Root = root
		for _, line := range []string{"timeout 60 sudo go test ./...", "nice env -i go test", "timeout 9 nice env go vet .",
			"nice doas go test", "env -i bash -c 'go vet .'", "timeout 9 sudo sh -c 'go vet .'",
			"nice env -i sh -c \"sh -c 'go vet'\"",
			"sudo timeout 60 go test", "time sudo go vet", "timeout 9 nohup go vet",
			"timeout 9 /usr/bin/env -i go vet"} {
			if v := y.judgeShimmed(line); v.Effect != bailey.Ask || v.Line != "" {
				t.Errorf("%s as root %t: %s %q (%s)", line, root, v.Effect, v.Line, v.Reason)
			}
		}
		const shim = "'/opt/a b/bailey-shim' ./"
		line := "timeout 60 nice go vet . && bash -c \"go vet x\""
		want := "timeout 60 nice " + shim + "go vet . && bash -c \"" + shim + "go vet x\""
		if v := y.judgeShimmed(line); v.Effect != bailey.Allow || v.Line != want {
			t.Errorf("not live as root %t: %s %q (%s)", root, v.Effect, v.Line, v.Reason)
		}
	}
}

// TestAttackSwappedPath checks that a line asks as it is if a capability that can change the workspace would run in it
// beside a program that opens a file by its name: the capability could replace the file by a link in between.
func TestAttackSwappedPath(t *testing.T) {
	y := newYard(t)
	for _, line := range []string{"go test ./... && cat sub/notes", "go test ./... | { head -n1; head -n1 sub/notes; }", "cat sub/notes | go test ./...",
		"go test ./... | sort > sub/out", "go test ./... > sub/a && go vet . > sub/b"} {
		if v := y.judgeShimmed(line); v.Effect != bailey.Ask || v.Line != "" {
			t.Errorf("%s: %s %q (%s)", line, v.Effect, v.Line, v.Reason)
		}
	}
	for _, line := range []string{"go test ./... > sub/out 2>&1", "go test ./... > /dev/null", "go test ./... 2>&1 | tail -20", "cd sub && go test ."} {
		if v := y.judgeShimmed(line); v.Effect != bailey.Allow || v.Line == "" {
			t.Errorf("%s: %s %q (%s)", line, v.Effect, v.Line, v.Reason)
		}
	}
}

// TestAttackWiderRule checks that a rule that allows shells does not answer for a capability about which rules ask, and
// that a line whose program then runs outside of the jail starts no change in the jail beside the files that it opens.
func TestAttackWiderRule(t *testing.T) {
	y := newYard(t)
	gate, inJail := y.Do, false // the rules are about calls in the jail alone
	y.Do = func(ctx context.Context, c bailey.Call) bailey.Result {
		r := gate(ctx, c)
		switch {
		case r.Err != nil:
		case c.Capability == shell:
			r.Decision = bailey.Decision{Effect: bailey.Allow, Rules: []bailey.Rule{{ID: "shells"}}}
		case !strings.HasPrefix(string(c.Capability), "git."), c.Capability == "git.status":
		case inJail && c.Own:
			r.Decision = bailey.Decision{Reason: "no rule", Policy: "p"}
			r.Err = &bailey.Error{Kind: bailey.Denied, Message: "no rule"}
		default:
			r.Decision = bailey.Decision{Effect: bailey.Ask, Rules: []bailey.Rule{{ID: "changes"}}, Policy: "p"}
			r.Decision.Asks = r.Decision.Rules
		}
		return r
	}
	for _, inJail = range []bool{true, false} {
		for _, line := range []string{"git restore sub/x", "git add sub/x", "git switch -c topic", "git rm sub/x sub/y",
			"git status && git restore sub/x"} {
			if v := y.judgeShimmed(line); v.Effect != bailey.Ask || v.Line != "" {
				t.Errorf("%s in the jail %t: %s %q (%s)", line, inJail, v.Effect, v.Line, v.Reason)
			}
		}
	}
	if v := y.judgeShimmed("go vet . && git add sub/x"); v.Effect != bailey.Ask || v.Line != "" {
		t.Errorf("beside a change: %s %q (%s)", v.Effect, v.Line, v.Reason)
	}
	if v := y.judgeShimmed("go vet . && git switch -c topic"); v.Effect != bailey.Ask || v.Line == "" {
		t.Errorf("not live: %s %q (%s)", v.Effect, v.Line, v.Reason)
	}
	if v := y.judgeShimmed("make"); v.Effect != bailey.Allow {
		t.Errorf("not live: %s (%s)", v.Effect, v.Reason)
	}
}

// FuzzShimLine checks that the changed line differs in nothing but the start of the commands that were named.
func FuzzShimLine(f *testing.F) {
	f.Add("go test ./... | tail -3", "go test ./...")
	f.Add("sh -c 'go vet' && a", "go vet")
	f.Fuzz(func(t *testing.T, line, command string) {
		changed, ok := shimLine(line, "/h", "/opt/bailey-shim", []string{command})
		if !ok {
			return
		}
		if strings.Replace(changed, "/opt/bailey-shim ./", "", 1) != line {
			t.Errorf("%q became %q", line, changed)
		}
		old, _ := shellparse.Parse(line, "/h")
		now, err := shellparse.Parse(changed, "/h")
		if err != nil || len(now) != len(old) {
			t.Errorf("%q became %q: %v", line, changed, err)
		}
	})
}

// A rule for git.push answers a typed git push too: an allowed one runs through the gate, a denied one is denied. Without a rule it asks.
func TestRuleForTypedPush(t *testing.T) {
	for _, c := range []struct {
		rules  []bailey.Rule
		effect bailey.Effect
		want   bailey.Effect
		line   string
	}{
		{[]bailey.Rule{{ID: "mine"}}, bailey.Allow, bailey.Allow, "'/opt/a b/bailey-shim' ./git push"},
		{[]bailey.Rule{{ID: "mine"}}, bailey.Ask, bailey.Allow, "'/opt/a b/bailey-shim' ./git push"}, // the gate asks
		{[]bailey.Rule{{ID: "mine"}}, bailey.Deny, bailey.Deny, ""},
		{nil, bailey.Deny, bailey.Ask, ""},
	} {
		y := newYard(t)
		do := y.Do
		y.Do = func(ctx context.Context, call bailey.Call) bailey.Result {
			if !strings.HasPrefix(string(call.Capability), "git.push") {
				return do(ctx, call)
			}
			r := bailey.Result{Decision: bailey.Decision{Effect: c.effect, Rules: c.rules, Reason: "x"}}
			if c.effect == bailey.Deny {
				r.Err = &bailey.Error{Kind: bailey.Denied, Message: "x"}
			}
			return r
		}
		if v := y.judgeShimmed("git push"); v.Effect != c.want || v.Line != c.line {
			t.Errorf("%s by %v: %s %q, %s", c.effect, c.rules, v.Effect, v.Line, v.Reason)
		}
	}
}
