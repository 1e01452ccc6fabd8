package sigv4

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// account is that of AWS's published examples.
var account = Credentials{ID: "AKIDEXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}

var day = time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)

func signatureOf(t *testing.T, s Signer, method, address, body string, header ...string) string {
	t.Helper()
	req, err := http.NewRequest(method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	s.Sign(req, []byte(body), day)
	_, signature, ok := strings.Cut(req.Header.Get("Authorization"), "Signature=")
	if !ok {
		t.Fatalf("unsigned: %v", req.Header)
	}
	return signature
}

// TestPublishedVectors checks signatures of AWS's published test suite.
func TestPublishedVectors(t *testing.T) {
	s := Signer{account, "us-east-1", "service"}
	for name, c := range map[string]struct{ got, want string }{
		"get-vanilla": {signatureOf(t, s, "GET", "https://example.amazonaws.com/", ""),
			"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"post-vanilla": {signatureOf(t, s, "POST", "https://example.amazonaws.com/", ""),
			"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"post-x-www-form-urlencoded": {signatureOf(t, s, "POST", "https://example.amazonaws.com/", "Param1=value1",
			"Content-Type", "application/x-www-form-urlencoded"),
			"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}

// botocore prints the signature of a request at the time of the published examples.
const botocore = `
import sys, datetime, awscli.botocore.auth as auth, awscli.botocore.awsrequest as awsrequest
from awscli.botocore.credentials import Credentials
class Fixed(datetime.datetime):
    @classmethod
    def utcnow(cls): return cls(2015, 8, 30, 12, 36, 0)
auth.datetime.datetime = Fixed
method, address, body, session, ident, secret = sys.argv[1:]
r = awsrequest.AWSRequest(method=method, url=address, data=body.encode(),
	headers={"Content-Type": "application/x-www-form-urlencoded"})
auth.SigV4Auth(Credentials(ident, secret, session or None), "sts", "eu-central-1").add_auth(r)
print(r.headers["Authorization"].split("Signature=")[1])
`

// TestLikeBotocore compares signatures with those of the library of the aws command.
func TestLikeBotocore(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c",
		"import awscli.botocore.auth").CombinedOutput(); err != nil {
		ktest.Missing(t, "botocore", fmt.Errorf("%w: %s", err, out))
	}
	for _, c := range []struct{ method, address, body, session string }{
		{"GET", "https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15", "", ""},
		{"POST", "https://sts.amazonaws.com/", "Action=AssumeRole&Policy=%7B%7D", "FwoGZXIvYXdzEJr="},
		{"GET", "https://lambda.eu-west-1.amazonaws.com/2015-03-31/functions/a%3Ab/x%20y", "", "s"},
		{"GET", "https://ec2.eu-west-1.amazonaws.com/?b=2&a=~_-.&a=%2F", "", ""},
	} {
		creds := account
		creds.Session = c.session
		got := signatureOf(t, Signer{creds, "eu-central-1", "sts"}, c.method, c.address, c.body, "Content-Type",
			"application/x-www-form-urlencoded")
		out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", botocore, c.method, c.address, c.body,
			c.session, account.ID, account.Secret).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if want := strings.TrimSpace(string(out)); got != want {
			t.Errorf("%s %s: %s, botocore %s", c.method, c.address, got, want)
		}
	}
}
