package redact

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
)

// TestAttackEncodedSecrets checks that a secret is found by its name if the punctuation around it is encoded for HTML,
// a URL, JSON or JavaScript. The rest of the line must stay.
func TestAttackEncodedSecrets(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"html":           {`<div data-x="{&quot;user&quot;:&quot;app&quot;,&quot;password&quot;:&quot;hunter2 hunter&quot;}">`, `<div data-x="{&quot;user&quot;:&quot;app&quot;,&quot;password&quot;:&quot;<PASSWORD>&quot;}">`},
		"html, spaced":   {`&quot;apiToken&quot;: &quot;aB3dE5fG7hI9jK1l&quot;, `, `&quot;apiToken&quot;: &quot;<TOKEN>&quot;, `},
		"html, numbers":  {`&#34;password&#34;&#58;&#34;hunter2x&#34; &#x22;secret&#x22;:&#x22;aB3dE5fG7hI9&#x22;`, `&#34;password&#34;&#58;&#34;<PASSWORD>&#34; &#x22;secret&#x22;:&#x22;<TOKEN>&#x22;`},
		"html, single":   {`password=&#39;hunter2x&#39; password=&apos;hunter3x&apos;`, `password=<PASSWORD>; password=&apos;<PASSWORD>&apos;`},
		"element":        {`&lt;password&gt;hunter2x&lt;/password&gt;&lt;b&gt;x&lt;/b&gt;`, `&lt;password&gt;<PASSWORD>&lt;/password&gt;&lt;b&gt;x&lt;/b&gt;`},
		"url":            {"password%3Dhunter2x%26user%3Dapp and", "password%3D<PASSWORD>%26user%3Dapp and"},
		"url, lower":     {"GET /?q=api_key%3daB3dE5fG7hI9jK1l%26x%3d1 HTTP/1.1", "GET /?q=api_key%3d<TOKEN>%26x%3d1 HTTP/1.1"},
		"url, json":      {"body=%7B%22user%22%3A%22app%22%2C%22password%22%3A%22hunter2x%22%7D&n=1", "body=%7B%22user%22%3A%22app%22%2C%22password%22%3A%22<PASSWORD>%22%7D&n=1"},
		"url in a url":   {"next=postgres%3A%2F%2Fapp%3As3cretive%40db%3A5432%2Fapp&n=1", "next=postgres<CONNECTION_STRING>"},
		"json":           {`{"html":"\u003cpassword\u003ehunter2x\u003c/password\u003e","q":"password\u003dhunter3x\u0026user\u003dapp"}`, `{"html":"\u003cpassword\u003e<PASSWORD>\u003c/password\u003e","q":"password\u003d<PASSWORD>\u0026user\u003dapp"}`},
		"json in json":   {`"{\u0022password\u0022:\u0022hunter2x\u0022,\u0022n\u0022:1}"`, `"{\u0022password\u0022:\u0022<PASSWORD>\u0022,\u0022n\u0022:1}"`},
		"javascript":     {`JSON.parse('\x7b\x22password\x22:\x22hunter2x\x22\x7d')`, `JSON.parse('\x7b\x22password\x22:\x22<PASSWORD>\x22\x7d')`},
		"twice":          {`{&amp;quot;password&amp;quot;:&amp;quot;hunter2x&amp;quot;} password%253Dhunter3x%2526user%253Dapp`, `{&amp;quot;password&amp;quot;:&amp;quot;<PASSWORD>&amp;quot;} password%253D<PASSWORD>%2526user%253Dapp`},
		"mixed":          {`href="?q=%7B&quot;password&quot;%3A&quot;hunter2x&quot;"`, `href="?q=%7B&quot;password&quot;%3A&quot;<PASSWORD>&quot;"`},
		"within a value": {"https://h.example.com/?password=hunter%262%3Dx&n=1", "https://h.example.com/?password=<PASSWORD>&n=1"},
		"nothing":        {"100%25 &lt;b&gt; \\u003cli\\u003e %3d items, token%3A none, &quot;user&quot;:&quot;app&quot;", "100%25 &lt;b&gt; \\u003cli\\u003e %3d items, token%3A none, &quot;user&quot;:&quot;app&quot;"},
	} {
		if got := plain(t, ruled(t).NewTable(), c.in); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", name, got, c.want)
		}
		agree(t, ruled(t), c.in, []byte{2})
		agree(t, ruled(t), strings.Repeat("x", 300)+" "+c.in+"\n"+c.in, []byte{0})
	}
}

