package redact

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// plain returns in with each find replaced by its category, without the number. It checks that the redacted text can be
// restored.
func plain(t *testing.T, table *Table, in string) string {
	t.Helper()
	out, found := table.Find(in)
	if back := table.Restore(out); back != in {
		t.Errorf("%q comes back as %q", in, back)
	}
	for i := len(found) - 1; i >= 0; i-- {
		f := found[i]
		in = in[:f.Start] + "<" + f.Category + ">" + in[f.End:]
	}
	return in
}

// TestFormats checks that in common files and messages the secrets are hidden, and no other text.
func TestFormats(t *testing.T) {
	const b64 = "WTkwY0VsVDBIMVpXU0I="
	for name, c := range map[string]struct{ in, want string }{
		"env":         {"DB_USER=app\nDB_PASSWORD=s3cret&more\nexport API_KEY='aB3dE5fG7hI9jK1l'\n", "DB_USER=app\nDB_PASSWORD=<PASSWORD>\nexport API_KEY='<TOKEN>'\n"},
		"yaml":        {"db:\n  user: app\n  password: \"p^ss w0rd\"\n  passwd: hunter2x\n", "db:\n  user: app\n  password: \"<PASSWORD>\"\n  passwd: <PASSWORD>\n"},
		"json":        {`{"user":"app","password":"x^1","token":"0123456789abcdef","n":1}`, `{"user":"app","password":"x^1","token":"<TOKEN>","n":1}`},
		"json string": {`{"body":"{\"password\":\"hunter2hunter\",\"a\":1}"}`, `{"body":"{\"password\":\"<PASSWORD>\",\"a\":1}"}`},
		"ini":         {"[db]\npassword = hunter2x\nhost = db\n", "[db]\npassword = <PASSWORD>\nhost = db\n"},
		"xml":         {"<password>hunter2x</password><apiToken>\n  aB3dE5fG7hI9jK1l\n</apiToken><b>x</b>", "<password><PASSWORD></password><apiToken>\n  <TOKEN>\n</apiToken><b>x</b>"},
		"attributes":  {`<add key="Password" value="hunter2hunter" />`, `<add key="Password" value="<PASSWORD>" />`},
		"kubernetes":  {"- name: DB_PASSWORD\n  value: hunter2hunter\n- name: DB_HOST\n  value: db\n", "- name: DB_PASSWORD\n  value: <PASSWORD>\n- name: DB_HOST\n  value: db\n"},
		"secret":      {"kind: Secret\ndata:\n  password: " + b64 + "\n", "kind: Secret\ndata:\n  password: <PASSWORD>\n"},
		"docker":      {`{"auths":{"r.example.com":{"auth":"Y2k6SnZWT0tYYTFsdnBHbzMwTUpOZXI="}}}`, `{"auths":{"r.example.com":{"auth":"<TOKEN>"}}}`},
		"aws":         {"[default]\naws_access_key_id = AKIAVL2TLOTAQPELSNDQ\naws_secret_access_key = YWzYCKrK0GIEydvdYazjpEcjxYfHDaMMxy/CiwVQ\n", "[default]\naws_access_key_id = <CLOUD_KEY>\naws_secret_access_key = <TOKEN>\n"},
		"gcloud":      {`{"client_id":"1.apps.googleusercontent.com","client_secret":"GOCSPX-example","refresh_token":"1//refresh","type":"authorized_user"} after`, "<CREDENTIALS> after"},
		"azure":       {"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=hlWV/cBOc1oRMv5lBj327O73nHVPMZIugKxzClHEe3jQrU9pXTlB481Udq+6AVnvbWymg+2aGdyNCWCTzuwss8==;EndpointSuffix=x", "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=<TOKEN>;EndpointSuffix=x"},
		"service bus": {"c Endpoint=sb://o.servicebus.windows.net/;SharedAccessKeyName=R;SharedAccessKey=zDzrv0mqcAvTQm73okrVIiGXPnEF= x", "c <CONNECTION_STRING> x"},
		"signs":       {"A_PASSWORD=a,b;c)d&e\\f1\ng(password=hunter2x) {password: h,unter2, u: 1}", "A_PASSWORD=<PASSWORD>\ng(password=<PASSWORD>) {password: <PASSWORD>, u: 1}"},
		"in a string": {`"PASSWORD=hunter2x\nUSER=a"`, `"PASSWORD=<PASSWORD>\nUSER=a"`},
		"flags":       {"app --user svc --password=7ieS7wSUuUYagr --token aB3dE5fG7hI9jK1l --port 80", "app --user svc --password=<PASSWORD> --token <TOKEN> --port 80"},
		"curl":        {"curl -u admin:su8kjIZEIIVWHw -H 'X-Api-Key: aB3dE5fG7hI9jK1l' https://x", "curl -u admin:<PASSWORD> -H 'X-Api-Key: <TOKEN>' https://x"},
		"mysql":       {"mysqldump -uroot -pCTlo5cfv8uLmzF db; mkdir -p a/b1", "mysqldump -uroot -p<PASSWORD> db; mkdir -p a/b1"},
		"netrc":       {"machine a.example.com login bot password vPzcFuBzt", "machine a.example.com login bot password <PASSWORD>"},
		"pgpass":      {"db:5432:*:rep:a:b\\:c\n", "db:5432:*:rep:<PASSWORD>\n"},
		"shadow":      {"root:$6$9woI66AXr8IQXmD8$PSaddlMrXwHwC7j20pm32a6fxaMaRPrF48vvQ5nJlXMqnO:19722:0:::", "root:<PASSWORD_HASH>:19722:0:::"},
		"hashes":      {"$2y$10$ndyJhfwKLhdAxKtYP/qQPkZvqoo3h3I743ZhI5VlpWBa0HyKyaA4q $argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$RdescudvJCsgt3ub+b1dWRWJTmaaJObG", "<PASSWORD_HASH> <PASSWORD_HASH>"},
		"headers":     {"> Authorization: Bearer NcqO3kzHRWEvmy6qrkLQ\n> authorization: basic YWRtaW46dGg0Q2R3UVU=\n> Cookie: sessionid=8RlEx6MRO0mGFK8E; theme=dark\n", "> Authorization: Bearer <AUTH_HEADER>\n> authorization: basic <AUTH_HEADER>\n> Cookie: sessionid=<TOKEN>; theme=dark\n"},
		"jwt":         {"got eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJibEp6MGpTdzJaIn0.8u3-ILzFNclK0ZRUsBIwVO.", "got <JWT>"},
		"urls":        {"postgres://app:s3cret@db:5432/app?x=1 https://u:s3cret@h.example.com/p?q=1 redis://:s3cret@h/0 https://h/p?a=b", "<CONNECTION_STRING> <CONNECTION_STRING>/p?q=1 <CONNECTION_STRING> https://h/p?a=b"},
		"jdbc":        {"jdbc:mysql://u:s3cret@h:3306/d jdbc:mysql://h/d?user=a&password=qm6O1aDI&x=y", "<CONNECTION_STRING> jdbc:mysql://h/d?user=a&password=<PASSWORD>&x=y"},
		"dsn":         {`dsn="app:KVkLFW8D@tcp(db:3306)/app"`, `dsn="app:<PASSWORD>@tcp(db:3306)/app"`},
		"libpq":       {"host=db port=5432 user=app password=XtiN4wwW", "host=db port=5432 user=app password=<PASSWORD>"},
		"mssql":       {"Server=db,1433;User ID=sa;Password=vyXs4l7Z;Encrypt=true;", "Server=db,1433;User ID=sa;Password=<PASSWORD>;Encrypt=true;"},
		"directives":  {"bindpw sGqT2kO6hj\nrocommunity HPlryymn8S 10.0.0.0/8\n", "bindpw <PASSWORD>\nrocommunity <PASSWORD> <IPV4>/8\n"},
		"webhook":     {"curl https://hooks.slack.com/services/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 now", "curl <WEBHOOK> now"},
		"tenant":      {"https://acme.my.salesforce.com/x", "<HOST>/x"},
		"addresses":   {"from 10.1.2.3 to [2001:db8::1]:80, ::ffff:10.9.8.7, fe80::1%eth0.", "from <IPV4> to [<IPV6>]:80, <IPV6>, <IPV6>%eth0."},
		"github":      {"git clone https://ghp_Q1EgPb2uHP7WHLHnGf3OIyTDXtuUcA2qFkA1@github.com/o/r", "git clone https://<API_KEY>@github.com/o/r"},
		"headless":    {"$ tail -n +2 id\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\nQyNTUxOQAAACBSSxB3d5SkYJMvzMxM/J1pnQVXjf/wHKFbQaVwWVBKrAAAAIjAdoF7wHaB\newAA==\n$", "$ tail -n +2 id\n<PRIVATE_KEY>\n$"},
	} {
		if got := plain(t, ruled(t).NewTable(), c.in); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// TestLeftAlone checks that text that only resembles a secret stays.
func TestLeftAlone(t *testing.T) {
	for _, s := range []string{
		"password: ******", "password=$DB_PASSWORD", "token: <token>", "api_key = os.environ[\"API_KEY\"]", "password = getpass.getpass()", "secret: ${SECRET}", `"password": ""`,
		"Authorization: Bearer $TOKEN", "-u ${user}:${pass}", "the password is wrong", "failed password for invalid user", "token expired at 2026-01-01", "max_tokens=4096", "public_key = \"9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit\"",
		"commit 6d919b496520b69900d8fe52aeccd22a9e8e0a3c", "sha256:4c33434421e7128832030190f55c0c780e90b37c1c1a0e64b1d35d84c5bafaea", "\"integrity\": \"sha512-BAg6QkE8W+TuQLrrw0Ugr7HegXduRuuj8/ti2kSOc+jz1dmx8==\"",
		"pushes 4b1d8826ae0059d350bc29e94cafabad202e17ab:refs/heads/main", "img@sha256:4b1dcbd05e7e7b26bfb965c439eb64a925fa6dbba75c522781c433a723da69d9", ".git/objects/b4/4b1ddcc9aae1bd944b0b12c94de19e1dc92b45",
		"SHA1: ACCA961E239A3D7172E743924C923B204EB243A1", "EAAA9F9119B1D96FF5C050FBD03EFF515B8CA477", "a.b/c v1.2.3 h1:AP5yVajFEMMMWix84MULr142WCj994GJ6VXHLLraaB0=",
		"version 1.2.3.4", "Chrome/120.0.0.0", "v2.14.5.1", "127.0.0.1:80 and ::1", "12:01:02 and 00:11:22:33:44:55", "4C:64:52:3B:36:3D:CD:30:98:A1:8C:5B:54:03:06:4A:90:0D:67:92", "std::path::Path a::b", "1.3.6.1.2.1",
		"https://example.com/path?x=1", "postgres://localhost/app", "redis://cache:6379", "user:$6$", "daemon:*:19000::::::", "key: value", "monkey=banana12345678", "sshd:auth", "{\"type\":\"service_account\"}", "postgres://u:${PASS}@h/d",
	} {
		if got := plain(t, ruled(t).NewTable(), s); got != s {
			t.Errorf("%q becomes %q", s, got)
		}
	}
}

// TestLayers checks that a secret under up to three layers of base64 is found, in either alphabet, on one line or
// wrapped.
func TestLayers(t *testing.T) {
	text := "DB_HOST=db\nDB_PASSWORD=hunter2hunter2\nNAME=some ordinary text that makes it longer than one line of base64 can be\n"
	for layers := 1; layers <= 4; layers++ {
		text = base64.StdEncoding.EncodeToString([]byte(text))
		for name, in := range map[string]string{"line": "x: " + text + "\n", "wrapped": "x:\n" + wrap(text, 76) + "\n", "url": "x: " + strings.NewReplacer("+", "-", "/", "_").Replace(text) + "\n"} {
			got := plain(t, ruled(t).NewTable(), in)
			if found := strings.Contains(got, "<PASSWORD>") && len(got) < 20; found != (layers <= maxDepth) {
				t.Errorf("%d layers, %s: %.120s", layers, name, got)
			}
		}
	}
}

func wrap(s string, n int) string {
	var b strings.Builder
	for len(s) > n {
		b.WriteString(s[:n] + "\n")
		s = s[n:]
	}
	return b.String() + s
}

// TestDressed checks that colours within a secret, UTF-16 of either byte order and carriage returns do not hide a
// secret from the finder.
func TestDressed(t *testing.T) {
	in := "password=hunter2hunter2 from 10.1.2.3 ghp_Q1EgPb2uHP7WHLHnGf3OIyTDXtuUcA2qFkA1\n"
	for name, s := range map[string]string{"colour": colour(in), "little": wide(in, 0), "big": wide(in, 1), "crlf": strings.ReplaceAll(in, "\n", "\r\n")} {
		table := ruled(t).NewTable()
		out, found := table.Find(s)
		if len(found) != 3 || found[0].Category != Password || found[1].Category != IPv4 || found[2].Category != APIKey {
			t.Errorf("%s: %v in %q", name, found, out)
		}
		if strings.Contains(stripInvisible(out), "hunter2") || strings.Contains(stripInvisible(out), "Q1EgPb") || table.Restore(out) != s {
			t.Errorf("%s: %q", name, out)
		}
	}
	table := ruled(t).NewTable()
	table.Learn("K", "le\x00arned-\x1b[1mvalue")
	if got := plain(t, table, "a learned-value, a l\x1b[4mearned\x00-value"); got != "a <K>, a <K>" {
		t.Errorf("learned: %q", got)
	}
}

// TestLongValues checks that a value that is longer than its bound is hidden to its end, in several finds.
func TestLongValues(t *testing.T) {
	random := strings.Repeat("aB3dE5fG7hI9jK1l", 3*maxWord/16)
	for name, in := range map[string]string{
		"value": "token=" + random, "quoted": `"token": "` + random, "prefix": "ghp_" + random, "url": "postgres://u:p1@h/" + random, "hash": "$6$ab$" + random,
		"jwt": "eyJhbGciOiJIUzI1NiJ9." + random, "base64": base64.StdEncoding.EncodeToString([]byte("password=hunter2hunter2 " + strings.Repeat("and so on ", maxWord/5))),
	} {
		got := plain(t, ruled(t).NewTable(), in+"\nafter it")
		if strings.Contains(got, "hI9j") || len(got) > 2000 || !strings.HasSuffix(got, "\nafter it") {
			t.Errorf("%s: %d bytes: %.200s", name, len(got), got)
		}
	}
}

// TestFindings checks that offsets count bytes of the input, including bytes that the finder skips.
func TestFindings(t *testing.T) {
	in := strings.Repeat("é ordinary \x1b[1mtext\n", 9000) + "password=hun\x1b[0mter2hunter2 from 10.1.2.3\n"
	_, found := ruled(t).NewTable().Find(in)
	if len(found) != 2 || in[found[0].Start:found[0].End] != "hun\x1b[0mter2hunter2" || in[found[1].Start:found[1].End] != "10.1.2.3" {
		t.Errorf("%v", found)
	}
	var told []Finding
	w := ruled(t).NewTable().Writer(discard{})
	w.Tell(func(f Finding) { told = append(told, f) })
	for rest := in; rest != ""; rest = rest[min(len(rest), 777):] {
		w.Write([]byte(rest[:min(len(rest), 777)]))
	}
	if w.Close(); !slices.Equal(told, found) {
		t.Errorf("a stream tells %v, all at once %v", told, found)
	}
	line, _ := json.Marshal(found[:1])
	if !strings.HasPrefix(string(line), `[{"category":"PASSWORD","start":`) {
		t.Errorf("%s", line)
	}
}
