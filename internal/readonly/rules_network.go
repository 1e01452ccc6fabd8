package readonly

// networkRules are the commands that show the network of the host.
func networkRules() []Rule {
	return []Rule{
		{
			Name: "ss", Stops: "-K, which closes sockets, and -D, which writes a file", Operands: Words,
			Flags: "nralBoempTisEZz460tSudwxHOQMhV", Values: "fA", Hint: "Use ss -tlnp",
			Long: "numeric resolve all listening bound-inactive options extended memory processes threads info " +
				"tipcinfo summary tos cgroup events context contexts ipv4 ipv6 packet tcp mptcp sctp udp dccp raw " +
				"unix tipc vsock xdp inet-sockopt family= query= socket= no-header oneline no-queues",
			Acts: []Act{
				{"-K --kill", "closes sockets"},
				{"-D --diag", "writes a file"},
				{"-F --filter", "reads a filter from a file"},
				{"-N --net", "enters a namespace"},
				{"-b --bpf", "shows programs of the kernel"},
			},
		},
		{
			Name: "netstat", Stops: "operands that act", Operands: Words, Most: 1,
			Flags: "rigsMvWnNeplaocCFtuUwxS246", Values: "A", Maybes: "I",
			Long: "route interfaces groups statistics masquerade verbose wide numeric numeric-hosts numeric-ports " +
				"numeric-users symbolic extend program programs listening all timers continuous cache fib tcp udp " +
				"udplite raw unix sctp protocol= inet inet6",
		},
		{
			Name: "ip", Dir: "/usr/sbin", Stops: "verbs that change the network, netns exec and vrf exec, and -batch",
			Operands: checked, free: true, Hint: ipHint, check: checkIP,
			Acts: ipActs,
		},
		{
			Name: "ifconfig", Dir: "/usr/sbin", Stops: "all operands but one name, which change the interface",
			Operands: Words, Most: 1,
			Flags: "asv", Hint: "Use ifconfig NAME", check: checkInterface,
		},
		{
			Name: "route", Dir: "/usr/sbin", Stops: "add, del and flush",
			Flags: "neFCv46", Values: "A", Hint: "Use route -n",
			Long: "numeric extend verbose inet inet6 fib cache",
		},
		{
			Name: "arp", Dir: "/usr/sbin", Stops: "-s, -d and -f, which change the table", Operands: Words, Most: 1,
			Flags: "anveD", Values: "Hi", Hint: "Use arp -n",
			Long: "all numeric verbose device=",
			Acts: []Act{{"-s --set -d --delete -f --file", "changes the table"}},
		},
		{
			Name: "ethtool", Dir: "/usr/sbin", Stops: "options that set parameters", Operands: Words, Least: 1,
			Most:  1,
			Flags: "acgiklSTmnuxPh", Hint: "Use ethtool DEVICE or ethtool -i DEVICE",
			Long: "show-pause show-coalesce show-ring driver show-features show-offload show-channels statistics " +
				"show-time-stamping module-info show-permaddr show-rxfh show-eee show-fec json",
		},
		{
			Name: "nstat", Dir: "/usr/sbin", Stops: "-n, which writes a history file", Operands: Words,
			Flags: "aszj",
			Long:  "ignore noupdate zeros json",
			Acts:  []Act{{"-r --reset -n --nooutput -d --scan", "writes the history file"}}, check: checkNstat,
		},
	}
}

