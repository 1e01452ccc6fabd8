package readonly

import (
	"slices"
	"strings"
	"testing"
)

// checkLines checks lines with the rendered text of each; an empty text means that the line must be refused.
func checkLines(t *testing.T, lines [][2]string) {
	t.Helper()
	for _, l := range lines {
		v := Check(l[0], Options{})
		switch {
		case v.Text != l[1]:
			t.Errorf("%q:\n got %s\nwant %s\n%s", l[0], v.Text, l[1], v.Reason)
		case !v.Accepted() && v.Hint == "":
			t.Errorf("%q is refused without a hint", l[0])
		}
	}
}

// checkAccepted checks that each line is accepted.
func checkAccepted(t *testing.T, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if v := Check(l, Options{}); !v.Accepted() {
			t.Errorf("%s: %s", l, v.Reason)
		}
	}
}

// checkRefused checks that each line is refused.
func checkRefused(t *testing.T, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if v := Check(l, Options{}); v.Accepted() {
			t.Errorf("%s is accepted as %s", l, v.Text)
		}
	}
}

func TestSyntax(t *testing.T) {
	checkLines(t, [][2]string{
		{"df", "/usr/bin/df"}, {" df  -h # why", "/usr/bin/df -h"}, {"df;", "/usr/bin/df"},
		{"df; uptime", "/usr/bin/df; /usr/bin/uptime"},
		{"df && uptime || id", "/usr/bin/df && /usr/bin/uptime || /usr/bin/id"},
		{"df | wc -l | cat", "/usr/bin/df | /usr/bin/wc -l | /usr/bin/cat"},
		{"! df | wc", "! /usr/bin/df | /usr/bin/wc"}, {"(df; id) | wc", "(/usr/bin/df; /usr/bin/id) | /usr/bin/wc"},
		{"{ df; } 2>&1 | wc", "{ /usr/bin/df; } 2>&1 | /usr/bin/wc"}, {"((df))", ""}, {"(df", ""}, {"df | ! wc", ""},
		{"", ""}, {"   # x", ""},
		{"df &", ""}, {"df & uptime", ""}, {"df |& wc", ""}, {"coproc df", ""}, {"time df", ""}, {"f() { df; }", ""},
		{"f() (df)", ""},
		{"for x in a; do df; done", ""}, {"while df; do df; done", ""}, {"until df; do df; done", ""},
		{"if df; then df; fi", ""},
		{"case a in a) df;; esac", ""}, {"select x in a; do df; done", ""}, {"[[ a = a ]]", ""}, {"((1))", ""},
		{"let x=1", ""},
		{"export A=1", ""}, {"local a", ""}, {"readonly a", ""}, {"(rm x)", ""}, {"df && (uptime; touch x)", ""},
		{"{ df; touch x; }", ""},
		{"df '", ""}, {"df \\", `/usr/bin/df '\'`},
	})
}

func TestWords(t *testing.T) {
	checkLines(t, [][2]string{
		{`echo "a b" 'c d' e\ f`, "/usr/bin/echo 'a b' 'c d' 'e f'"}, {`echo "a\"b\$c\d"`, `/usr/bin/echo 'a"b$c\d'`},
		{`echo it\'s`, `/usr/bin/echo 'it'\''s'`},
		{"echo ''", "/usr/bin/echo ''"}, {"echo =ls a=b", "/usr/bin/echo '=ls' a=b"},
		{`echo "a"'b'c`, "/usr/bin/echo abc"},
		{"echo $x", ""}, {`echo "$x"`, ""}, {"echo ${x}", ""}, {"echo $(id)", ""}, {"echo `id`", ""},
		{`echo "$(id)"`, ""}, {"echo $((1))", ""}, {"echo $[1]", ""},
		{"echo $'a'", ""}, {`echo $"a"`, ""}, {"cat <(id)", ""}, {"echo @(a|b)", ""}, {"echo ${ id; }", ""},
		{"echo ${x@P}", ""}, {"echo $1 $@ $?", ""},
		{"cat /etc/{hosts,fstab}", "/usr/bin/cat /etc/hosts /etc/fstab"}, {"cat a{1..3}", "/usr/bin/cat a1 a2 a3"},
		{"cat {a,b}{c,d}", "/usr/bin/cat ac ad bc bd"},
		{"cat a{b,{c,d}}", "/usr/bin/cat ab ac ad"}, {`echo '{a,b}' {} {x}`, "/usr/bin/echo '{a,b}' '{}' '{x}'"},
		{"cat {a..c}", ""}, {"cat {1..9..2}", ""}, {"cat {01..02}", ""},
		{"cat {1..99999}", ""}, {"cat {1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}", ""},
		{"sort {-o,x}", ""}, {"{ls,-l}", ""}, {"sort a{,' -o'}", "/usr/bin/sort a 'a -o'"},
		{"ls ~", "/usr/bin/ls ~"}, {"ls ~/x ~root/y", "/usr/bin/ls ~/x ~root/y"}, {"ls ~/'a b'", "/usr/bin/ls ~/'a b'"},
		{"ls '~'", "/usr/bin/ls '~'"},
		{"ls ~'root'", ""}, {"ls ~+", ""}, {"ls ~1", ""}, {"ls a=~/x", ""}, {"ls a:~/x", ""}, {"sort -t ~ x", ""},
		{"last -f ~/wtmp", "/usr/bin/last -f ~/wtmp"},
		{"ls /etc/*.d a?b [a-c]*", "/usr/bin/ls /etc/*.d a?b [a-c]*"}, {"cat 'a b'*", "/usr/bin/cat 'a b'*"},
		{`cat a\**`, "/usr/bin/cat a'*'*"}, {"ls .[^.]* [!a]", "/usr/bin/ls .[^.]* [!a]"},
		{"cat [", "/usr/bin/cat '['"}, {"find /etc -name *.conf", "/usr/bin/find /etc -name '*.conf'"},
		{"grep [a]b /etc/*", "/usr/bin/grep '[a]b' /etc/*"},
		{"grep -r x --include=*.log /var", "/usr/bin/grep -r x '--include=*.log' /var"},
		{"jq -e .a[] x", "/usr/bin/jq -e '.a[]' x"}, {"grep -e a* b*", "/usr/bin/grep -e 'a*' b*"}, {"sort *", ""},
		{"sort -- *", "/usr/bin/sort -- *"}, {"sort ./*", "/usr/bin/sort ./*"},
		{"sort ?o", ""}, {"sort [-]o", ""}, {"file *", ""}, {"uniq a*", ""}, {"find * -name x", ""},
		{"find ./* -name x", "/usr/bin/find ./* -name x"},
		{"systemctl status ng*", "/usr/bin/systemctl status 'ng*'"},
		{"awk '{print}' *", "/usr/bin/awk '{print}' *"}, {"sed -n p *", ""}, {"sed -n p ./*", "/usr/bin/sed -n p ./*"},
		{"tree *", ""}, {"cat *", "/usr/bin/cat *"},
	})
}

