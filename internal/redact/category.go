package redact

import "slices"

// Category says what a find is. It stands in its token. Those given to [Table.Learn] and those of custom
// patterns may be others.
type Category = string

// The categories of what is built in.
const (
	PrivateKey   Category = "PRIVATE_KEY"       // in text armour, whole or cut, in base64 too; age and WireGuard keys
	Password     Category = "PASSWORD"          // of files, flags, headers and URLs
	PasswordHash Category = "PASSWORD_HASH"     // of shadow, htpasswd and the like
	Connection   Category = "CONNECTION_STRING" // a URL or a list of settings with a password in it
	CloudKey     Category = "CLOUD_KEY"         // of AWS, Google Cloud, Azure, Alibaba
	APIKey       Category = "API_KEY"           // of a service, known by its form
	Token        Category = "TOKEN"             // named a token, a key or a secret by what stands before it
	JWT          Category = "JWT"               // RFC 7519
	AuthHeader   Category = "AUTH_HEADER"       // what follows Bearer, Basic and the like
	Cookie       Category = "COOKIE"            // a session's
	Webhook      Category = "WEBHOOK"           // a URL that is a secret
	Credentials  Category = "CREDENTIALS"       // a whole file of them
	IPv4         Category = "IPV4"              // a pseudonym
	IPv6         Category = "IPV6"              // a pseudonym
	Host         Category = "HOST"              // a pseudonym: the name of a tenant
)

// Categories returns all that is built in.
func Categories() []Category {
	return []Category{PrivateKey, Password, PasswordHash, Connection, CloudKey, APIKey, Token, JWT, AuthHeader, Cookie, Webhook,
		Credentials, IPv4, IPv6, Host}
}

// Pseudonym holds for addresses and names, which are hidden from the model but no secrets.
func Pseudonym(c Category) bool { return slices.Contains([]Category{IPv4, IPv6, Host}, c) }
