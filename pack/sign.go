package pack

import (
	"strings"

	"bailey"
	"bailey/internal/sigv4"
)

// SignOutside returns a file of keys whose keys are placeholders, and what lets the edge of the cage sign each request of
// the tool with the keys themselves. The tool sees the names of the profiles and their regions, and no other setting.
func SignOutside(w bailey.Want, file bailey.Secret) (inject []bailey.Injection, shown bailey.Secret, err error) {
	profiles, err := sigv4.ParseFile(file.Reveal())
	if err != nil {
		return nil, shown, bailey.Invalid.Wrap(err, "the credential "+w.Name+" cannot sign requests",
			"lend a file in the form of ~/.aws/credentials, or let the broker ask AWS for one (docs/broker.md, Issuers)")
	}
	var text strings.Builder
	for _, p := range profiles {
		in := bailey.Injection{Name: w.Name, Placeholder: bailey.NewPlaceholder(), Value: bailey.NewSecret(p.String()),
			To: w.Inject.To, Headers: w.Inject.Headers, Sign: w.Inject.Sign}
		inject = append(inject, in)
		p.Credentials = sigv4.Credentials{ID: in.Placeholder, Secret: "signed-outside-the-cage"}
		text.WriteString(p.String())
	}
	return inject, bailey.NewSecret(text.String()), nil
}
