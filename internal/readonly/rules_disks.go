package readonly

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
