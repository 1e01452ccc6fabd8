package readonly

// fileRules are the commands that list and read files.
func fileRules() []Rule {
	return []Rule{
		{
			Name: "ls", Stops: "operands that act: every option of ls only changes the output", Operands: Names,
			Inert: true,
			Flags: "aAbBcCdDfFgGhHiklLmnNopqQrRsStuUvxXZ1", Values: "IwT",
			Long: "all almost-all author escape block-size= ignore-backups color[=] colour[=] directory dired " +
				"classify[=] file-type format= full-time group-directories-first no-group human-readable si " +
				"dereference-command-line dereference-command-line-symlink-to-dir hide= hyperlink[=] " +
				"indicator-style= inode ignore= kibibytes dereference numeric-uid-gid literal hide-control-chars " +
				"show-control-chars quote-name quoting-style= reverse recursive size sort= time= time-style= " +
				"tabsize= width= context zero",
		},
		{
			Name: "cat", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "AbeEnstTuv",
			Long:  "show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting",
		},
		{
			Name: "tac", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "br", Values: "s",
			Long: "before regex separator=",
		},
		{
			Name: "head", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "qvz0123456789kbm", Values: "nc",
			Long: "bytes= lines= quiet silent verbose zero-terminated",
		},
		{
			Name: "tail", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "fFqvz0123456789", Values: "ncs",
			Long: "bytes= lines= follow[=] retry pid= max-unchanged-stats= quiet silent sleep-interval= verbose " +
				"zero-terminated",
		},
		{
			Name: "stat", Stops: "reading devices", Operands: Names, Inert: true,
			Flags: "Lft", Values: "c",
			Long: "dereference file-system cached= format= printf= terse",
		},
		{
			Name: "wc", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "clLmw", Reads: "files0-from",
			Long: "bytes chars lines max-line-length words files0-from= total=",
		},
		{Name: "cd", shell: true, Stops: "a directory whose name is not known", Operands: Names, Least: 1, Most: 1},
		{Name: "pwd", Stops: "operands that act", Inert: true, Flags: "LP", Long: "logical physical"},
	}
}

// searchRules are the commands that find files and identify them.
func searchRules() []Rule {
	return []Rule{
		{
			Name: "find", Stops: "-delete, -exec of a program that writes, -fprint and similar actions",
			Operands: checked, free: true, nests: true, Hint: findHint, check: checkFind,
			Acts: findActs,
		},
		{
			Name: "file", Stops: "-C, which writes a compiled magic file, and -z, which starts decompressors",
			Operands: Names, Tail: true,
			Flags: "bcdEhikLnNrsv0lI", Values: "eFfP", Reads: "f files-from",
			Long: "brief checking-printout apple extension mime mime-type mime-encoding dereference " +
				"no-dereference keep-going list no-buffer no-pad print0 raw special-files exclude= exclude-quiet= " +
				"separator= files-from= parameter= debug",
			Acts: []Act{
				{"-C --compile -m --magic-file", "compiles or loads a magic file"},
				{"-z -Z --uncompress --uncompress-noreport", "starts decompressors"},
				{"-p --preserve-date", "writes the access time"},
				{"-S --no-sandbox", "removes the sandbox of file"},
			},
		},
		{
			Name: "tree", Stops: "-o, and -R, which writes 00Tree.html into directories", Operands: Names,
			Apart: true,
			Flags: "adflxpshugDFiqNQrtUcvnCASJX", Values: "LPIHT",
			Long: "noreport prune filelimit= charset= timefmt= sort[=] dirsfirst filesfirst du si inodes device " +
				"matchdirs ignore-case metafirst gitignore nolinks info",
			Acts: []Act{
				{"-o --output", "writes a file"},
				{"-R", "can write a file into each directory"},
				{"--fromfile", "reads names from files"},
			},
		},
		{
			Name: "lsof", Stops: "-D and -k, which name cache and kernel files", Operands: Words,
			Flags: "abCHhlNnPRtUVvwX", Values: "cdgpu", Maybes: "iFsSTorf",
			Acts: []Act{
				{"-D", "writes a cache file"},
				{"-k -m", "reads a kernel file"},
				{"-A -e", "changes how lsof reads the kernel"},
			},
		},
	}
}

// pathRules are the commands that show names, sizes and rights.
func pathRules() []Rule {
	return []Rule{
		{
			Name: "du", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "0abcDhHklLmPsSx", Values: "BdtX",
			Long: "null all apparent-size block-size= bytes total dereference-args max-depth= files0-from= " +
				"human-readable inodes count-links dereference no-dereference separate-dirs si summarize " +
				"threshold= time[=] time-style= exclude-from= exclude= one-file-system",
		},
		{
			Name: "readlink", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "femnqsvz",
			Long:  "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero",
		},
		{
			Name: "realpath", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "emLPqsz",
			Long: "canonicalize-existing canonicalize-missing logical physical quiet relative-to= relative-base= " +
				"strip no-symlinks zero canonicalize",
		},
		{
			Name: "basename", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "az", Values: "s",
			Long: "multiple suffix= zero",
		},
		{Name: "dirname", Stops: "operands that act", Operands: Names, Inert: true, Flags: "z", Long: "zero"},
		{
			Name: "namei", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "xmolnvZ",
			Long:  "long modes mountpoints nosymlinks owners vertical context",
		},
		{
			Name: "getfacl", Stops: "operands that act", Operands: Names, Inert: true,
			Flags: "acdeEsRLPtpn",
			Long: "access omit-header default all-effective no-effective skip-base recursive logical physical " +
				"tabular absolute-names numeric",
		},
		{Name: "getcap", Dir: "/usr/sbin", Stops: "operands that act", Operands: Names, Inert: true, Flags: "hnrv"},
		{Name: "lsattr", Stops: "operands that act", Operands: Names, Inert: true, Flags: "RVadlpv"},
	}
}

// findActs gives the reason for each refused word of find.
var findActs = []Act{
	{"-delete", "removes files"},
	{"-fprint -fprint0 -fprintf -fls", "writes a file"},
	{"-ok -okdir", "runs a command after a question on the terminal"},
	{"-files0-from", "reads starting points from a file"},
}
