package inside

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// mailed reads a message as the kernel reads argv and env: by addresses, which must lie in the mailbox.
func mailed(t *testing.T, base uint64, mail []byte, at int) (words []string) {
	t.Helper()
	for {
		p := binary.LittleEndian.Uint64(mail[at:])
		if p == 0 {
			return words
		}
		if p < base+wordsAt || p-base >= uint64(len(mail)) {
			t.Fatalf("a word at %d of a mail with %d bytes", p-base, len(mail))
		}
		word, _, ended := strings.Cut(string(mail[p-base:]), "\x00")
		if !ended {
			t.Fatalf("a word that never ends: %q", word)
		}
		words = append(words, word)
		at += 8
	}
}

// mailable computes independently whether the strings fit: few enough, short enough with one NUL each, and without NUL
// inside.
func mailable(argv, env []string) bool {
	size := wordsAt
	for _, w := range slices.Concat(argv, env) {
		if strings.ContainsRune(w, 0) {
			return false
		}
		size += len(w) + 1
	}
	return len(argv) > 0 && len(argv) < maxWords && len(env) < maxWords && size <= MailSize
}

func checkMail(t *testing.T, base uint64, argv, env []string) {
	t.Helper()
	mail, ok := Mail(base, argv, env)
	if want := mailable(argv, env); ok != want {
		t.Fatalf("%d and %d words: fits %v, want %v", len(argv), len(env), ok, want)
	}
	if !ok {
		return
	}
	if len(mail) > MailSize {
		t.Errorf("%d bytes are more than a mailbox holds", len(mail))
	}
	if got := mailed(t, base, mail, argvAt); !slices.Equal(got, argv) {
		t.Errorf("arguments %q became %q", argv, got)
	}
	if got := mailed(t, base, mail, envAt); !slices.Equal(got, env) {
		t.Errorf("environment %q became %q", env, got)
	}
}

func TestMail(t *testing.T) {
	room := MailSize - wordsAt
	for _, c := range []struct{ argv, env []string }{
		{nil, nil}, {nil, []string{"A=1"}}, {[]string{""}, nil}, {[]string{"a", "", "b c"}, []string{"A=1=2", ""}},
		{[]string{"a\x00b"}, nil}, {[]string{"a"}, []string{"A=\x00"}},
		{slices.Repeat([]string{"w"}, maxWords-1), slices.Repeat([]string{"w"}, maxWords-1)},
		{slices.Repeat([]string{"w"}, maxWords), nil}, {[]string{"a"}, slices.Repeat([]string{"w"}, maxWords)},
		{[]string{strings.Repeat("x", room-1)}, nil}, {[]string{strings.Repeat("x", room)}, nil},
		{[]string{strings.Repeat("x", room-3)}, []string{"y"}}, {[]string{strings.Repeat("x", room-2)}, []string{"y"}},
		{[]string{strings.Repeat("x", room-2)}, []string{""}}, {[]string{strings.Repeat("x", room-1)}, []string{""}},
	} {
		checkMail(t, 1<<46, c.argv, c.env)
	}
}

// FuzzMail checks that arguments and environment arrive unchanged, and do not determine where they lie in the mailbox.
func FuzzMail(f *testing.F) {
	f.Add(uint64(1<<46), "git\nlog\n", "A=1\nB=", 3)
	f.Add(uint64(4096), "a\x00b", "", 600)
	f.Fuzz(func(t *testing.T, base uint64, argv, env string, times int) {
		if base == 0 || base > 1<<56 {
			return
		}
		times = min(max(times, 1), 700)
		checkMail(t, base, slices.Repeat(strings.Split(argv, "\n"), times), strings.Split(env, "\n"))
	})
}

// FuzzWarmable checks that an accepted plan has only steps whose time the helper knows, and executes one program, at
// its end, without a terminal.
func FuzzWarmable(f *testing.F) {
	digest := strings.Repeat("d", DigestSize)
	exec := Step{Op: Exec, N: []uint64{0, 1}, S: []string{"/x"}}
	for _, s := range [][]Step{{exec}, {{Op: Fresh}, exec}, {{Op: Proc}, exec}, {exec, exec}, {{Op: Exec, N: []uint64{0, 1, 1}}}, {{Op: 64 + Undump}, exec}, steps} {
		f.Add(append([]byte(digest), Encode(nil, s)...))
	}
	f.Fuzz(func(t *testing.T, letter []byte) {
		if len(letter) < DigestSize {
			return
		}
		plan, ok := Decode(letter[DigestSize:])
		if !ok || !Warmable(plan) {
			return
		}
		for i, s := range plan {
			known := s.Op == Exec && i == len(plan)-1 && (len(s.N) < 3 || s.N[2] == 0) ||
				s.Op != Exec && int(s.Op) < len(stepTimes) && stepTimes[s.Op] != never
			if !known {
				t.Errorf("step %d of %d, %+v, is taken for warm", i, len(plan), s)
			}
		}
	})
}
