package redact

import "slices"

// Category is the kind of a find. It is part of the token. [Table.Learn] and custom patterns may use other categories.
type Category = string

// The built-in categories.
const (
	PrivateKey   Category = "PRIVATE_KEY"       // in text armour, whole or cut, also in base64; age and WireGuard keys
	Password     Category = "PASSWORD"          // in files, flags, headers and URLs
	PasswordHash Category = "PASSWORD_HASH"     // for example of shadow or htpasswd
	Connection   Category = "CONNECTION_STRING" // a URL or a list of settings that contains a password
	CloudKey     Category = "CLOUD_KEY"         // of AWS, Google Cloud, Azure, Alibaba
	APIKey       Category = "API_KEY"           // of a service, recognised by its format
	Token        Category = "TOKEN"             // named as a token, key or secret by the text before it
	JWT          Category = "JWT"               // RFC 7519
	AuthHeader   Category = "AUTH_HEADER"       // the text after Bearer, Basic or similar
	Cookie       Category = "COOKIE"            // of a session
	Webhook      Category = "WEBHOOK"           // a URL that is itself secret
	Credentials  Category = "CREDENTIALS"       // a whole credential file
	IPv4         Category = "IPV4"              // a pseudonym
	IPv6         Category = "IPV6"              // a pseudonym
	Host         Category = "HOST"              // a pseudonym: the name of a tenant
)

// Categories returns all built-in categories.
func Categories() []Category {
	return []Category{PrivateKey, Password, PasswordHash, Connection, CloudKey, APIKey, Token, JWT, AuthHeader, Cookie,
		Webhook,
		Credentials, IPv4, IPv6, Host}
}

// Pseudonym reports whether a category is an address or a name. These are hidden from the model but are not secrets.
func Pseudonym(c Category) bool { return slices.Contains([]Category{IPv4, IPv6, Host}, c) }
