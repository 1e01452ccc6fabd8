package redact

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
)

func pemOf(t testing.TB, label string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

func keys(t testing.TB) map[string]string {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, ecErr := x509.MarshalECPrivateKey(e)
	p8, p8Err := x509.MarshalPKCS8PrivateKey(ed)
	der := x509.MarshalPKCS1PrivateKey(r)
	return map[string]string{
		"rsa":       pemOf(t, "RSA PRIVATE KEY", der, nil),
		"ec":        pemOf(t, "EC PRIVATE KEY", ec, ecErr),
		"pkcs8":     pemOf(t, "PRIVATE KEY", p8, p8Err),
		"encrypted": pemOf(t, "ENCRYPTED PRIVATE KEY", der, nil),
		"openssh":   pemOf(t, "OPENSSH PRIVATE KEY", der, nil),
		"headers": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der, Headers: map[string]string{
			"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,0123456789ABCDEF0123456789ABCDEF"}})),
		"pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\nComment: https://example.org/ my key\n\n" +
			rep("lQOYBF3a/+Zz"+rep("Ab9/", 13)+"\n", 9) + "mQ==\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----\n",
	}
}

// TestBlockWhole checks that each kind of key, in each form, becomes one token and that the text around it stays.
func TestBlockWhole(t *testing.T) {
	dress := map[string]func(string) string{
		"plain":     func(s string) string { return s },
		"crlf":      func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"cr":        func(s string) string { return strings.ReplaceAll(s, "\n", "\r") },
		"escaped":   func(s string) string { return strings.ReplaceAll(s, "\n", `\n`) },
		"twice":     func(s string) string { return strings.ReplaceAll(s, "\n", `\\n`) },
		"crlf esc":  func(s string) string { return strings.ReplaceAll(s, "\n", `\r\n`) },
		"spaces":    func(s string) string { return strings.ReplaceAll(s, "\n", " ") },
		"glued":     func(s string) string { return strings.ReplaceAll(s, "\n", "") },
		"percent":   func(s string) string { return strings.NewReplacer("\n", "%0A", " ", "%20").Replace(s) },
		"indented":  func(s string) string { return strings.ReplaceAll(s, "\n", "\n      ") },
		"quoted":    func(s string) string { return strings.ReplaceAll(s, "\n", "\n> ") },
		"diff":      func(s string) string { return strings.ReplaceAll(s, "\n", "\n-") },
		"numbered":  func(s string) string { return strings.ReplaceAll(s, "\n", "\n   12\t") },
		"source":    func(s string) string { return strings.ReplaceAll(s, "\n", "\\n\" +\n\t\"") },
		"log lines": func(s string) string { return strings.ReplaceAll(s, "\n", "\nNov 12 10:00:00 host app[77]: ") },
	}
	for kind, key := range keys(t) {
		key = strings.TrimSuffix(key, "\n")
		for name, wear := range dress {
			table := NewTable()
			in := wear("before\n" + key + "\nafter")
			lead, tail := wear("before\n"), wear("\nafter")
			check(t, table, in, lead+"[REDACTED_PRIVATE_KEY_1]"+tail)
			if t.Failed() {
				t.Fatalf("%s, %s", kind, name)
			}
		}
	}
}

// TestBlockTruncated checks that if a key is cut at any place, no part of its body stays, and the text after it does.
func TestBlockTruncated(t *testing.T) {
	for kind, key := range keys(t) {
		header := strings.Index(key, "-----\n") + 6
		for cut := header + freshRun; cut < len(key); cut += 7 {
			for _, tail := range []string{"", "\n", "\n\nNext line: hello, world\n", `","next":"value"}`, "...", `\n"`} {
				table := NewTable()
				in := key[:cut] + tail
				got, n := table.Text(in)
				if back := table.Restore(got); back != in {
					t.Fatalf("%s cut at %d: comes back as %q", kind, cut, back)
				}
				if kind == "headers" || kind == "pgp" {
					continue // the cut may be before the body
				}
				body := key[header : header+freshRun]
				if n != 1 || strings.Contains(got, body) || len(got) > len("[REDACTED_PRIVATE_KEY_1]")+len(tail)+len(endMark+" OPENSSH PRIVATE KEY----") {
					t.Fatalf("%s cut at %d before %q gives %q", kind, cut, tail, got)
				}
				if strings.Contains(tail, "value") && !strings.HasSuffix(got, `"next":"value"}`) || strings.Contains(tail, "hello") && !strings.HasSuffix(got, ": hello, world\n") {
					t.Errorf("%s cut at %d takes what follows: %q", kind, cut, got)
				}
			}
		}
	}
}