// TestAttackLongEncodedLine checks that a secret is found after any amount of text on the same line, even beyond the
// bound of the text that is held.
func TestAttackLongEncodedLine(t *testing.T) {
	const secret = "hunter2hunter2hunter2"
	for _, n := range []int{0, 100, maxEncoded - 40, maxEncoded - 20, maxEncoded - 10, maxEncoded, 3 * maxEncoded} {
		in := strings.Repeat("a%22b%22", n/8) + strings.Repeat("c", n%8) + "%2C%22password%22%3A%22" + secret + "%22%2C%22n%22%3A1"
		out, _ := ruled(t).NewTable().Text(in)
		if strings.Contains(out, secret[:8]) || strings.Contains(out, secret[8:]) || !strings.HasSuffix(out, "%22%2C%22n%22%3A1") {
			t.Errorf("after %d bytes: …%s", n, out[max(0, len(out)-120):])
		}
		agree(t, ruled(t), in, []byte{255, 7})
	}
}

// TestAttackYAMLBlock checks that the lines of a YAML block under the name of a secret are hidden, and no other lines.
func TestAttackYAMLBlock(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"literal":     {"db:\n  password: |\n    hunter2x\n  user: app\n", "db:\n  password: |\n    <PASSWORD>\n  user: app\n"},
		"folded":      {"password: >-\n  hunter2x\nuser: app\n", "password: >-\n  <PASSWORD>\nuser: app\n"},
		"indicators":  {"apiToken: |2+ # kept\n  aB3dE5fG7hI9jK1l\n\n  \nuser: app", "apiToken: |2+ # kept\n  <TOKEN>\n\n  \nuser: app"},
		"lines":       {"password: |-\r\n  hunter2x\r\n  hunter3y\r\nhost: db\r\n", "password: |-\r\n  <PASSWORD>\r\n  <PASSWORD>\r\nhost: db\r\n"},
		"quoted name": {"\"client_secret\": |\n  aB3dE5fG7hI9jK1l\nx: aB3dE5fG7hI9jK1l", "\"client_secret\": |\n  <TOKEN>\nx: aB3dE5fG7hI9jK1l"},
		"list":        {"- password: |\n    hunter2x\n- user: app\n", "- password: |\n    <PASSWORD>\n- user: app\n"},
		"diff":        {"+  password: |\n+    hunter2x\n+  user: hunter3x\n", "+  password: |\n+    <PASSWORD>\n+  user: hunter3x\n"},
		"removed":     {"-password: |\n-  hunter2x\n-user: app\n", "-password: |\n-  <PASSWORD>\n-user: app\n"},
		"end of text": {"password: |\n  hunter2x", "password: |\n  <PASSWORD>"},
		"inside":      {"secret: |\n  # of the test\n  [db]\n  password = hunter2x\n  host = db\n", "secret: |\n  # of the test\n  [db]\n  password = <PASSWORD>\n  host = db\n"},
		"empty":       {"password: |\nuser: hunter2x\n", "password: |\nuser: hunter2x\n"},
		"no block":    {"password: | hunter\nrun: |\n  echo hunter2x\n", "password: | hunter\nrun: |\n  echo hunter2x\n"},
		"placeholder": {"password: >-\n  {{ vault_password }}\n", "password: >-\n  {{ vault_password }}\n"},
	} {
		if got := plain(t, ruled(t).NewTable(), c.in); got != c.want {
			t.Errorf("%s\n got %q\nwant %q", name, got, c.want)
		}
		for n := range 4 {
			agree(t, ruled(t), c.in+c.in, []byte{byte(n)})
		}
	}
	long := strings.Repeat("aB3dE5fG7hI9jK1l", maxValue/16*2+5)
	if out, _ := ruled(t).NewTable().Text("password: |\n  " + long + "\nuser: app\n"); strings.Contains(out, "fG7hI9jK1l") || !strings.HasSuffix(out, "\nuser: app\n") {
		t.Errorf("a long line becomes %.300s", out)
	}
}

