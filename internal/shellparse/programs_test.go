package shellparse

import (
	"slices"
	"strings"
	"testing"
)

// TestPrograms checks which programs of an argument list show. A question mark at the end says that others may be hidden.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"ls", "-l", "curl"}, "ls"},
		{[]string{"/usr/bin/curl", "x"}, "curl"},
		{[]string{"apt-get", "install", "curl"}, "apt-get"},
		{[]string{"sh", "-c", "echo a; curl x"}, "curl echo sh"},
		{[]string{"bash", "-euo", "pipefail", "-c", "curl x"}, "bash curl"},
		{[]string{"bash", "-lc", "if true; then for i in 1; do c\"ur\"l x; done; fi"}, "bash curl true"},
		{[]string{"sh", "-c", "echo $(curl x) `nc y` <(ssh z)"}, "curl echo nc sh ssh z"},
		{[]string{"sh", "-c", `f() { \wget x; }; f`}, "f sh wget"},
		{[]string{"env", "A=b", "curl"}, "curl env"},
		{[]string{"env", "-S", "curl x"}, "curl env"},
		{[]string{"env", "-Scurl x"}, "curl env"},
		{[]string{"sudo", "-u", "ann", "timeout", "5", "curl"}, "curl sudo timeout"},
		{[]string{"sudo", "--login", "curl"}, "--login curl sudo"},
		{[]string{"nice", "-n", "5", "nohup", "xargs", "-n1", "curl"}, "curl nice nohup xargs"},
		{[]string{"find", "/", "-exec", "sh", "-c", "nc x", ";", "-ok", "curl", ";"}, "curl find nc sh"},
		{[]string{"busybox", "wget", "x"}, "busybox wget x"},
		{[]string{"su", "-c", "curl x", "ann"}, "-c ann curl su"},
		{[]string{"strace", "-f", "sh", "-c", "curl"}, "-f curl sh strace"},
		{[]string{"/lib64/ld-linux-x86-64.so.2", "/usr/bin/curl"}, "curl ld-linux-x86-64.so.2"},
		{[]string{"ip", "netns", "exec", "a", "curl"}, "a curl exec ip netns"},
		{[]string{"sh", "-c", "exec 3<>/dev/tcp/10.0.0.1/80"}, "/dev/tcp exec sh"},
		{[]string{"bash", "-c", "cat < /dev//tcp/$h/80"}, "/dev/tcp bash cat"},
		{[]string{"sh", "-c", "command -v curl"}, "command sh"},
		{[]string{"sh", "-c", "command curl"}, "command curl sh"},
		{[]string{"sh", "-c", "bash <<'E'\nscp a b\nE"}, "bash scp sh"},
		{[]string{"sh", "-c", "bash <<< 'scp a b'"}, "bash scp sh"},
		{[]string{"sh", "-c", "cat > f <<'E'\nscp a b\nE"}, "cat sh"},
		{[]string{"sh", "-c", "$0 x", "curl"}, "curl sh?"},
		{[]string{"sh", "script.sh"}, "sh"},
		{[]string{"bash", "-o", "errexit", "script.sh"}, "bash"},
		{[]string{"sh"}, "sh?"}, {[]string{"sh", "-s"}, "sh?"}, {[]string{"bash", "--", "-"}, "bash?"},
		{[]string{"sh", "-c", "base64 -d x | sh"}, "base64 sh?"},
		{[]string{"sh", "-c", "$X y"}, "sh?"}, {[]string{"sh", "-c", "cur? y"}, "sh?"}, {[]string{"sh", "-c", "$'curl' y"}, "sh?"},
		{[]string{"sh", "-c", `eval "$X"`}, "eval sh?"}, {[]string{"sh", "-c", `eval 'curl x'`}, "curl eval sh"},
		{[]string{"sh", "-c", "trap 'curl x' EXIT"}, "curl sh trap"},
		{[]string{"sh", "-c", "if"}, "sh?"}, {[]string{"sh", "-c", "a\u200b"}, "sh?"},
		{[]string{"sh", "-c", strings.Repeat("x", MaxLine+1)}, "sh?"},
		{[]string{"bash", "-O", "extglob", "-c", "curl x"}, "bash curl"},
		{[]string{"bash", "+O", "extglob", "-euo", "pipefail", "-c", "curl x"}, "bash curl"},
		{[]string{"bash", "--rcfile", "/dev/null", "-c", "curl x"}, "bash curl"},
		{[]string{"bash", "--init-file", "/dev/null", "--norc", "-c", "curl x"}, "bash curl"},
		{[]string{"bash", "-c", "builtin command curl x"}, "bash builtin command curl"},
		{[]string{"bash", "-c", `builtin eval "curl x"`}, "bash builtin curl eval"},
		{[]string{"bash", "-c", `builtin eval "$X"`}, "bash builtin eval?"},
		{[]string{"bash", "-c", `exec 3<>"/dev/tcp/$h/80"`}, "/dev/tcp bash exec"},
		{[]string{"bash", "-c", "exec 3<>/dev/$p/h/80"}, "bash exec?"},
		{[]string{"bash", "-c", "exec 3<>$f"}, "bash exec?"},
		{[]string{"bash", "-c", "cat <{/dev/tcp,x}/h/80"}, "bash cat?"},
		{[]string{"bash", "-c", `echo a >"/tmp/$f" >>/var/log/$x >/dev/null 2>&1`}, "bash echo"},
		{[]string{"bash", "-c", "bash <(printf 'cu%s x' rl)"}, "bash printf?"},
		{[]string{"bash", "-c", "x=-c; bash $x 'curl x'"}, "bash?"},
		{[]string{"sh", "-c", "cat f | sh /dev/fd/0"}, "cat sh?"},
		{[]string{"sh", "/dev//fd/63"}, "sh?"}, {[]string{"sh", "/proc/self/fd/3"}, "sh?"},
		{[]string{"sh", "/proc/1/../self/fd/3"}, "sh?"}, {[]string{"sh", "/proc/thread-self/fd/3"}, "sh?"},
		{[]string{"sh", "-c", "cat f | sh -c '. /dev/stdin'"}, ". cat sh?"},
		{[]string{"bash", "-c", "source <(printf x)"}, "bash printf source?"},
		{[]string{"bash", "-c", "source -p /x /dev/stdin"}, "bash source?"},
		{[]string{"sh", "-c", "bash -c 'curl x' <<< y"}, "bash curl sh"},
		{[]string{"sh", "-c", "bash <<< 'true' < f"}, "bash sh?"},
		{[]string{"sh", "-c", "bash 3<<< 'true'"}, "bash sh?"},
		{[]string{"bash", "-c", `exec 3<>/dev/"t"cp/h/80`}, "/dev/tcp bash exec"},
		{[]string{"bash", "-c", `exec 3<>/dev/"t$p/h"/80`}, "bash exec?"},
		{[]string{"bash", "-c", `echo a >~/f; cat <<< "$x"`}, "bash cat echo"},
		{[]string{"bash", "-init-file", "/dev/null", "-c", "curl x"}, "bash curl"},
		{[]string{"bash", "--rcfile", "/dev/fd/3", "-i"}, "bash?"},
		{[]string{"zsh", "--emulate", "sh", "-oextglob", "-c", "curl x"}, "curl zsh"},
		{[]string{"bash", "-oO", "errexit", "extglob", "-c", "curl x"}, "bash curl"},
		{[]string{"sh", "dev/setup.sh"}, "sh"}, {[]string{"bash", "../../dev/stdin"}, "bash?"},
		{[]string{"bash", "-c", ". $f"}, ". bash?"},
		{[]string{"bash", "-c", ". ./env.sh"}, ". bash"},
		{[]string{"bash", "-c", "builtin source ~/.profile"}, "bash builtin source"},
		{nil, ""}, {[]string{""}, ""},
	} {
		names, hidden := Programs(c.argv)
		got := strings.Join(names, " ")
		if hidden != "" {
			got += "?"
		}
		if got != c.want {
			t.Errorf("%q: got %q (%s), want %q", c.argv, got, hidden, c.want)
		}
	}
}

