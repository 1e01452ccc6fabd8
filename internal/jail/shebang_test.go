//go:build linux

package jail

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// firstLines lists beginnings of files with the meaning of their first line.
var firstLines = []struct {
	head string
	want []string // nil: not a script
}{
	{"#!/bin/echo\n", []string{"/bin/echo"}},
	{"#!/bin/echo\nmore\n", []string{"/bin/echo"}},
	{"#!/bin/echo", []string{"/bin/echo"}},
	{"#! \t/bin/echo \t\n", []string{"/bin/echo"}},
	{"#!/bin/echo -n  a b\t \n", []string{"/bin/echo", "-n  a b"}},
	{"#!/bin/echo x", []string{"/bin/echo", "x"}},
	{"#!/bin/echo x  ", []string{"/bin/echo", "x  "}},
	{"#!/bin/echo ", []string{"/bin/echo", ""}},
	{"#!/bin/echo \x00x\n", []string{"/bin/echo", ""}},
	{"#!/bin/echo\x00x\n", []string{"/bin/echo"}},
	{"#!/bin/echo\x00 x\n", []string{"/bin/echo"}},
	{"#!/bin/echo a\x00b\n", []string{"/bin/echo", "a"}},
	{"#!/bin/echo a \x00\n", []string{"/bin/echo", "a "}},
	{"#!/bin/echo a\r\n", []string{"/bin/echo", "a\r"}},
	{"#!/bin/echo " + strings.Repeat("y", 242) + "\nz", []string{"/bin/echo", strings.Repeat("y", 242)}},
	{"#!/bin/echo " + strings.Repeat("y", 243) + "\nz", []string{"/bin/echo", strings.Repeat("y", 243)}},
	{"#!/bin/echo " + strings.Repeat("y", 400) + "\n", []string{"/bin/echo", strings.Repeat("y", 243)}},
	{"#!" + strings.Repeat(" ", 240) + "/bin/echo x\n", []string{"/bin/echo", "x"}},
	{"#!" + strings.Repeat(" ", 244) + "/bin/echo x\n", []string{"/bin/echo"}},
	{"#!" + strings.Repeat(" ", 245) + "/bin/echo x\n", nil},
	{"#!" + strings.Repeat("/", 300) + "bin/echo\n", nil},
	{"#!" + strings.Repeat(" ", 300) + "\n", nil},
	{"#!\n", nil},
	{"#! \t \n/bin/echo\n", nil},
	{"", nil}, {"#", nil}, {"echo\n", nil}, {" #!/bin/echo\n", nil}, {"\x7fELF", nil},
	{"#!", []string{""}}, {"#!\x00/bin/echo\n", []string{""}},
}

func TestShebang(t *testing.T) {
	for _, c := range firstLines {
		if got, _ := parseShebang([]byte(c.head)); !slices.Equal(got, c.want) {
			t.Errorf("%.40q: %q, want %q", c.head, got, c.want)
		}
	}
}

// TestShebangIsTheKernels compares with the kernel: it starts each script, whose interpreter only echoes.
func TestShebangIsTheKernels(t *testing.T) {
	ktest.Require(t, "/bin/echo")
	for i, c := range firstLines {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(c.head), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := direct(path, "last")
		if runs := len(c.want) > 0 && c.want[0] != ""; runs != (err == nil) {
			t.Errorf("%.40q: the kernel starts it: %v (%v)", c.head, err == nil, err)
			continue
		} else if !runs {
			continue
		}
		echoed, _ := direct(c.want[0], slices.Concat(c.want[1:], []string{path, "last"})...)
		if !bytes.Equal(out, echoed) {
			t.Errorf("%.40q: the kernel passes %q, want %q", c.head, out, echoed)
		}
	}
}

func TestEnvWords(t *testing.T) {
	for arg, want := range map[string]string{
		"python3": "python3", "-S python3 -I -u": "python3|-I|-u", "-S\t/opt/x/bin/node  --flag=a,b": "/opt/x/bin/node|--flag=a,b",
		"": "", "-S": "", "-S ": "", "-Spython3": "", "python3 -I": "", "-i python3": "", "-": "", "A=b": "", "-S A=b python3": "", "-S -i python3": "",
		"-vS python3": "", "--split-string=python3": "", "-S 'a b'": "", `-S a\_b`: "", "-S ${HOME}/x": "", "-S a#b": "", `-S "a"`: "", "-S a;b": "", "-S *": "", "-S ä": "",
		"-S -S a": "", "python3\r": "", "a\x00b": "",
	} {
		words, ok := envWords(arg)
		if got := strings.Join(words, "|"); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", arg, got, ok, want)
		}
	}
}

// FuzzShebang checks any first line: the author of a script controls it.
func FuzzShebang(f *testing.F) {
	for _, c := range firstLines {
		f.Add([]byte(c.head))
	}
	f.Add([]byte("#!/usr/bin/env -S a b\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		words, ok := parseShebang(head)
		if ok != (len(words) > 0) || len(words) > 2 || ok && !bytes.HasPrefix(head, []byte("#!")) {
			t.Fatalf("%q: %q, %v", head, words, ok)
		}
		first, _, _ := bytes.Cut(head, []byte("\n"))
		for i, w := range words {
			if strings.ContainsAny(w, "\n\x00") || !bytes.Contains(first, []byte(w)) || i == 0 && strings.ContainsAny(w, " \t") || len(w) > lineBytes {
				t.Errorf("%q: %q", head, words)
			}
		}
		if !ok || len(words) < 2 {
			return
		}
		if split, ok := envWords(words[1]); ok && (split[0] == "" || split[0][0] == '-' || strings.ContainsAny(strings.Join(split, ""), "\"'\\$# \t")) {
			t.Errorf("%q: env would take %q otherwise", words[1], split)
		}
	})
}
