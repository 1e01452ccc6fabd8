package redact

import "testing"

// TestKind checks that if a value is found by its name but has the form of a known key, it gets the category of that
// key. A rule that releases passwords must not release it. Other values get the category of the name.
func TestKind(t *testing.T) {
	const key, jwt = "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJibEp6MGpTdzJaIn0.8u3ILzFNclK0ZRUsBIwVOabc"
	rules := ruled(t)
	for in, want := range map[string]string{
		"password=" + key:                                  "password=<API_KEY>",
		"password: \"" + key + "\"":                        "password: \"<API_KEY>\"",
		"token: " + jwt:                                    "token: <JWT>",
		"<password>AKIAVL2TLOTAQPELSNDQ</password>":        "<password><CLOUD_KEY></password>",
		"PASS_PASSWORD=x" + key:                            "PASS_PASSWORD=<PASSWORD>",
		"password=10.20.30.40a":                            "password=<PASSWORD>",
		"passwd='10.20.30.41'":                             "passwd='<IPV4>'",
		"curl https://" + key + ".okta.com/x":              "curl <API_KEY>/x",
		"curl https://acme.okta.com/x":                     "curl <HOST>/x",
		"password=hunter2x":                                "password=<PASSWORD>",
		"aws_secret = 4eC39HqLyjWDarjtT1zdp7dcQq0":         "aws_secret = <TOKEN>",
		"app --password=" + key + " --password hunter2xyz": "app --password=<API_KEY> --password <PASSWORD>",
	} {
		if got := plain(t, rules.NewTable(), in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	v, n := rules.NewTable().JSON(map[string]any{"password": key})
	if got := v.(map[string]any)["password"]; got != "[REDACTED_API_KEY_1]" || n != 1 {
		t.Errorf("a member becomes %q, %d", got, n)
	}
}