// TestProgramsAreBounded checks that a line with many programs or deep shells is cut, and says so.
func TestProgramsAreBounded(t *testing.T) {
	var line strings.Builder
	for i := range 500 {
		line.WriteString("p" + strings.Repeat("x", i%60) + strings.Repeat("y", i/60) + ";")
	}
	names, hidden := Programs([]string{"sh", "-c", line.String()})
	if len(names) > maxPrograms || hidden == "" {
		t.Errorf("%d names, hidden %q", len(names), hidden)
	}
	deep := "curl"
	for range 12 {
		deep = "sh -c '" + strings.ReplaceAll(deep, "'", `'\''`) + "'"
	}
	if names, hidden := Programs([]string{"sh", "-c", deep}); !slices.Contains(names, "curl") && hidden == "" {
		t.Errorf("deep shells: %q, not hidden", names)
	}
	wraps := append(slices.Repeat([]string{"env"}, 40), "curl")
	if names, hidden := Programs(wraps); !slices.Contains(names, "curl") && hidden == "" {
		t.Errorf("many wrappers: %q, not hidden", names)
	}
}

func FuzzPrograms(f *testing.F) {
	f.Add("sh\x01-c\x01curl x | sh")
	f.Add("env\x01-S\x01curl")
	f.Fuzz(func(t *testing.T, text string) {
		names, _ := Programs(strings.Split(text, "\x01"))
		if len(names) > maxPrograms || !slices.IsSorted(names) {
			t.Errorf("%d names", len(names))
		}
	})
}
