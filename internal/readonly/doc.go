// Package readonly decides whether a command line only reads. It is the first of three layers between an agent and a
// production host: the login shell validates the line again with this package and then enforces the limits with the
// kernel, and the account has no right to write. The package is pure: it reads no file and no clock, and executes
// nothing.
//
// # How a line is checked
//
// Check refuses control characters and invisible characters, parses the line with mvdan.cc/sh, and walks the syntax
// tree. Each node type that may occur is named in tree.go; a node of any other type is refused. A word must be literal:
// quoted text, escapes, braces (which the package expands), a leading ~, and globs for file operands. Each command must
// have a [Rule], and each option, subcommand and operand must match it. If no rule names an option, it is refused.
// sed, awk, find, ip, curl, openssl, test, rpm and some others have parsers for their own languages. Check then renders
// the tree. The caller must run that text, or the parsed commands, and not the original line.
//
// The rendered text contains absolute paths, expanded braces, long options in full (for example --output for --out),
// the full words of ip, and quoted words, so that bash, dash and BusyBox ash split it in the same way. [ EXPRESSION ]
// becomes test EXPRESSION, and xargs without a command becomes xargs echo, each with its path.
//
// # Decisions
//
// The following choices are policy. The tests contain each of them.
//
//   - Redirections: /dev/null as a target, 2>&1 and 1>&2 are accepted. Reading a file by name (< FILE) is accepted too,
//     since tr has no other form. All other targets, here-documents, here-strings and /dev/tcp are refused.
//   - Grouping: ( ), { } and ! are accepted, since the commands inside are checked. Loops, if, case, time, functions
//     and background jobs are refused: they need variables, or run for longer than the caller knows.
//   - cd DIR is accepted, since commands are bound to absolute paths.
//   - Expansions such as $HOME and $(…) are refused: their value is not known here, and it can be an option. $'…' is
//     refused because its escapes hide characters.
//   - Braces are expanded here. A glob stays a glob only if it is a file operand. As any other word, for example in
//     find -name *.conf, it is quoted, as its author meant it. A glob that could expand to a word with a leading hyphen
//     is refused with the hint ./*, unless no option of the command can act.
//   - Assignments before a command: locale, time zone, width and color variables with plain values (see assign.go).
//     Other variables, for example FOO=bar, are refused because any program can give them a meaning.
//   - Commands that stream (tail -f, journalctl -f, dmesg -w, ping, ip monitor, cat /dev/zero) are accepted; the caller
//     must have a timeout and an output limit. An interactive top is refused because it reads keys.
//   - Pagers: systemctl, journalctl, dpkg -l and dmesg -H are accepted. They start a pager only on a terminal, and the
//     login has none. less, more and apt changelog are refused.
//   - Secrets: reading /etc/shadow, private keys, /proc/PID/environ or env is not a write. The rights of the account,
//     the policy and the redaction decide about it.
//   - Reads that act: devices are refused, except null, zero, full, random, urandom and stdin. /proc/kmsg,
//     /sys/kernel/debug, /sys/kernel/tracing and names below /net are refused too. For example, opening
//     /dev/watchdog can restart a host. The check sees only names in the line: the rights of the account decide about names that find,
//     xargs, a glob or a relative path supplies.
//   - Network: dig, host, nslookup, getent and ping are accepted, although a query can carry data to its server. Such
//     commands are marked (Command.Network), so that the login shell can open the network for no other command. curl and
//     openssl s_client reach loopback only. pip list --outdated and rpm with a URL are refused.
//   - find -exec, timeout and xargs run a command that is checked in the same way. xargs turns data into arguments, so
//     it runs only commands of which no argument can act (Rule.Inert), or commands whose options end with --
//     (Rule.Tail).
//   - sed may write to /dev/stdout and /dev/stderr (w), and awk may print to them. All other targets are refused.
//   - rpm -V is accepted with --noscripts only, since it runs the verify scripts of packages.
//   - file -z is refused because it starts decompressors; zcat reads compressed files.
package readonly