// queryRules are the commands that query the network.
func queryRules() []Rule {
	return []Rule{
		{
			Name: "dig", Stops: "-f, -k and -y, which send the content of files or keys", Operands: Words,
			Network: true,
			Flags:   "46hvrum", Values: "xtpcqb",
			Acts: []Act{{"-f", "reads queries from a file"}, {"-k -y", "reads a key"}},
		},
		{
			Name: "host", Stops: "operands that act", Operands: Words, Network: true, Least: 1,
			Flags: "aCdlnrsTvVwU46i", Values: "cNRtWpm",
		},
		{
			Name: "nslookup", Stops: "the interactive mode", Operands: Words, Network: true, Hyphen: true,
			Hint: "Write nslookup NAME",
			Long: "type= query= querytype= q= class= debug nodebug d2 nod2 port= timeout= retry= recurse " +
				"norecurse vc novc search nosearch fail nofail domain= all ndots= version",
			check: checkNslookup,
		},
		pingRule("ping"), pingRule("ping6"),
		{
			Name: "getent", Stops: "operands that act", Operands: Words, Least: 1, Network: true,
			Flags: "iAn", Values: "s",
			Long: "service= no-idn no-addrconfig",
		},
	}
}

// pingRule is the rule of ping and ping6.
func pingRule(name string) Rule {
	return Rule{
		Name: name, Stops: "-f and short intervals, which flood the network, and -p, which sends data",
		Operands: Words, Least: 1, Most: 1, Network: true,
		Flags: "46nqvDOLRrUaBhV", Values: "cisWwtIMQS", Hint: "Use ping -c 3 HOST", check: checkPing,
		Acts: []Act{
			{"-f", "floods the network"},
			{"-b", "pings a broadcast address"},
			{"-A -l", "sends without waiting"},
			{"-p", "sends data in packets"},
		},
	}
}

// requestRules are the commands that connect to services of the host.
func requestRules() []Rule {
	return []Rule{
		{
			Name: "curl", Stops: "requests that send data, other hosts, and options that write files",
			Operands: Words, Network: true, check: checkCurl, Hint: curlHint,
			Flags: "sSfviIkNgq460V", Values: "mXowHAure",
			Long: "silent show-error fail fail-with-body verbose include head insecure no-buffer globoff ipv4 " +
				"ipv6 http1.0 http1.1 http2 http2-prior-knowledge compressed no-progress-meter max-time= " +
				"connect-timeout= request= output= write-out= header= user-agent= user= range= referer= retry= " +
				"retry-delay= retry-max-time= retry-connrefused retry-all-errors max-filesize= path-as-is disable " +
				"dump-header= tlsv1.2 tlsv1.3",
			Acts: []Act{
				{"-d --data --data-raw --data-binary --data-ascii --data-urlencode --json -F --form --form-string " +
					"-T --upload-file -G --get --url-query", "sends data"},
				{"-L --location --location-trusted", "follows redirects to other hosts"},
				{"-x --proxy --preproxy --socks4 --socks4a --socks5 --socks5-hostname --connect-to --resolve " +
					"--unix-socket --abstract-unix-socket --interface --dns-servers --doh-url", "connects elsewhere"},
				{"-O --remote-name --remote-name-all -J --remote-header-name -c --cookie-jar --trace " +
					"--trace-ascii --stderr --libcurl --hsts --alt-svc --etag-save --output-dir --create-dirs -C " +
					"--continue-at --xattr", "writes a file"},
				{"-K --config -n --netrc --netrc-file -b --cookie --cert -E --key --engine --variable " +
					"--expand-url -Q --quote -t --telnet-option --url --next -: -Z --parallel",
					"reads other options, keys or commands"},
			},
		},
		{
			Name: "openssl", Stops: "commands that create keys, write files or connect elsewhere", Operands: checked,
			Ordered: true, check: checkOpenSSL, Hint: opensslHint,
		},
	}
}

var ipActs = []Act{
	{"-batch", "reads commands from a file"}, {"-netns", "enters a namespace"},
	{"-all", "repeats a verb in every namespace"},
	{"-force", "ignores errors of a batch"}, {"-rcvbuf -loops", "changes how ip works"},
}

// checkNstat requires -s, since nstat writes its history file without it.
func checkNstat(c *call) *refusal {
	if !c.hasOption("s", "noupdate") {
		return newRefusal("Write nstat -as", "nstat without -s writes its history file")
	}
	return nil
}
