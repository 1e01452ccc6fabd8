package sigv4

import (
	"errors"
	"fmt"
	"strings"
)

// Profile is a section of a file as the aws command keeps in ~/.aws/credentials.
type Profile struct {
	Name, Region string
	Credentials
}

// ParseFile reads the sections that have keys. Other settings are ignored, among them those that name a program.
func ParseFile(text string) ([]Profile, error) {
	list := []Profile{{Name: "default"}} // keys before the first section are of the default profile
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			name = strings.TrimSpace(strings.TrimPrefix(strings.TrimSuffix(name, "]"), "profile "))
			list = append(list, Profile{Name: name})
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		p, value := &list[len(list)-1], strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "aws_access_key_id":
			p.ID = value
		case "aws_secret_access_key":
			p.Secret = value
		case "aws_session_token":
			p.Session = value
		case "region":
			p.Region = value
		}
	}
	var whole []Profile
	for _, p := range list {
		if p.ID == "" || p.Secret == "" {
			continue
		}
		for _, word := range []string{p.Name, p.ID, p.Secret, p.Session, p.Region} {
			if strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r > '~' || r == '[' || r == ']' }) {
				return nil, errors.New("a name or key contains a blank or a control character")
			}
		}
		whole = append(whole, p)
	}
	if len(whole) == 0 {
		return nil, errors.New("no section has aws_access_key_id and aws_secret_access_key")
	}
	return whole, nil
}

// String returns the section in the form of the file. It contains the secret.
func (p Profile) String() string {
	text := fmt.Sprintf("[%s]\naws_access_key_id = %s\naws_secret_access_key = %s\n", p.Name, p.ID, p.Secret)
	if p.Session != "" {
		text += "aws_session_token = " + p.Session + "\n"
	}
	if p.Region != "" {
		text += "region = " + p.Region + "\n"
	}
	return text
}