func TestNames(t *testing.T) {
	checkLines(t, [][2]string{
		{"/bin/ls", "/bin/ls"}, {"/sbin/ip a", "/sbin/ip address"}, {"/usr/sbin/ss", "/usr/sbin/ss"},
		{"/usr/local/bin/ls", ""}, {"./ls", ""}, {"bin/ls", ""}, {"/tmp/ls", ""},
		{"//bin/ls", ""}, {"/bin/../tmp/ls", ""}, {"/bin//ls", ""}, {"/ls", ""}, {"'ls'", ""}, {`l\s`, ""},
		{`"ls"`, ""}, {"l''s", ""}, {"l*", ""}, {"~/ls", ""}, {"''", ""}, {"ls/", ""}, {"/bin/", ""},
		{"[ -f x ]", "/usr/bin/test -f x"}, {"/bin/[ -f x ]", "/bin/test -f x"}, {"[ -f x", ""}, {"[", ""},
		{"[ ]", "/usr/bin/test"}, {"a[", ""},
		{"cd /etc && ls", "cd /etc && /usr/bin/ls"}, {"/bin/cd /etc", ""}, {"cd", ""}, {"cd a b", ""},
		{"type ls", "type ls"}, {"command -v ls", "command -v ls"},
		{"command ls", ""}, {"command -v", ""}, {"command -p ls", ""}, {"builtin cd", ""}, {"exec ls", ""},
		{"eval ls", ""}, {". /etc/profile", ""}, {"source x", ""}, {"exit", ""}, {":", ""},
		{"set -x", ""}, {"alias a=b", ""}, {"trap x EXIT", ""}, {"read x", ""}, {"hash -r", ""}, {"LS", ""},
	})
	paths := Options{Paths: map[string]string{"ls": "/bin/ls", "cat": "/tmp/cat", "id": "/bin/ls"}}
	for line, want := range map[string]string{"ls": "/bin/ls", "cat": "/usr/bin/cat", "id": "/usr/bin/id",
		"/usr/bin/ls": "/usr/bin/ls"} {
		if v := Check(line, paths); v.Text != want {
			t.Errorf("%s: %s, want %s", line, v.Text, want)
		}
	}
}

