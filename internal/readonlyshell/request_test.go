package readonlyshell

import (
	"strings"
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	const shell = "/usr/local/bin/" + Name
	for _, r := range []Request{
		{}, {Timeout: time.Minute}, {Output: 1 << 20}, {WithoutLandlock: true}, {Approved: Digest("id")}, {Own: Digest("x")},
		{Timeout: time.Hour, Output: 1, WithoutLandlock: true, Approved: Digest("")},
	} {
		text := r.Command(shell)
		got, err := ParseCommand(text)
		if err != nil || got != r {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "sh", shell + " ", shell + " --status", shell + " --timeout=0", shell + " --timeout=3601", shell + " --timeout=-1",
		shell + " --timeout=1 --timeout=2", shell + " --output=", shell + " --without-landlock=1", shell + " --approved=",
		shell + " --approved=" + strings.ToUpper(Digest("id")), shell + " --approved=abcd", shell + " --own=", shell + " --own=abcd", shell + "\t--output=1",
		shell + " --output=1;id", "/bin/sh -c " + shell,
	} {
		if r, err := ParseCommand(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, r)
		}
	}
}

// FuzzCommand checks that a force-command that is accepted has one meaning.
func FuzzCommand(f *testing.F) {
	f.Add(Name + " --timeout=5 --output=1 --without-landlock")
	f.Add(Name + " --approved=" + Digest("id"))
	f.Add(Name + " --own=" + Digest("x"))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseCommand(text)
		if err != nil {
			return
		}
		again, err := ParseCommand(r.Command(Name))
		if err != nil || again != r {
			t.Errorf("%q: %+v became %+v, %v", text, r, again, err)
		}
	})
}