// TestAttackInnerKeyLines checks that lines of a private key are hidden even without its first and last line. Lines of
// a block that is not private must stay if its first line is there.
func TestAttackInnerKeyLines(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 1200)
	rand.Read(random)
	openssh := wrap(base64.StdEncoding.EncodeToString(random), 70) // the body of an encrypted key is random
	for name, lines := range map[string][]string{
		"rsa":     keyLines(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)),
		"ec":      keyLines(t, "PRIVATE KEY", pkcs8),
		"openssh": strings.Split(strings.TrimSpace(openssh), "\n"),
	} {
		for _, c := range []struct {
			how  string
			text []string
		}{
			{"without its first lines", lines[1:]},
			{"its inner lines", lines[1 : len(lines)-1]},
			{"two lines", lines[1:min(3, len(lines))]},
		} {
			if len(c.text) < 2 || len(c.text[0]) != len(c.text[1]) && len(c.text) == 2 && c.how != "without its first lines" {
				continue
			}
			for _, prefix := range []string{"", "    ", "+"} {
				in := "$ sed -n 3,20p key\n"
				for _, l := range c.text {
					in += prefix + l + "\n"
				}
				in += "$ "
				out, _ := ruled(t).NewTable().Text(in)
				for _, l := range c.text {
					if strings.Contains(out, l) {
						t.Errorf("%s, %s, after %q: %s stays", name, c.how, prefix, l)
					}
				}
				if !strings.HasPrefix(out, "$ sed -n 3,20p key\n") || !strings.HasSuffix(out, "\n$ ") {
					t.Errorf("%s, %s: %q", name, c.how, out)
				}
				agree(t, ruled(t), in, []byte{9})
			}
		}
	}
	public, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for label, der := range map[string][]byte{"PUBLIC KEY": public, "CERTIFICATE": random, "PGP SIGNATURE": random, "CERTIFICATE REQUEST": random} {
		in := string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
		if out, n := ruled(t).NewTable().Text(in); n > 0 {
			t.Errorf("%s becomes %s", label, out)
		}
	}
}

func keyLines(t *testing.T, label string, der []byte) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))), "\n")
	return lines[1 : len(lines)-1]
}

// TestAttackBareSessionToken checks that an AWS session token is found without a name, in the forms that STS has
// issued.
func TestAttackBareSessionToken(t *testing.T) {
	random := make([]byte, 300)
	rand.Read(random)
	for _, begin := range []string{"\x15\n\x06er/aws\x10", "\x17\n\x06er/aws\x10", "\x17\n\x03aws\x10", "\x15\n\x03aws\x10", "!\n\torigin_ec", "\x02\n\torigin_ec"} {
		token := base64.StdEncoding.EncodeToString(append([]byte(begin), random...))
		for _, in := range []string{token, "got " + token + "\n", `"` + token + `",`, fmt.Sprintf("x\t%s\ty", token)} {
			if got, want := plain(t, ruled(t).NewTable(), in), strings.Replace(in, token, "<CLOUD_KEY>", 1); got != want {
				t.Errorf("%q\n got %s\nwant %s", begin, got, want)
			}
		}
	}
}
