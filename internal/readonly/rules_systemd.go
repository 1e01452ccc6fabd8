package readonly

import "strings"

const systemctlHint = "Use systemctl status, show, cat, list-units, is-active or is-enabled."

// remoteOptions are the options of the systemd programs that run them on another host or in a container.
var remoteOptions = Act{"-H --host -M --machine --root --image", "reaches another host, container or directory"}

// serviceRules are the commands that show services and logs.
func serviceRules() []Rule {
	return []Rule{
		{
			Name: "systemctl", Stops: "verbs that change units, the manager or the machine", Operands: Words,
			Bare: true, Hint: systemctlHint,
			Subs: strings.Fields("status show cat list-units list-unit-files list-sockets list-timers " +
				"list-automounts list-paths list-dependencies list-jobs list-machines is-active is-enabled " +
				"is-failed is-system-running get-default show-environment whoami"),
			Flags: "alqrh", Values: "tpPno", Maybes: "T",
			Long: "type= state= property= all recursive reverse after before with-dependencies full value " +
				"show-types quiet no-pager no-legend legend= plain no-ask-password system user lines= output= " +
				"failed timestamp= drop-in= no-warn",
			Acts: []Act{
				remoteOptions,
				{"-f --force --now --runtime -s --signal --kill-whom --kill-value --job-mode -i " +
					"--ignore-inhibitors --what --preset-mode --wait --no-block --firmware-setup " +
					"--boot-loader-menu --boot-loader-entry --global", "belongs to verbs that act"},
			},
		},
		{
			Name:     "journalctl",
			Stops:    "options that delete, rotate or write: --vacuum-*, --rotate, --flush, --cursor-file",
			Operands: Words,
			Flags:    "aefmqrxkN0123456789", Values: "utpogcSUDFIT", Maybes: "nb", Reads: "file directory D i",
			Hint: "Use journalctl -u UNIT -n 100 --no-pager",
			Long: "system user unit= user-unit= identifier= exclude-identifier= priority= facility= grep= " +
				"case-sensitive[=] dmesg since= until= cursor= after-cursor= show-cursor boot[=] invocation= " +
				"list-boots list-invocations list-namespaces lines[=] follow reverse output= output-fields= all " +
				"no-full full no-tail truncate-newline quiet merge no-pager utc no-hostname catalog pager-end " +
				"directory= file= namespace= fields field= disk-usage header verify list-catalog dump-catalog",
			Acts: []Act{
				remoteOptions,
				{"--rotate --flush --sync --relinquish-var --smart-relinquish-var --vacuum-size --vacuum-time " +
					"--vacuum-files", "deletes, rotates or moves log data"},
				{"--setup-keys --force --interval --update-catalog --cursor-file --verify-key", "writes a file"},
			},
		},
		{
			Name: "dmesg", Stops: "options that clear the kernel log or set the console",
			Flags: "deHkLPrtTuwWxSJp", Values: "fFls", Hint: "Use dmesg -T", Reads: "F file",
			Long: "level= facility= file= kernel userspace human nopager decode raw reltime ctime notime " +
				"time-format= follow follow-new buffer-size= since= until= color[=] json noescape show-delta " +
				"force-prefix syslog",
			Acts: []Act{
				{"-C --clear -c --read-clear", "clears the kernel log"},
				{"-D --console-off -E --console-on -n --console-level", "sets the console"},
			},
		},
	}
}

// systemdRules are the other commands of systemd.
func systemdRules() []Rule {
	return []Rule{
		{
			Name: "timedatectl", Stops: "verbs that set the clock", Bare: true,
			Subs: strings.Fields("status show list-timezones timesync-status show-timesync"), Operands: NoOperands,
			Flags: "a", Values: "pP",
			Long: "no-pager all property= value monitor",
			Acts: []Act{remoteOptions},
		},
		{
			Name: "hostnamectl", Stops: "verbs that set the host name", Bare: true,
			Subs: []string{"status"},
			Long: "no-ask-password static transient pretty json=",
			Acts: []Act{remoteOptions},
		},
		{
			Name: "localectl", Stops: "verbs that set the locale", Bare: true,
			Subs: []string{"status", "list-locales", "list-keymaps"},
			Long: "no-pager",
			Acts: []Act{remoteOptions},
		},
		{
			Name: "loginctl", Stops: "verbs that end sessions", Bare: true, Operands: Words,
			Flags: "al", Values: "pno",
			Subs: strings.Fields("list-sessions list-users list-seats session-status user-status seat-status " +
				"show-session show-user show-seat"),
			Long: "no-pager no-legend all full property= value lines= output=",
			Acts: []Act{remoteOptions, {"--kill-whom -s --signal", "sends signals"}},
		},
		{
			Name: "systemd-analyze", Stops: "verbs that set log levels or load units", Bare: true, Operands: Words,
			Subs: strings.Fields("time blame critical-chain unit-paths calendar timespan timestamp"),
			Long: "no-pager system user iterations= fuzz=",
			Acts: []Act{remoteOptions},
		},
		{
			Name: "resolvectl", Stops: "verbs that change the resolver", Bare: true, Operands: Words, Network: true,
			Subs:  []string{"status", "query", "statistics"},
			Flags: "46", Values: "ipct",
			Long: "no-pager legend= interface= protocol= type= class=",
			Acts: []Act{{"--set-dns --set-domain", "changes the resolver"}},
		},
		{
			Name: "networkctl", Stops: "verbs that change links", Bare: true, Operands: Words,
			Subs:  []string{"list", "status", "lldp"},
			Flags: "as",
			Long:  "no-pager no-legend all stats full",
		},
		{
			Name: "coredumpctl", Stops: "-o, and dump and debug, which write or run a debugger", Operands: Words,
			Bare:  true,
			Subs:  []string{"list", "info"},
			Flags: "1r", Values: "nSU",
			Long: "no-pager no-legend since= until= reverse",
			Acts: []Act{{"-o --output", "writes a file"}, {"--debugger -A --debugger-arguments", "runs a debugger"}},
		},
		{
			Name: "systemd-cgls", Stops: "-M, which reaches a container", Operands: Words,
			Flags: "alkux",
			Long:  "no-pager all full unit[=] user-unit[=]",
			Acts:  []Act{remoteOptions},
		},
		{
			Name: "systemd-detect-virt", Stops: "operands that act", Inert: true,
			Flags: "cvqr",
			Long:  "container vm quiet chroot private-users list",
		},
	}
}
