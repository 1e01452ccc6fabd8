package sigv4

import (
	"slices"
	"strings"
	"testing"
)

// TestParseFile checks which profiles a file has, and that settings which name a program are dropped.
func TestParseFile(t *testing.T) {
	text := "aws_access_key_id=A0\naws_secret_access_key=S0\n[default]\r\naws_access_key_id = A1\r\n aws_secret_access_key = S1=+/\r\naws_session_token=T1\n" +
		"region = eu-west-1\ncredential_process = /bin/touch x\n[profile dev]\naws_access_key_id=A2\naws_secret_access_key=S2\n[half]\naws_access_key_id=A3\n"
	got, err := ParseFile(text)
	want := []Profile{{"default", "", Credentials{"A0", "S0", ""}}, {"default", "eu-west-1", Credentials{"A1", "S1=+/", "T1"}}, {"dev", "", Credentials{"A2", "S2", ""}}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "[default]\n", "[default]\naws_access_key_id=A\n", "[a b]\naws_access_key_id=A\naws_secret_access_key=S\n",
		"[default]\naws_access_key_id=A\naws_secret_access_key=S\x00\n", "[default]\naws_access_key_id=A]\naws_secret_access_key=S\n"} {
		if got, err := ParseFile(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// FuzzParseFile checks that a profile that was read is written so that it is read again, with nothing added.
func FuzzParseFile(f *testing.F) {
	f.Add("[default]\naws_access_key_id = A\naws_secret_access_key = S\naws_session_token = T\nregion = r\ncredential_process = x\n")
	f.Add("aws_access_key_id=A\naws_secret_access_key=S")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseFile(text)
		if err != nil {
			return
		}
		for _, p := range list {
			again, err := ParseFile(p.String())
			if err != nil || len(again) != 1 || again[0] != p || strings.Count(p.String(), "\n") > 5 {
				t.Errorf("%q: %+v, %v", p.String(), again, err)
			}
		}
	})
}

// FuzzParseAuthorization checks that no header makes a signature with an id or a scope of more than one word.
func FuzzParseAuthorization(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=AKID/20150830/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=00")
	f.Add("AWS4-HMAC-SHA256 Credential=/////,SignedHeaders=")
	f.Fuzz(func(t *testing.T, header string) {
		r, ok := ParseAuthorization(header)
		if ok && (strings.ContainsAny(r.ID+r.Region+r.Service+r.Day, "/,") || r.ID == "" || len(r.Headers) == 0) {
			t.Errorf("%q: %+v", header, r)
		}
	})
}