func TestRedirections(t *testing.T) {
	checkLines(t, [][2]string{
		{"df 2>/dev/null", "/usr/bin/df 2>/dev/null"}, {"df >/dev/null 2>&1", "/usr/bin/df >/dev/null 2>&1"},
		{"df &>/dev/null", "/usr/bin/df >/dev/null 2>&1"},
		{"df &>>/dev/null", "/usr/bin/df >/dev/null 2>&1"}, {"df >>/dev/null", "/usr/bin/df >/dev/null"},
		{"df 1>/dev/null", "/usr/bin/df >/dev/null"}, {"df >&2", "/usr/bin/df >&2"}, {"df 1>&2", "/usr/bin/df >&2"},
		{"2>/dev/null df", "/usr/bin/df 2>/dev/null"}, {"wc </dev/null", "/usr/bin/wc </dev/null"},
		{"wc < 'a b'", "/usr/bin/wc <'a b'"}, {"wc < ~/x", "/usr/bin/wc <~/x"},
		{"wc 0</etc/hosts", "/usr/bin/wc </etc/hosts"},
		{"df > '/dev/null'", "/usr/bin/df >/dev/null"},
		{"df >x", ""}, {"df > /dev/nullx", ""}, {"df > /dev/../dev/null", ""}, {"df >| /dev/null", ""}, {"df >& x", ""},
		{"df >&1", ""}, {"df 2>&-", ""}, {"df 3>/dev/null", ""}, {"df {fd}>/dev/null", ""},
		{"df <> /dev/null", ""}, {"cat < /dev/tcp/127.0.0.1/1", ""}, {"cat < /dev/udp/127.0.0.1/1", ""},
		{"cat < /dev//tcp/1/1", ""}, {"cat < /dev/./tcp/1/1", ""}, {"cat < /etc/*", ""}, {"cat < $x", ""},
		{"cat <<< x", ""}, {"> /dev/null", ""}, {"cat 3< x", ""}, {"df > ~/x", ""}, {"df 2> x", ""}, {"df | tee x", ""},
		{"df &> x", ""}, {"df >x >/dev/null", ""}, {"cat <&3", ""}, {"(df) > x", ""}, {"df > {/dev/null,x}", ""},
	})
}

func TestAssignments(t *testing.T) {
	checkLines(t, [][2]string{
		{"LC_ALL=C ls", "LC_ALL=C /usr/bin/ls"}, {"TZ=Europe/Berlin date", "TZ=Europe/Berlin /usr/bin/date"},
		{"LANG= LC_ALL='C.UTF-8' ls", "LANG= LC_ALL=C.UTF-8 /usr/bin/ls"},
		{"PAGER=cat systemctl status", "PAGER=cat /usr/bin/systemctl status"},
		{"SYSTEMD_PAGER= journalctl", "SYSTEMD_PAGER= /usr/bin/journalctl"},
		{"PAGER=/tmp/cat systemctl status", ""}, {"PAGER=less systemctl status", ""}, {"LC_ALL=/tmp/x ls", ""},
		{"TZ=../../tmp/x date", ""}, {"TZ=:/tmp/x date", ""}, {"LANG=$x ls", ""}, {"LANG=a* ls", ""},
		{"LANG=~ ls", ""},
		{"LD_PRELOAD=x ls", ""}, {"PATH=. ls", ""}, {"LC_ALL=C", ""}, {"A=1 ls", ""}, {"LC_ALL+=C ls", ""},
		{"LC_ALL[0]=C ls", ""}, {"LC_ALL=(a) ls", ""}, {"POSIXLY_CORRECT=1 sort x", ""},
		{"LC_ALL=C cd /x", ""}, {"IFS=x ls", ""}, {"LC_ALL=C LD_AUDIT=x ls", ""}, {"BASH_ENV=x ls", ""},
		{"GCONV_PATH=x ls", ""}, {"LOCPATH=x ls", ""}, {"LESSOPEN=x ls", ""},
	})
}

func TestCharacters(t *testing.T) {
	checkAccepted(t, "grep 'Größe' /etc/x", "ls\t/etc", "grep '日本' x", "echo 'é'")
	for _, c := range []string{"\x00", "\x01", "\n", "\r", "\x1b", "\x7f", "\v", "\f", "\u0085", "\u009b", "\u00a0",
		"\u00ad", "\u200b", "\u200d", "\u200e", "\u202e", "\u2028", "\u2029", "\u2066", "\u2060",
		"\ufeff", "\ufe0f", "\u3000", "\u2800", "\u3164", "\ue000", "\U000e0041", "\U000f0000", "\xff", "\xc3",
		"\u180e", "\u034f"} {
		checkRefused(t, "ls "+c+"a", "ls '"+c+"'", c, "ls"+c)
	}
	checkRefused(t, "ls "+strings.Repeat("a", MaxLine), "ls "+strings.Repeat("(", maxNesting+1),
		strings.Repeat("df;", MaxCommands+1), "ls "+strings.Repeat("a ", maxWords+1))
}

func TestCommands(t *testing.T) {
	v := Check("LC_ALL=C ps aux | xargs -n1 grep x; find /etc -exec cat {} + -exec ls {} \\; && timeout 5 dig a; "+
		"openssl x509 -in a; echo | openssl s_client -connect localhost:1", Options{})
	var got []string
	for _, c := range v.Commands {
		text := strings.Join(append([]string{c.Inside, c.Path}, c.Args...), " ")
		if c.Network {
			text += " (network)"
		}
		got = append(got, text)
	}
	want := []string{" /usr/bin/ps aux", " /usr/bin/xargs -n1 /usr/bin/grep x", "xargs /usr/bin/grep x",
		" /usr/bin/find /etc -exec /usr/bin/cat {} + -exec /usr/bin/ls {} ;", "find /usr/bin/cat {}",
		"find /usr/bin/ls {}", " /usr/bin/timeout 5 /usr/bin/dig a", "timeout /usr/bin/dig a (network)",
		" /usr/bin/openssl x509 -in a", " /usr/bin/echo",
		" /usr/bin/openssl s_client -connect localhost:1 (network)"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q\n%s", got, want, v.Reason)
	}
}
