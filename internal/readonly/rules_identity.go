package readonly

// identityRules are the commands that show users and sessions.
func identityRules() []Rule {
	return []Rule{
		{Name: "whoami", Stops: "operands that act", Inert: true},
		{Name: "logname", Stops: "operands that act", Inert: true},
		{Name: "tty", Stops: "operands that act", Inert: true, Flags: "s", Long: "silent quiet"},
		{
			Name: "id", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "agGnruzZ",
			Long:  "context group groups name real user zero",
		},
		{Name: "groups", Stops: "operands that act", Operands: Words, Inert: true},
		{Name: "users", Stops: "operands that act", Operands: Names, Inert: true},
		{
			Name: "who", Stops: "operands that act", Operands: Words, Most: 2, Inert: true,
			Flags: "abdHlmpqrstTuw",
			Long: "all boot dead heading ips login lookup process count runlevel short time mesg message writable " +
				"users",
		},
		{
			Name: "w", Stops: "operands that act", Operands: Words, Most: 1, Inert: true,
			Flags: "husfoipcV",
			Long:  "no-header no-current short from old-style ip-addr pids container terminal",
		},
		{
			Name: "last", Stops: "reading devices", Operands: Words,
			Flags: "aFiRwxdhV0123456789T", Values: "nfstpE", Reads: "f file",
			Long: "hostlast dns file= fulltimes ip limit= nohostname since= until= present= system fullnames " +
				"time-format= tab-separated",
		},
		{
			Name: "lastb", Stops: "reading devices", Operands: Words,
			Flags: "aFiRwxdhV0123456789", Values: "nfstp", Reads: "f file",
			Long: "hostlast dns file= fulltimes ip limit= nohostname since= until= present= system fullnames " +
				"time-format=",
		},
		{
			Name: "lastlog", Stops: "-C and -S, which change the record",
			Flags: "h", Values: "ubt",
			Long: "user= before= time=",
			Acts: []Act{{"-C --clear -S --set -R --root", "changes the record"}},
		},
		{
			Name: "env", Stops: "operands, which are variables and a program to run",
			Flags: "0",
			Long:  "null", Hint: "Write env without operands, or put LC_ALL=C directly before the command.",
			Acts: []Act{
				{"-S --split-string -i --ignore-environment -u --unset -C --chdir -a --argv0 --block-signal " +
					"--default-signal --ignore-signal --list-signal-handling -v --debug",
					"belongs to running a program"},
			},
		},
		{Name: "printenv", Stops: "operands that act", Operands: Words, Inert: true, Flags: "0", Long: "null"},
		{
			Name: "locale", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "amkcv",
			Long:  "all-locales charmaps keyword-name category-name verbose",
		},
		{
			Name: "crontab", Stops: "all uses but -l",
			Flags: "l", Values: "u", check: checkCrontab, Hint: "Write crontab -l",
			Acts: []Act{{"-r -e -i", "changes the table"}},
		},
	}
}

// checkCrontab requires -l, since crontab without options reads a new table.
func checkCrontab(c *call) *refusal {
	if !c.hasOption("l") {
		return newRefusal("Write crontab -l", "crontab without -l installs a new table")
	}
	return nil
}
