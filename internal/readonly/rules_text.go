package readonly

const sortHint = "sort prints to the standard output: sort FILE"

// filterRules are the commands that select and change lines.
func filterRules() []Rule {
	return []Rule{
		{
			Name: "sort", Stops: "-o, and --compress-program, which runs a program", Operands: Files, Tail: true,
			Hint:  sortHint,
			Flags: "bdfgiMhnRrVcCmsuz", Values: "kSt", Reads: "files0-from random-source",
			Long: "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting " +
				"month-sort human-numeric-sort numeric-sort random-sort random-source= reverse sort= version-sort " +
				"batch-size= check[=] debug files0-from= key= merge stable buffer-size= field-separator= " +
				"parallel= unique zero-terminated",
			Acts: []Act{
				{"-o --output", "writes a file"},
				{"--compress-program", "runs a program"},
				{"-T --temporary-directory", "writes temporary files into a directory"},
			},
		},
		{
			Name: "uniq", Stops: "the second operand, which is a file to write", Operands: Files, Most: 1,
			Flags: "cdDuiz", Values: "fsw", Hint: "uniq accepts one file: uniq -c FILE",
			Long: "count repeated all-repeated[=] skip-fields= group[=] ignore-case skip-chars= unique " +
				"zero-terminated check-chars=",
			check: checkUniq,
		},
		{
			Name: "cut", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "nsz", Values: "bcdf",
			Long: "bytes= characters= delimiter= fields= complement only-delimited output-delimiter= zero-terminated",
		},
		{
			Name: "tr", Stops: "operands that act", Operands: Words, Least: 1, Most: 2, Inert: true,
			Flags: "cCdst",
			Long:  "complement delete squeeze-repeats truncate-set1",
		},
		{
			Name: "sed", Stops: "-i, -f, and the commands e, w and W", Operands: checked, Tail: true,
			Flags: "nErsuz", Values: "el", Hint: sedHint,
			Long: "quiet silent expression= line-length= posix regexp-extended separate unbuffered null-data " +
				"zero-terminated debug sandbox",
			Acts: []Act{
				{"-i --in-place", "edits the file"},
				{"-f --file", "reads a script that is not checked"},
				{"--follow-symlinks", "belongs to the editing of files"},
			},
			check: checkSed,
		},
		{
			Name: "jq", Stops: "-f and -L, which load programs that are not seen", Operands: Pattern,
			Flags: "nrjasSceCMRh",
			Long: "null-input raw-input slurp compact-output raw-output join-output ascii-output sort-keys " +
				"color-output monochrome-output tab indent= exit-status stream seq raw-output0",
			Acts: []Act{
				{"-f --from-file -L", "loads a program that is not checked"},
				{"--slurpfile --rawfile --arg --argjson --args", "takes two words"},
			},
		},
		{
			Name: "diff", Stops: "-l, which runs pr", Operands: Files, Tail: true,
			Flags: "abBcdeEfinNpqrsTtuwyZ0123456789", Values: "CDFIUWxXSL",
			Long: "normal brief report-identical-files context= unified= ed rcs side-by-side width= left-column " +
				"suppress-common-lines show-c-function show-function-line= label= expand-tabs initial-tab " +
				"tabsize= suppress-blank-empty recursive no-dereference new-file unidirectional-new-file " +
				"ignore-file-name-case exclude= exclude-from= starting-file= from-file= to-file= ignore-case " +
				"ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space " +
				"ignore-blank-lines ignore-matching-lines= text strip-trailing-cr minimal speed-large-files color[=]",
			Acts: []Act{{"-l --paginate", "runs pr"}},
		},
		{
			Name: "cmp", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "bls", Values: "in",
			Long: "print-bytes ignore-initial= verbose bytes= quiet silent",
		},
	}
}

// layoutRules are the commands that arrange lines.
func layoutRules() []Rule {
	return []Rule{
		{
			Name: "nl", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "p", Values: "bdfhilnsvw",
			Long: "body-numbering= section-delimiter= footer-numbering= header-numbering= line-increment= " +
				"join-blank-lines= number-format= no-renumber number-separator= starting-line-number= number-width=",
		},
		{Name: "rev", Stops: "reading devices", Operands: Files, Inert: true, Flags: "0"},
		{
			Name: "paste", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "sz", Values: "d",
			Long: "delimiters= serial zero-terminated",
		},
		{
			Name: "join", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "iz", Values: "aejotv12",
			Long: "ignore-case check-order nocheck-order header zero-terminated",
		},
		{
			Name: "comm", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "123z",
			Long:  "check-order nocheck-order output-delimiter= total zero-terminated",
		},
		{
			Name: "fold", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "bs", Values: "w",
			Long: "bytes spaces width=",
		},
		{
			Name: "fmt", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "cstu", Values: "pwg",
			Long: "crown-margin prefix= split-only tagged-paragraph uniform-spacing width= goal=",
		},
		{
			Name: "expand", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "i", Values: "t",
			Long: "initial tabs=",
		},
		{
			Name: "unexpand", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "a", Values: "t",
			Long: "all first-only tabs=",
		},
		{
			Name: "column", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "txneLJ", Values: "csoNRTEOWHlrip",
			Long: "table fillrows separator= output-separator= output-width= json table-columns= table-right= " +
				"table-name= table-noheadings keep-empty-lines table-hide= table-order= table-truncate= " +
				"table-wrap= table-noextreme=",
		},
	}
}

