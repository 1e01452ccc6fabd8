package readonly

// processRules are the commands that show processes.
func processRules() []Rule {
	return []Rule{
		// ps accepts three styles of options, and none of its options acts.
		{
			Name: "ps", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "aAcdefFHjklLmMnNorsStTuUvVwxXyZOgGpqCDEPbhRIzi0123456789,",
			Long: "deselect user= User= group= Group= pid= ppid= sid= quick-pid= tty= context cols= columns= " +
				"width= rows= lines= cumulative forest headers no-headers sort= format= info signames delimiter=",
		},
		{
			Name: "top", Stops: "the interactive mode, which sends signals and writes a file", Operands: NoOperands,
			Flags: "bcHiSs1", Values: "ndupUoOwEe", Hint: "Write top -b -n 1", check: checkTop,
			Long: "batch batch-mode iterations= delay= user= pid= sort-override= width=",
		},
		{
			Name: "pgrep", Stops: "operands that act: pkill is another command", Operands: Words, Inert: true,
			Flags: "acfilnovwxQ", Values: "dgGPrstuUF", Reads: "F pidfile",
			Long: "list-full list-name count full ignore-case inverse newest oldest exact delimiter= pgroup= " +
				"group= parent= runstates= session= terminal= euid= uid= pidfile= lightweight older= cgroup= ns= " +
				"nslist=",
		},
		{Name: "pidof", Stops: "operands that act", Operands: Words, Inert: true, Flags: "scnqxw", Values: "oS"},
		{
			Name: "pstree", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "aAcCgGhlnpsStTuUZV", Values: "HN",
			Long: "arguments ascii compact-not show-pgids show-pids show-parents ns-changes thread-names " +
				"hide-threads uid-changes unicode long numeric-sort",
		},
		{
			Name: "pmap", Stops: "-N, which creates a configuration file", Operands: Words,
			Flags: "xXdqp",
			Long:  "extended device quiet show-path",
			Acts: []Act{
				{"-N --create-rc-to -n --create-rc", "writes a configuration file"},
				{"-C --read-rc-from -c --read-rc", "reads a configuration file"},
			},
		},
		{Name: "pwdx", Stops: "operands that act", Operands: Words, Inert: true},
		{
			Name: "fuser", Dir: "/usr/bin", Stops: "-k, which sends signals", Operands: Names,
			Flags: "avums46cflI", Values: "n",
			Long: "all mount user verbose ismountpoint namespace= inode list-signals",
			Acts: []Act{{"-k --kill -i --interactive -w --writeonly", "sends signals"}},
		},
	}
}

// loadRules are the commands that show the load of the host.
func loadRules() []Rule {
	return []Rule{
		{Name: "uptime", Stops: "operands that act", Inert: true, Flags: "phsVr", Long: "pretty since raw container"},
		{
			Name: "free", Stops: "operands that act", Inert: true,
			Flags: "bkmghltvVwL", Values: "cs",
			Long: "bytes kilo mega giga tera peta kibi mebi gibi tebi pebi kb mb gb human si lohi line total " +
				"seconds= count= wide committed",
		},
		{
			Name: "vmstat", Stops: "operands that act", Operands: Words, Most: 2, Inert: true,
			Flags: "afmnsdDtwyV", Values: "pS",
			Long: "active forks slabs one-header stats disk disk-sum partition= unit= wide timestamp no-first",
		},
		{
			Name: "iostat", Stops: "operands that act", Operands: Words,
			Flags: "cdhkmNstxyz", Values: "jgfo", Maybes: "p",
			Long: "human pretty dec=", Inert: true,
		},
		{
			Name: "mpstat", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "AnuV", Values: "IPNoT",
			Long: "dec=",
		},
		{
			Name: "pidstat", Stops: "-e, which runs a program", Operands: Words,
			Flags: "dDHhIlRrstUuVvwC", Values: "pGT",
			Long: "human dec=",
			Acts: []Act{{"-e", "runs a program"}},
		},
	}
}

// runnerRules are the commands that run another command, which is checked in the same way.
func runnerRules() []Rule {
	return []Rule{
		{
			Name: "timeout", Stops: "a command that writes", Operands: checked, Ordered: true, Least: 2, nests: true,
			Flags: "v", Values: "ks", check: checkTimeout,
			Long: "foreground preserve-status verbose kill-after= signal=",
		},
		{
			Name: "xargs", Stops: "commands for which data can become an option that acts", Operands: checked,
			Ordered: true, nests: true,
			Flags: "0rtx", Values: "adEILnPs", Maybes: "eil", Reads: "a arg-file", check: checkXargs,
			Long: "null no-run-if-empty verbose exit max-args= max-lines[=] max-procs= max-chars= delimiter= " +
				"eof[=] replace[=] arg-file= show-limits",
			Hint: "Use xargs with a reading command, for example: xargs -n 1 grep -l TEXT",
			Acts: []Act{
				{"--process-slot-var", "sets a variable such as LD_PRELOAD"},
				{"-o --open-tty -p --interactive", "reads the terminal"},
			},
		},
	}
}
