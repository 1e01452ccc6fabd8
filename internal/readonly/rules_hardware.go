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

// diskRules are the commands that show disks and file systems.
func diskRules() []Rule {
	return []Rule{
		{
			Name: "df", Stops: "--sync, which flushes disks", Operands: Names, Tail: true,
			Flags: "ahHiklmPTv", Values: "txB",
			Long: "all block-size= human-readable si inodes local no-sync output[=] portability total type= " +
				"print-type exclude-type=",
			Acts: []Act{{"--sync", "flushes disks"}},
		},
		{
			Name: "lsblk", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "aAbdDfiJlLmMnNOpPrsStvVzZ", Values: "eIowxE", Maybes: "T",
			Long: "all noempty bytes nodeps discard exclude= fs ascii include= json list merge perms noheadings " +
				"output= output-all paths pairs raw inverse scsi sort= sysroot= topology tree[=] width= zoned " +
				"nvme virtio dedup= properties-by= shell ct= ct-filter= filter=",
		},
		{
			Name: "blkid", Dir: "/usr/sbin", Stops: "-c and -g, which write the cache file", Operands: Names,
			Flags: "iklpdDhV", Values: "LUnosStuOHc", Hint: "Use blkid -o list or blkid DEVICE",
			Long: "output= match-tag= match-token= label= uuid= probe info list-filesystems list-one usages= " +
				"match-types= offset= size= no-encoding no-part-details cache-file= hint=",
			Acts: []Act{{"-g --garbage-collect -w", "writes the cache file"}}, check: checkBlkid,
		},
		{
			Name: "findmnt", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "AabCcDefiJklmnPrRsUuvx", Values: "dFMNoOpStTw",
			Long: "all ascii bytes nocanonicalize canonicalize df direction= evaluate tab-file= first-only invert " +
				"json kernel list task= mtab noheadings options= output= output-all pairs poll[=] raw real pseudo " +
				"submounts fstab nofsroot source= target= mountpoint= timeout= types= uniq tree verify verbose " +
				"nvm shadowed",
		},
		{
			Name: "swapon", Dir: "/usr/sbin", Stops: "all uses but the list of swap areas",
			Flags: "s",
			Long:  "show[=] noheadings raw bytes summary", check: checkSwapon, Hint: "Write swapon --show",
			Acts: []Act{
				{"-a --all -e --ifexists -d --discard -p --priority -f --fixpgsz -o --options -L -U",
					"enables swapping"},
			},
		},
		{
			Name: "mountpoint", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "qdxn",
			Long:  "quiet fs-devno devno nofollow",
		},
		{
			Name: "lslocks", Stops: "operands that act", Inert: true,
			Flags: "birnuJ", Values: "op",
			Long: "bytes noinaccessible json noheadings output= output-all pid= raw notruncate",
		},
		{
			Name: "lsns", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "JlnruWP", Values: "optT",
			Long: "json list noheadings output= output-all task= raw type= notruncate persistent",
		},
	}
}

// checkSwapon requires --show or -s, since swapon without options is a list only on some systems.
func checkSwapon(c *call) *refusal {
	if !c.hasOption("s", "summary", "show", "help", "version") {
		return newRefusal("Write swapon --show", "swapon without --show can enable swapping")
	}
	return nil
}
