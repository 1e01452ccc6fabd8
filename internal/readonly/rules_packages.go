package readonly

import "strings"

// debianRules are the commands that query Debian packages.
func debianRules() []Rule {
	return []Rule{
		{
			Name: "dpkg", Stops: "actions that install, remove, unpack or configure, and hooks such as --pre-invoke",
			Operands: Words, Hint: "Use dpkg -l, -s, -L or -S",
			Flags: "lsLScIfpCVh", Least: 0, check: checkDpkg,
			Long: "list status listfiles search contents info field print-avail audit verify verify-format= " +
				"get-selections print-architecture print-foreign-architectures compare-versions no-pager " +
				"yet-to-unpack predep-package assert-multi-arch",
			Acts: []Act{
				{"-i --install --unpack --configure -r --remove -P --purge -A --record-avail --triggers-only",
					"changes packages"},
				{"-x --extract -X --vextract -e --control -R --raw-extract -b --build", "writes files"},
				{"--set-selections --clear-selections --update-avail --merge-avail --clear-avail " +
					"--forget-old-unavail --add-architecture --remove-architecture", "changes the package database"},
				{"--pre-invoke --post-invoke --status-logger", "runs a program"},
				{"--root --instdir --admindir --log --status-fd -D --debug -B -E -G -O --force -a --pending",
					"belongs to actions that write"},
			},
		},
		{
			Name: "dpkg-query", Stops: "--control-path of other databases", Operands: Words,
			Flags: "lsLSpW", Values: "f",
			Long: "list status listfiles search print-avail show showformat= control-list control-show load-avail " +
				"no-pager",
			Acts: []Act{{"--admindir --root", "reads another database"}},
		},
		{
			Name: "apt", Stops: "verbs that change packages, and -o and -c, which set programs", Operands: Words,
			Flags: "ainvqf", Hint: "Use apt list, show, search or policy",
			Subs: strings.Fields("list show search policy depends rdepends showsrc madison"), Maybes: "", Values: "t",
			Long: "all-versions installed upgradable upgradeable manual-installed verbose names-only full " +
				"quiet[=] recurse important no-recommends no-suggests target-release= no-all-versions",
			Acts: []Act{aptOptions},
		},
		{
			Name: "apt-cache", Stops: "gencaches, and -o and -c, which set programs", Operands: Words,
			Flags: "ainqf", Hint: "Use apt-cache policy, show or search",
			Subs: strings.Fields("policy show showpkg showsrc search depends rdepends pkgnames stats madison dump " +
				"dumpavail unmet"),
			Long: "all-versions installed names-only full quiet[=] recurse important no-recommends no-suggests " +
				"no-depends no-all-names all-names",
			Acts: []Act{aptOptions, {"-p --pkg-cache -s --src-cache", "writes a cache file"}},
		},
		{
			Name: "apt-mark", Stops: "verbs that change marks", Operands: Words,
			Subs: []string{"showauto", "showmanual", "showhold"},
			Acts: []Act{aptOptions},
		},
	}
}

// packageRules are the commands that query packages of other systems and of Python.
func packageRules() []Rule {
	rules := []Rule{
		{
			Name: "rpm", Stops: "modes other than queries, and macros, --pipe and --load, which run programs",
			Operands: Words, check: checkRPM, Hint: "Use rpm -qa, rpm -qi NAME or rpm -ql NAME",
			Flags: "qailcdRpsvVfgL",
			Long: "query all file info list configfiles docfiles requires provides conflicts obsoletes recommends " +
				"suggests supplements enhances whatrequires whatprovides whatconflicts whatobsoletes " +
				"whatrecommends changelog changes last scripts triggers filetriggers qf= queryformat= state dump " +
				"package licensefiles artifactfiles filesbypkg group querytags noscripts noglob nodigest " +
				"nosignature nofiledigest nodeps nomd5 verify xml",
			Acts: []Act{
				{"-e --erase -U --upgrade -F --freshen --install --reinstall --import --initdb --rebuilddb " +
					"--restore --setperms --setugids --setcaps", "changes packages or files"},
				{"--eval -E --define -D --undefine --load --macros --rcfile --pipe --predefine", "runs a program"},
				{"--specfile", "expands the macros of a file"},
				{"--resign --addsign --delsign --delfilesign", "signs packages"},
				{"--root -r --dbpath --relocate --justdb --test --nocontexts", "uses another database"},
			},
		},
		{
			Name: "apk", Stops: "verbs that change packages", Operands: Words, Dir: "/sbin",
			Flags: "aevILRdPrwsqu",
			Subs:  strings.Fields("info list version policy search"),
			Long: "verbose quiet installed upgradable available orphaned providers who-owns contents depends size " +
				"description rdepends all",
			Acts: []Act{
				{"-X --repository --root -p --keys-dir --repositories-file --arch --cache-dir -U --update-cache",
					"uses other repositories"},
			},
		},
	}
	for _, name := range []string{"pip", "pip3"} {
		rules = append(rules, Rule{Name: name, Stops: "verbs that install, and --python and " +
			"--log", Operands: Words, Bare: true, Flags: "vqlefVh", Hint: "Use pip list, show, check or freeze",
			check: checkPip,
			Subs:  []string{"list", "show", "check", "freeze", "config list", "config get"},
			Long: "verbose quiet format= not-required user local editable exclude-editable include-editable " +
				"exclude= all files no-color no-input " +
				"disable-pip-version-check no-cache-dir isolated no-python-version-warning require-virtualenv path=",
			Acts: []Act{{"--log --log-file --local-log", "writes a file"}, {"--python", "runs a program"},
				{"-o --outdated -u --uptodate --proxy --cert --client-cert --trusted-host -i --index-url " +
					"--extra-index-url --find-links --pre", "connects to a package index"},
				{"--cache-dir --editor -r --requirement", "uses other files"}}})
	}
	return rules
}

var aptOptions = Act{"-o --option -c --config-file", "can set a program that apt runs"}
