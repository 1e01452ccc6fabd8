package readonly

// hardwareRules are the commands that show the hardware and the kernel.
func hardwareRules() []Rule {
	return []Rule{
		{
			Name: "uname", Stops: "operands that act", Inert: true,
			Flags: "asnrvmpio",
			Long: "all kernel-name nodename kernel-release kernel-version machine processor hardware-platform " +
				"operating-system",
		},
		{Name: "arch", Stops: "operands that act", Inert: true},
		{Name: "nproc", Stops: "operands that act", Inert: true, Long: "all ignore="},
		{
			Name: "lscpu", Stops: "operands that act", Inert: true,
			Flags: "abcByxJrhV", Values: "s", Maybes: "eCp",
			Long: "all online bytes caches[=] offline json extended[=] parse[=] sysroot= hex physical output-all " +
				"annotate hierarchic[=] raw",
		},
		{
			Name: "lsmem", Stops: "operands that act", Inert: true,
			Flags: "aJnPrb", Values: "osS", Maybes: "",
			Long: "all bytes json noheadings output= output-all pairs raw split= summary[=] sysroot=",
		},
		{Name: "lsmod", Dir: "/usr/sbin", Stops: "operands that act", Inert: true},
		{
			Name: "modinfo", Dir: "/usr/sbin", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "0adlpnmV", Values: "Fk",
			Long: "null author description license parameters filename field= set-version= modname",
		},
		{
			Name: "lspci", Stops: "-M, -H and -A, which probe the bus, and -q, which queries the network",
			Flags: "vxtnkbDmPVg", Values: "sd", Hint: "Use lspci -nnk",
			Acts: []Act{
				{"-M -H -A -O -G", "probes the bus directly"},
				{"-q -Q", "queries the network"},
				{"-i -p -F", "reads another file"},
			},
		},
		{
			Name: "lsusb", Stops: "-D, which opens a device",
			Flags: "vtV", Values: "sd",
			Long: "verbose tree",
			Acts: []Act{{"-D", "opens a device"}},
		},
		{
			Name: "dmidecode", Dir: "/usr/sbin", Stops: "--dump-bin, which writes a file",
			Flags: "quhV", Values: "stH",
			Long: "quiet string= type= handle= dump no-sysfs",
			Acts: []Act{{"--dump-bin", "writes a file"}, {"-d --dev-mem --from-dump", "reads another file"}},
		},
		{
			Name: "sensors", Stops: "-s, which sets limits", Operands: Words,
			Flags: "ufjA",
			Acts:  []Act{{"-s --set", "sets limits"}, {"-c --config-file", "reads a configuration"}},
		},
		{
			Name: "sysctl", Dir: "/usr/sbin", Stops: "NAME=VALUE, -w and -p, which set parameters", Operands: Words,
			Flags: "anNebqArX", Values: "",
			Long: "all values names ignore binary pattern= deprecated", Hint: "Write sysctl NAME", check: checkSysctl,
			Acts: []Act{{"-w --write -p --load --system -f", "sets kernel parameters"}},
		},
		{Name: "getconf", Stops: "operands that act", Operands: Words, Inert: true, Flags: "a", Values: "v"},
		{
			Name: "hostname", Stops: "an operand and -F, which set the host name",
			Flags: "aAdfiIsyV",
			Long:  "alias all-fqdns domain fqdn long ip-address all-ip-addresses short yp nis",
			Hint:  "Write hostname without operands.",
			Acts:  []Act{{"-b --boot -F --file", "sets the host name"}},
		},
		{
			Name: "date", Stops: "-s and an operand without +, which set the clock", Operands: checked, Most: 1,
			Flags: "uR", Values: "drf", Maybes: "I", Reads: "r reference f file",
			Hint: "Write date, date -u, date +FORMAT or date -d WHEN", check: checkDate,
			Long: "date= file= iso-8601[=] rfc-3339= rfc-email rfc-822 rfc-2822 reference= utc universal uct " +
				"debug resolution",
			Acts: []Act{{"-s --set", "sets the clock"}},
		},
	}
}
