package redact

import (
	"strings"
	"testing"
)

// TestPlaceSaysSecret hides values whose place or prefix says what they are, whether they look random or not.
func TestPlaceSaysSecret(t *testing.T) {
	for text, secret := range map[string]string{
		"Authorization: Bearer hunter2\n":                   "hunter2",
		"curl -H 'Authorization: Bearer letmein' https://x": "letmein",
		"Authorization: Bearer aaaaaaaaaaaa\n":              "aaaaaaaaaaaa",
		"mysql -pSECRET -u root\n":                          "SECRET",
		"mysqldump -uroot -pletmein db\n":                   "letmein",
		"sshpass -phunter ssh host\n":                       "hunter",
		"sk-aaaaaaaaaaaaaaaa\n":                             "aaaaaaaaaaaaaaaa",
		"the key is sk-test1234abcd.\n":                     "test1234abcd",
		"key-aaaaaaaaaaaaaaa\n":                             "aaaaaaaaaaaaaaa",
		"key-1234567890ab\n":                                "1234567890ab",
	} {
		if got := plain(t, ruled(t).NewTable(), text); strings.Contains(got, secret) {
			t.Errorf("%q stays %q", text, got)
		}
	}
	for _, text := range []string{"mysql -p -u root\n", "mkdir -p a/b; ls\n", "mysql -p$PASS\n", "mysql -p<password>\n",
		"Authorization: Bearer <token>\n", "Authorization: Bearer $TOKEN\n", "a bearer of news\n", "sk-toggleable__content\n",
		"key-value store, key-management\n", "ask-12345678\n", "pip install sk-learn\n", "WWW-Authenticate: Basic realm\n"} {
		if got := plain(t, ruled(t).NewTable(), text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