// contentRules are the commands that show other than plain text.
func contentRules() []Rule {
	return []Rule{
		{
			Name: "strings", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "adfwo0123456789", Values: "neTtsU",
			Long: "all data print-file-name bytes= radix= include-all-whitespace encoding= target= " +
				"output-separator= unicode=",
		},
		{
			Name: "od", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "abcdfhHiIlLoOsvxB", Values: "AjNtS", Maybes: "w",
			Long: "address-radix= endian= skip-bytes= read-bytes= strings[=] format= output-duplicates width[=] " +
				"traditional",
		},
		{
			Name: "hexdump", Stops: "reading devices", Operands: Files, Inert: true,
			Flags: "bcCdovx", Values: "efns", Maybes: "L",
			Long: "one-byte-octal one-byte-char canonical two-bytes-decimal two-bytes-octal two-bytes-hex format= " +
				"length= skip= no-squeezing color[=]",
		},
		{
			Name: "xxd", Stops: "-r and the second operand, which is a file to write", Operands: Files, Most: 1,
			Flags: "abCeEipuh", Values: "cglos", Hint: "xxd accepts one file: xxd FILE",
			Acts: []Act{{"-r", "writes bytes back"}}, check: checkUniq,
		},
		{Name: "zcat", Stops: "reading devices", Operands: Files, Tail: true, Flags: "fv", Long: "force verbose"},
		{Name: "bzcat", Stops: "reading devices", Operands: Files, Flags: "s", Long: "small"},
		{Name: "xzcat", Stops: "reading devices", Operands: Files, Flags: "qv", Long: "quiet verbose"},
		{Name: "zstdcat", Stops: "reading devices", Operands: Files, Flags: "qv"},
	}
}

// languageRules are grep and awk under their several names.
func languageRules() (rules []Rule) {
	for _, name := range []string{"grep", "egrep", "fgrep"} {
		rules = append(rules, Rule{Name: name, Stops: "reading devices", Operands: Pattern, Least: 0, Inert: true,
			Flags: "EFGPivwxyclLqsnHhobrRzZUIaTu0123456789", Values: "ABCefmdD", Reads: "f file exclude-from",
			Long: "extended-regexp fixed-strings basic-regexp perl-regexp regexp= file= ignore-case no-ignore-case " +
				"invert-match " +
				"word-regexp line-regexp count color[=] colour[=] files-without-match files-with-matches max-count= " +
				"only-matching quiet silent no-messages byte-offset with-filename no-filename label= line-number " +
				"initial-tab " +
				"null after-context= before-context= context= group-separator= no-group-separator text binary-files= " +
				"devices= directories= exclude= exclude-from= exclude-dir= include= recursive dereference-recursive " +
				"line-buffered binary null-data unix-byte-offsets"})
	}
	for _, name := range []string{"awk", "gawk", "mawk", "nawk"} {
		rules = append(rules, Rule{Name: name, Stops: "system, pipes, output redirection, program files, extensions " +
			"and network files of gawk",
			Operands: checked, Ordered: true, Flags: "SbcrPVOs", Values: "Fv", Hint: awkHint, check: checkAwk,
			Long: "field-separator= assign= posix traditional sandbox re-interval characters-as-bytes optimize " +
				"no-optimize csv",
			Acts: []Act{
				{"-f --file -e --source -E --exec", "gives a program that is not the first operand"},
				{"-i --include -l --load", "loads code"},
				{"-o --pretty-print -p --profile -d --dump-variables", "writes a file"},
				{"-D --debug -W", "starts the debugger or another option"},
			}})
	}
	return rules
}

// digestRules are the commands that compute checksums and encodings.
func digestRules() (rules []Rule) {
	for _, name := range []string{"md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum"} {
		rules = append(rules, Rule{Name: name, Stops: "reading " +
			"devices", Operands: Files, Inert: true, Flags: "bctwz", Values: "l",
			Long: "binary check tag text zero ignore-missing quiet status strict warn length="})
	}
	for _, name := range []string{"cksum", "sum"} {
		rules = append(rules, Rule{Name: name, Stops: "reading " +
			"devices", Operands: Files, Inert: true, Flags: "crsw", Values: "al",
			Long: "algorithm= check length= sysv raw untagged tag base64 zero debug warn strict quiet status " +
				"ignore-missing"})
	}
	for _, name := range []string{"base64", "base32"} {
		rules = append(rules, Rule{Name: name, Stops: "reading " +
			"devices", Operands: Files, Most: 1, Inert: true, Flags: "di", Values: "w",
			Long: "decode ignore-garbage wrap="})
	}
	return rules
}
