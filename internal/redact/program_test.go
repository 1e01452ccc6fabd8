package redact

import "testing"

// TestPrograms checks secrets in source code with a type, a call or a prefix between the name and the value.
func TestPrograms(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"typescript":  {`private password: string = "saffron73309";`, `private password: string = "<PASSWORD>";`},
		"rust":        {`const DB_PASSWORD: &str = "6w8c0n1s6d1oo9"; x: &'static str`, `const DB_PASSWORD: &str = "<PASSWORD>"; x: &'static str`},
		"lifetime":    {`static PASSWORD: &'static str = "6w8c0n1s6d1oo9";`, `static PASSWORD: &'static str = "<PASSWORD>";`},
		"c":           {`static char db_passwd[] = "r5x27qv6cdk7";`, `static char db_passwd[] = "<PASSWORD>";`},
		"preprocess":  {`#define DB_PASSWORD "ember-pepper-21"`, `#define DB_PASSWORD "<PASSWORD>"`},
		"c++":         {`std::string password{"INDharbor@2010"};`, `std::string password{"<PASSWORD>"};`},
		"setter":      {`ds.setPassword("BwNIza3ZI.U7"); ds.setUser("a")`, `ds.setPassword("<PASSWORD>"); ds.setUser("a")`},
		"put":         {`props.put("password", "uDKRc4PHCaTe^m1W4Jn")`, `props.put("password", "<PASSWORD>")`},
		"returned":    {`func getBetterToken() string{ return "ntJD0ER8QpuT0O1WqsclApO2" }`, `func getBetterToken() string{ return "<TOKEN>" }`},
		"verbatim":    {`string SqlPassword = @"ZBxzi5rU+Ycp.HqE"; p = b"x"`, `string SqlPassword = @"<PASSWORD>"; p = b"x"`},
		"bytes":       {`password = b'k3ttle-ember'`, `password = b'<PASSWORD>'`},
		"secure":      {`$P = ConvertTo-SecureString "88OAZEX3a2UERzTH" -Force`, `$P = ConvertTo-SecureString "<PASSWORD>" -Force`},
		"sql":         {`CREATE USER app IDENTIFIED BY 'amber6072'; ALTER ROLE a PASSWORD 'kettle-18';`, `CREATE USER app IDENTIFIED BY '<PASSWORD>'; ALTER ROLE a PASSWORD '<PASSWORD>';`},
		"setting":     {`<Setting Name="AdminPassword">zephyr86</Setting>`, `<Setting Name="AdminPassword"><PASSWORD></Setting>`},
		"anchor":      {"redis_password: &pw zephyr-indigo-75\n", "redis_password: &pw <PASSWORD>\n"},
		"arrow":       {"password -> saffron2007", "password -> <PASSWORD>"},
		"aws pair":    {`new Keys("AKIARDT5PGJ14ZBF9OZ3", "lxH9Ep7vZe0v2wFFUOxgByCLllPlZXztBQjICQEN")`, `new Keys("<CLOUD_KEY>", "<CLOUD_KEY>")`},
		"mnemonic":    {`MNEMONIC="zephyr jasmine ember river dragon saffron amber umber meadow lantern pepper yonder"`, `MNEMONIC="<TOKEN>"`},
		"seed phrase": {"seed phrase: quartz timber orchid meadow pepper jasmine river harbor granite velvet umber willow\n", "seed phrase: <TOKEN>\n"},
		"other words": {"Kennwort: ember2210 senha=abc12345", "Kennwort: <PASSWORD> senha=<PASSWORD>"},
	} {
		if got := plain(t, ruled(t).NewTable(), c.in); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// TestCommands checks secrets in command options and in other lines of a shell history.
func TestCommands(t *testing.T) {
	for in, want := range map[string]string{
		"redis-cli -h c1 -a pepper30772 ping":                       "redis-cli -h c1 -a <PASSWORD> ping",
		"ls -a pepper30772":                                         "ls -a pepper30772",
		"ldapsearch -x -D cn=admin -w 'umber228' -b dc=x":           "ldapsearch -x -D cn=admin -w '<PASSWORD>' -b dc=x",
		"sqlcmd -S db1 -U sa -P hkQ17syQQypY -Q 'select 1'":         "sqlcmd -S db1 -U sa -P <PASSWORD> -Q 'select 1'",
		"7z x -pfalcon-orchid-45 a.7z":                              "7z x -p<PASSWORD> a.7z",
		"smbclient //nas/share -U user%TIMember2012":                "smbclient //nas/share -U user%<PASSWORD>",
		"mongosh --username admin --password granite-velvet-26":     "mongosh --username admin --password <PASSWORD>",
		"keytool -list -storepass uFeEqpc5ye1f6SSG":                 "keytool -list -storepass <PASSWORD>",
		"setenv ORACLE_PASSWORD Granite-4514":                       "setenv ORACLE_PASSWORD <PASSWORD>",
		"wandb login 3ac11f82f2a75c7f9c654a2646e6603ca871a1a5":      "wandb login <TOKEN>",
		"please login 3ac11f82f2a75c7f9c654a2646e6603ca871a1a5":     "please login 3ac11f82f2a75c7f9c654a2646e6603ca871a1a5",
		"snmp-server community dragon8211 RO":                       "snmp-server community <PASSWORD> RO",
		"a community since 2011dragon":                              "a community since 2011dragon",
		"username admin password 7 2C1910E3C865C31119":              "username admin password 7 <PASSWORD>",
		"*:*:*:app:qpzmOGkxDTAUL6Tsk\n":                             "*:*:*:app:<PASSWORD>\n",
		"default login backup password orchid-indigo":               "default login backup password <PASSWORD>",
		"machine m\n  login root\n  password orchidgo\n":            "machine m\n  login root\n  password <PASSWORD>\n",
		"userPassword: {SSHA}RqtGDqWsajt5pHYYpyu4Vsv9etrbKbJF":      "userPassword: <PASSWORD_HASH>",
		"u=https%3A%2F%2Fx%3Fpassword%3DuYU4je%2EcWfu%26b%3D1 ":     "u=https%3A%2F%2Fx%3Fpassword%3D<PASSWORD>%26b%3D1 ",
		"jdbc:oracle:thin:scott/tiger12@//ora1:1521/XE x":           "<CONNECTION_STRING> x",
		"DSN=https://40b1155a5edb2332b6e6f251c4fba30b@o1.io/4":      "DSN=https://<TOKEN>@o1.io/4",
		"Authorization: GenieKey 8c72c877-bbf5-42cb-a255-0a93":      "Authorization: GenieKey <AUTH_HEADER>",
		"api.x/bot8940148931:AAzfNXMNr1Kn3QF37PrqG9puFYJlpAUtW0G/x": "api.x/bot<API_KEY>/x",
		"credentials: admin:P42HJu3v03tjug0MmN6s":                   "credentials: admin:<PASSWORD>",
		"set-cookie: __Host-session=8LR4tBsFoR6ZnEDF53jRqfy7RI":     "set-cookie: __Host-session=<TOKEN>",
	} {
		if got := plain(t, ruled(t).NewTable(), in); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

// TestNamesOfPrograms checks that program identifiers and other harmless values in the place of a secret stay.
func TestNamesOfPrograms(t *testing.T) {
	for _, s := range []string{
		`check("isLessThanZero64", isLessThanZero64, v)`, "accessKey: accessKeyV2,", `case "PKCS1_RSA_PKCS1V5":`, `"encryptionKey": "encryptionKey1024",`, "ClientAuth = NoClientCert",
		"const Signature = 0xfade0cc0", "NL80211_ATTR_SAE_PASSWORD = 0x115", "'Test2::Event::Pass' => '1.302103',", `private_key: "_RSAPrivateKey",`, "user_pass = '%s:%s' % (user, pw)",
		"my $pwd = $ftp->pwd;", "passwd->pw_name", "enum class FeatureSig : uint32_t {", "s/^passwd:\\s.*#/x/", "def f(self, password: bytes):", "pw_name:pw_passwd:pw_uid:pw_gid:pw_dir",
		"PASS: gas/i386/align-branch-1h", "FUNC:_ZNKSbIwSt11char_traitsIwESaIwEE8capacityEv@@GLIBCXX_3.4", "cache key: linux-go-4cb9d02648fc7dd68567d7f7fc3736d586ff7b711eecb3a75f4b847b16204250",
		"Culture=neutral, PublicKeyToken=b77a5c561934e089", "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-AbCdEf", `"password": "Passwort",`, "\\-\\-mysql\\-port",
		"curl --negotiate -u : https://example.com", "perldoc -u Some::Modulename", "ftp://[user][:word]@host", `token = "[A-Z2-7]{16}"`, "rsc.io/quote v1.5.2/go.mod h2:LzX7hefJvL54yjefDEDHNONDjII0t9xZLPXsUe+TKr0=",
		"caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCmRlciBJbmhhbHQgaGllcgotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==", "keyid:78:AF:C9:C5:02:4B:95:62:E0:0F:DD:1A:3D:0F:4D:7C:A6:B9:8D:55",
		"HANGUL KIYEOK APARENTHESIZED HANGUL", "git-apply -p2 rename/chmod1", "password: string, token: string", `options.password[0]`, "$_POST['password']",
	} {
		if got := plain(t, ruled(t).NewTable(), s); got != s {
			t.Errorf("%q becomes %q", s, got)
		}
	}
}

// TestIdentifier checks that program identifiers are distinguished from random text in the alphabets of tokens.
func TestIdentifier(t *testing.T) {
	for s, want := range map[string]bool{
		"newKeyFromSeed1024": true, "SOCKS5_NO_ACCEPTABLE_AUTH": true, "writeBigUInt64BE": true, "access_token_2": true, "getTokenV2": true,
		"lztej917o59y8x82f311v8d684eb2t6k": false, "5GGEHNGYKO47CX9FAMFG": false, "W4fZrpEAmoSctNxqLvmXFoXE": false, "hunter2": false, "Granite4514": false, "amber-falcon-19": false, "": false, "___": false,
	} {
		if got := isIdentifier([]byte(s)); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}