// TestBlockNot checks that text that only mentions keys, or resembles one, stays.
func TestBlockNot(t *testing.T) {
	table := NewTable()
	cert := "-----BEGIN CERTIFICATE-----\n" + rep(rep("A", 64)+"\n", 9) + "-----END CERTIFICATE-----\n"
	for _, s := range []string{
		cert,
		"-----BEGIN RSA PRIVATE KEY-----",
		"it starts with -----BEGIN RSA PRIVATE KEY----- and then the body follows.\nThat is all of it.\n",
		"if strings.HasPrefix(s, \"-----BEGIN PRIVATE KEY-----\") {\n\treturn x509.ParsePKCS8PrivateKey(der)\n}\n",
		"-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
		"-----BEGIN " + rep("X", 65) + " PRIVATE KEY-----\n" + rep("A", 64),
		"-----BEGIN RSA\nPRIVATE KEY-----\n" + rep("A", 64),
		"-----BEGIN PUBLIC KEY-----\n" + rep("A", 64) + "\n-----END PUBLIC KEY-----",
		"-----BEGIN", "-----BEGIN RSA PRIV", "-----END PRIVATE KEY-----", "----------------", rep("-----BEGIN", 50),
	} {
		check(t, table, s, s)
	}
	key := "-----BEGIN PRIVATE KEY-----\n" + rep("B", 64) + "\n"
	check(t, table, key+"Nov 12 app: bG9n=\nNov 12 app: bye", "[REDACTED_PRIVATE_KEY_1]\nNov 12 app: bye")
	check(t, table, strings.ReplaceAll(key, "\n", `\n`)+`bG9n\nbye now`, `[REDACTED_PRIVATE_KEY_2]\nbye now`)
	table = NewTable()
	check(t, table, key+cert, "[REDACTED_PRIVATE_KEY_1]\n"+cert)
	check(t, table, key+key+"-----END PRIVATE KEY-----", "[REDACTED_PRIVATE_KEY_1]\n[REDACTED_PRIVATE_KEY_2]")
	check(t, table, rep("-----BEGIN", 9)+" PRIVATE KEY-----\n"+rep("B", 64), rep("-----BEGIN", 8)+"[REDACTED_PRIVATE_KEY_1]")
}

// TestBlockHuge checks that an endless block is hidden to its end, in several finds, and that the bytes held stay
// bounded.
func TestBlockHuge(t *testing.T) {
	body := rep(rep("Q", 63)+"\n", 4*maxBlock/64)
	for _, body := range []string{body, strings.ReplaceAll(body, "\n", "")} {
		table := NewTable()
		in := "-----BEGIN PRIVATE KEY-----\n" + body + "-----END PRIVATE KEY-----\nafter"
		got, n := table.Text(in)
		if n < 4 || strings.Contains(got, "Q") || !strings.HasSuffix(got, "]\nafter") || table.Restore(got) != in {
			t.Errorf("%d tokens, %.300q", n, got)
		}
		w := table.Writer(&strings.Builder{})
		for rest := in; rest != ""; {
			k := min(len(rest), 1000)
			w.Write([]byte(rest[:k]))
			rest = rest[k:]
			if len(w.s.v.raw) > 3*maxBlock {
				t.Fatalf("holds %d bytes", len(w.s.v.raw))
			}
		}
	}
}

func TestBlockHoldsSecret(t *testing.T) {
	table := NewTable()
	inner := rep("S", 40)
	table.Learn("K", inner)
	table.Learn("PEM", "-----BEGIN PRIVATE KEY-----\n"+rep("L", 64)+"\n-----END PRIVATE KEY-----\n")
	check(t, table, "-----BEGIN PRIVATE KEY-----\n"+rep("B", 64)+"\n"+inner+"\n-----END PRIVATE KEY-----.", "[REDACTED_PRIVATE_KEY_1].")
	check(t, table, "-----BEGIN PRIVATE KEY-----\n"+rep("L", 64)+"\n-----END PRIVATE KEY-----.", "[REDACTED_PEM_1].")
	check(t, table, inner+"-----BEGIN PRIVATE KEY-----"+inner, "[REDACTED_K_1][REDACTED_PRIVATE_KEY_2]")
}

// TestBlockWithManyHeaders checks that a block is found even if the header lines of its OpenPGP armour are longer than
// the permitted distance to the END of a key.
func TestBlockWithManyHeaders(t *testing.T) {
	headers := strings.Repeat("Comment: exported by a tool that likes to talk about itself at length\n", 12)
	body := strings.Repeat("lQVYBGUexampleKEYmaterial0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabc\n", 8)
	text := "-----BEGIN PGP PRIVATE KEY BLOCK-----\n" + headers + "\n" + body + "=abcd\n-----END PGP PRIVATE KEY BLOCK-----\nafter\n"
	got, n := NewTable().Text(text)
	if n != 1 || strings.Contains(got, "lQVYBG") || !strings.HasSuffix(got, "\nafter\n") {
		t.Errorf("%d found:\n%s", n, got)
	}
}
