package guest

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

const testMark = "mark"

func TestRead(t *testing.T) {
	console := "SeaBIOS\x1b[2J\r\n" +
		Report{0, "begin", "one"}.Line(testMark) + Report{0, "out", "a \"b\"\n"}.Line(testMark) +
		"[    1.0] a kernel's word\r\n" +
		strings.TrimSuffix(Report{0, "out", "\x00\xff\n"}.Line(testMark), "\n") + "\r\n" +
		Report{0, "end", Good}.Line(testMark) + Report{1, "begin", ""}.Line(testMark) +
		"other 1 end \"exit status 0\"\n" + Report{2, "end", Good}.Line(testMark) + Report{-1, "end", Good}.Line(testMark) +
		"mark 1 end exit status 0\nmark +1 end \"exit status 0\"\nmark 1 end `exit status 0`\nmark 1 end \"cut off"
	outcomes, noise, err := Read(strings.NewReader(console), testMark, 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Outcome{true, "a \"b\"\n\x00\xff\n", Good}); outcomes[0] != want {
		t.Errorf("%+v, want %+v", outcomes[0], want)
	}
	if want := (Outcome{Began: true}); outcomes[1] != want {
		t.Errorf("%+v: a line that is no report ended a command", outcomes[1])
	}
	for _, want := range []string{"SeaBIOS", "a kernel's word", "other 1 end", "mark 2 end", "cut off"} {
		if !strings.Contains(noise, want) {
			t.Errorf("%q is not in the noise %q", want, noise)
		}
	}
}

// TestStillborn checks that a guest is started again only if its kernel crashed by itself before the first task.
func TestStillborn(t *testing.T) {
	const panicked = "[    1.233885] Kernel panic - not syncing: Fatal exception in interrupt\r\n"
	for _, c := range []struct {
		name, console string
		want          bool
	}{
		{"the kernel's own", panicked, true},
		{"PID 1 ended", "[    1.2] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\r\n", false},
		{"PID 1 could not begin", Report{0, "fail", "mount"}.Line(testMark) + panicked, false},
		{"a task ran", Report{0, "begin", ""}.Line(testMark) + panicked, false},
		{"a later task ran", Report{1, "begin", ""}.Line(testMark) + panicked, false},
		{"it only ended", "SeaBIOS\r\n", false},
	} {
		outcomes, noise, err := Read(strings.NewReader(c.console), testMark, 2)
		if got := Stillborn(outcomes, noise); err != nil || got != c.want {
			t.Errorf("%s: stillborn %v, want %v (%v)", c.name, got, c.want, err)
		}
	}
}

// flood is a console without line ends, or one that repeats a line.
type flood struct {
	line string
	n    int
}

func (f *flood) Read(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = f.line[i%len(f.line)]
	}
	return len(b), nil
}

func TestReadIsBounded(t *testing.T) {
	ktest.Long(t)
	for _, line := range []string{"x", "\n", "\x00\r\n"} {
		_, noise, err := Read(&flood{line, 4 << 20}, testMark, 1)
		if err != nil || len(noise) > 4*maxNoise {
			t.Errorf("4 MiB of %q: %d bytes of noise, %v", line, len(noise), err)
		}
	}
	out := strings.Repeat(Report{0, "out", strings.Repeat("y", 512)}.Line(testMark), 3*maxOutput/512)
	outcomes, _, err := Read(strings.NewReader(out), testMark, 1)
	if err != nil || len(outcomes[0].Output) != maxOutput {
		t.Errorf("%d bytes of output were kept, %v", len(outcomes[0].Output), err)
	}
}

// FuzzRead checks that any console content, which comes from another machine, is read without an error.
func FuzzRead(f *testing.F) {
	f.Add(Report{0, "begin", ""}.Line(testMark) + Report{1, "out", "\n"}.Line(testMark) + Report{1, "end", Good}.Line(testMark))
	f.Add("mark 0 end \"\\x\"\nmark -9 out \"\"\nmark 99999999999999999999 out \"\"\n")
	f.Fuzz(func(t *testing.T, console string) {
		outcomes, _, err := Read(strings.NewReader(console), testMark, 2)
		if err != nil || len(outcomes) != 2 {
			t.Fatalf("%d outcomes, %v", len(outcomes), err)
		}
		for _, o := range outcomes {
			if o.End == Good && !strings.Contains(console, testMark+" ") {
				t.Errorf("%+v without a mark", o)
			}
		}
	})
}

func FuzzParseReport(f *testing.F) {
	f.Add(3, "out", "text")
	f.Fuzz(func(t *testing.T, n int, kind, text string) {
		if strings.ContainsAny(kind, " \n\r") {
			return
		}
		r := Report{n, kind, text}
		line := r.Line(testMark)
		if got, ok := ParseReport(testMark, strings.TrimSuffix(line, "\n")); !ok || got != r || strings.Count(line, "\n") != 1 {
			t.Errorf("%+v is read as %+v, %v", r, got, ok)
		}
		if _, ok := ParseReport(fmt.Sprint(testMark, n), line); ok {
			t.Error("a report with another mark was taken")
		}
	})
}
