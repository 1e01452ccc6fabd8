package process

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/strictyaml"

	"github.com/goccy/go-yaml/ast"
)

// settings are those of server.yaml, with their defaults.
type settings struct {
	dir, listen, database string
	public                *url.URL
	tlsCert, tlsKey       string
	clientCA              string // signs the certificates of hosts
	proxies               auth.Proxies
	console               string // the origin of a console elsewhere, or ""
	noTelemetry           bool
	noPasswords           bool
	warnings              []string
}

// format is the form of server.yaml.
var format = strictyaml.Format{
	Limits:     strictyaml.Limits{Bytes: 64 << 10, Flow: 4, Column: 24, Opaque: true},
	String:     "a text",
	Unknown:    "%[1]s has no %[2]q: it can have %[3]s%[4]s",
	Twice:      "%[2]q stands twice in %[1]s",
	NotMapping: "%[1]s must be a mapping, not %[2]s",
	Documents:  "the file has %[1]d documents, and must have one",
}

// readSettings reads server.yaml. If it does not exist, the defaults apply, unless --config names it.
func (p *program) readSettings() (settings, error) {
	dir, err := p.stateDir()
	if err != nil {
		return settings{}, err
	}
	s := settings{dir: dir}
	name := p.config
	if name == "" {
		name = filepath.Join(dir, "server.yaml")
	}
	text, err := os.ReadFile(name)
	switch {
	case err == nil:
		if err := s.parseSettings(name, text); err != nil {
			return s, err
		}
		if info, err := os.Stat(name); err == nil && info.Mode().Perm()&0o077 != 0 {
			secret := ""
			if strings.Contains(s.database, "@") {
				secret = ", and it holds the password of the database"
			}
			s.warnings = append(s.warnings, fmt.Sprintf("other users may read %s (mode %04o)%s", name,
				info.Mode().Perm(), secret))
		}
	case !errors.Is(err, fs.ErrNotExist) || p.config != "":
		return s, bailey.Invalid.Wrap(err, "cannot read the configuration", "see --config")
	}
	if info, err := os.Stat(s.tlsKey); s.tlsKey != "" && err == nil && info.Mode().Perm()&0o077 != 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("other users may read the private key %s (mode %04o): anybody who has it "+
			"can pose as this server", s.tlsKey, info.Mode().Perm()))
	}
	if p.listen != "" {
		s.listen = p.listen
	}
	if s.listen == "" {
		s.listen = "127.0.0.1:8440"
	}
	if s.database == "" {
		s.database = filepath.Join(s.dir, "server.db")
	}
	return s, nil
}

// parseSettings reads the text of server.yaml.
func (s *settings) parseSettings(name string, text []byte) error {
	f := &strictyaml.File{Format: &format, Name: name, Hint: "correct it; docs/team.md shows a file"}
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	var public string
	var proxies []string
	anonymousUsage, passwords := true, true
	f.Fields(f.Body(text), "the configuration", strictyaml.Fields{
		"listen":         strictyaml.TextField(f, "listen", &s.listen),
		"public_url":     strictyaml.TextField(f, "public_url", &public),
		"database":       strictyaml.TextField(f, "database", &s.database),
		"password_login": f.BoolField("password_login", &passwords),
		"console_origin": strictyaml.TextField(f, "console_origin", &s.console),
		"telemetry": func(n ast.Node) {
			f.Fields(n, "telemetry", strictyaml.Fields{
				"enable_anonymous_usage": f.BoolField("enable_anonymous_usage", &anonymousUsage)})
		},
		"trusted_proxies": strictyaml.TextsField(f, "trusted_proxies", &proxies),
		"tls": func(n ast.Node) {
			has := f.Fields(n, "tls", strictyaml.Fields{"cert": strictyaml.TextField(f, "cert", &s.tlsCert),
				"key": strictyaml.TextField(f, "key", &s.tlsKey), "client_ca": strictyaml.TextField(f, "client_ca", &s.clientCA)})
			if !has["cert"] || !has["key"] {
				f.AddFault(n, "tls must have cert and key")
			}
		},
	})
	if public != "" {
		u, err := url.Parse(strings.TrimSuffix(public, "/"))
		if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
			f.AddFault(nil, "public_url is not a URL such as https://bailey.example.com")
		}
		s.public = u
	}
	s.noTelemetry, s.noPasswords = !anonymousUsage, !passwords
	if s.console != "" {
		u, err := url.Parse(s.console)
		if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != s.console || u.Scheme != "https" && u.Scheme != "http" {
			f.AddFault(nil, "console_origin is not an origin such as https://console.example.com")
		}
	}
	for _, text := range proxies {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			f.AddFault(nil, "trusted_proxies: %q is not a network such as 10.0.0.0/8", strictyaml.Clip(text))
			continue
		}
		s.proxies = append(s.proxies, network)
	}
	if s.tlsCert != "" && s.public == nil {
		f.AddFault(nil, "public_url is missing: with tls, the server must know the name that browsers use")
	}
	return f.Err()
}

// databaseKind names the database without what a URL can hold.
func (s *settings) databaseKind() string {
	if strings.HasPrefix(s.database, "postgres") && strings.Contains(s.database, "://") {
		return "PostgreSQL"
	}
	return "SQLite in " + s.database
}
