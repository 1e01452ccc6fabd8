package sshca

import (
	"crypto/rsa"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// Principal is the account class that a certificate logs in to. A certificate has exactly one.
type Principal string

const (
	// Sandbox logs in to a sandbox. Its only extension is permit-pty.
	Sandbox Principal = "sandbox"
	// ReadOnly logs in to a source host. It has no extension, and the critical option force-command names the read-only
	// shell. Therefore the certificate starts no other program even if the login shell of the account is wrong.
	ReadOnly Principal = "bailey-readonly"
	// Apply logs in to a source host that is prepared for playbooks. It has no extension. The critical option
	// force-command names the program that applies one playbook, whose digest ShellOptions must have.
	Apply Principal = "bailey-apply"
	// SandboxHost is not an account: its certificate is one for a host key (SSH2_CERT_TYPE_HOST), with which the SSH
	// server of a sandbox proves the name Request.Host to a client. It permits no login.
	SandboxHost Principal = "sandbox-host"
)

// applyProgram is the forced command of the principal Apply.
const applyProgram = "/usr/local/bin/bailey-apply"

// Request describes one certificate.
type Request struct {
	Key       ssh.PublicKey // to certify; not a certificate itself
	Principal Principal
	Identity  Identity
	// Host is the name that the certificate of a host key proves. Only the principal SandboxHost has one.
	Host string
	// Lifetime is the time from now to the expiry. 0 means DefaultLifetime.
	Lifetime time.Duration
	// SourceAddresses are the addresses and CIDR prefixes from which the certificate may be used, for example
	// "192.0.2.7" or "2001:db8::/32". If it is empty, the certificate can be used from any address.
	SourceAddresses []string
	// ShellOptions are options of the program in the forced command, for example "--timeout=60". The principal Sandbox
	// must not have them, and Apply must have "--sha256=DIGEST".
	ShellOptions []string
}

// checkedRequest is a checked request.
type checkedRequest struct {
	key                 ssh.PublicKey
	lifetime            time.Duration
	options, extensions map[string]string
}

func (a *Authority) checkRequest(r Request) (p checkedRequest, err error) {
	p.options, p.extensions, err = a.principalPermissions(r.Principal)
	if err != nil {
		return p, err
	}
	if err := addShellOptions(p.options, r.ShellOptions); err != nil {
		return p, err
	}
	if r.Principal == Apply && !slices.ContainsFunc(r.ShellOptions, func(o string) bool { return applyOption().MatchString(o) }) {
		return p, bailey.Denied.New("a certificate for a playbook must name its digest", "Add --sha256=DIGEST.")
	}
	if err := checkHost(r); err != nil {
		return p, err
	}
	if p.key, err = checkKey(r.Key); err != nil {
		return p, err
	}
	if p.lifetime, err = checkLifetime(r.Lifetime); err != nil {
		return p, err
	}
	sources, err := sourceOption(r.SourceAddresses)
	if err != nil {
		return p, err
	}
	if sources != "" {
		p.options["source-address"] = sources
	}
	return p, nil
}

// principalPermissions returns the critical options and the extensions of a principal. An extension that is not listed
// is off: forwarding of ports, agents and X11, and the file ~/.ssh/rc.
func (a *Authority) principalPermissions(p Principal) (options, extensions map[string]string, err error) {
	switch p {
	case SandboxHost:
		return map[string]string{}, map[string]string{}, nil
	case Sandbox:
		return map[string]string{}, map[string]string{"permit-pty": ""}, nil
	case ReadOnly:
		return map[string]string{"force-command": a.shell}, map[string]string{}, nil
	case Apply:
		return map[string]string{"force-command": applyProgram}, map[string]string{}, nil
	case "":
		return nil, nil, bailey.Denied.New("the certificate request has no principal (CVE-2024-7594)",
			fmt.Sprintf("Request the principal %q or %q.", Sandbox, ReadOnly))
	}
	return nil, nil, bailey.Denied.New(fmt.Sprintf("certificates are not issued for the principal %.80q", string(p)),
		fmt.Sprintf("Request the principal %q or %q.", Sandbox, ReadOnly))
}

// checkHost refuses a name of a host in a certificate for a login, and a certificate for a host key without one. A wildcard
// or a list would make the certificate valid for other hosts.
func checkHost(r Request) error {
	if r.Principal != SandboxHost {
		if r.Host != "" {
			return bailey.Denied.New(fmt.Sprintf("a certificate for the principal %q proves no name of a host", string(r.Principal)),
				fmt.Sprintf("Leave Host empty, or request the principal %q.", SandboxHost))
		}
		return nil
	}
	if len(r.SourceAddresses) > 0 {
		return bailey.Invalid.New("a certificate for a host key has no source addresses", "Leave them out.")
	}
	return CheckName(r.Host)
}

// shellOption has no character that the login shell of the account could interpret.
var shellOption = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^--[a-z][a-z0-9-]*(=[a-z0-9]+)?$`) })

var applyOption = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^--sha256=[0-9a-f]{64}$`) })

// addShellOptions appends the options of the read-only shell to the forced command.
func addShellOptions(options map[string]string, list []string) error {
	command, forced := options["force-command"]
	for _, o := range list {
		if !forced || !shellOption().MatchString(o) || len(o) > 128 {
			return bailey.Invalid.New(fmt.Sprintf("%.80q is not an option of the read-only shell of this principal", o),
				"Leave it out.")
		}
		command += " " + o
	}
	if forced {
		options["force-command"] = command
	}
	return nil
}

func checkLifetime(d time.Duration) (time.Duration, error) {
	if d == 0 {
		return DefaultLifetime, nil
	}
	if d < MinLifetime || d > MaxLifetime {
		return 0, bailey.Invalid.New(fmt.Sprintf("the lifetime %v of the certificate is not between %v and %v",
			d, MinLifetime, MaxLifetime), "Request a lifetime from 1 to 60 minutes.")
	}
	return d, nil
}

// Limits of the modulus of an RSA key in bits. OpenSSH reads no larger one.
const (
	minRSA = 3072
	maxRSA = 16384
)

// checkKey returns the key that the bytes of k encode. They are parsed again because k can be any implementation of the
// interface, and its methods could contradict its bytes.
func checkKey(k ssh.PublicKey) (ssh.PublicKey, error) {
	if k == nil {
		return nil, bailey.Invalid.New("the certificate request has no public key",
			"Set Key in the request.")
	}
	key, err := ssh.ParsePublicKey(k.Marshal())
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "the public key of the request is damaged",
			`Create a key with "ssh-keygen -t ed25519".`)
	}
	return key, checkKeyType(key)
}

func checkKeyType(key ssh.PublicKey) error {
	if _, ok := key.(*ssh.Certificate); ok {
		return bailey.Denied.New("the public key of the request is itself a certificate",
			"Send the plain public key, for example key.pub and not key-cert.pub.")
	}
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		return nil
	case ssh.KeyAlgoRSA:
		return checkRSA(key)
	case "ssh-dss":
		return bailey.Denied.New("a DSA key is not certified, because OpenSSH 10 removed DSA",
			`Create a key with "ssh-keygen -t ed25519".`)
	}
	return bailey.Denied.New("a key of type "+key.Type()+" is not certified",
		`Create a key with "ssh-keygen -t ed25519".`)
}

func checkRSA(key ssh.PublicKey) error {
	bits := 0
	if c, ok := key.(ssh.CryptoPublicKey); ok {
		if pub, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok {
			bits = pub.N.BitLen()
		}
	}
	if bits < minRSA || bits > maxRSA {
		return bailey.Denied.New(fmt.Sprintf("the RSA key has %d bits, not between %d and %d", bits, minRSA, maxRSA),
			`Create a key with "ssh-keygen -t ed25519" or "ssh-keygen -t rsa -b 3072".`)
	}
	return nil
}

// maxSources is the maximum number of source addresses in a request.
const maxSources = 32

// sourceOption returns the value of the critical option source-address, or "" without addresses.
func sourceOption(list []string) (string, error) {
	if len(list) > maxSources {
		return "", bailey.Invalid.New(fmt.Sprintf("the request has %d source addresses, at most %d are allowed",
			len(list), maxSources), "Combine the addresses to CIDR prefixes.")
	}
	clean := make([]string, 0, len(list))
	for _, s := range list {
		one, err := checkSource(s)
		if err != nil {
			return "", err
		}
		clean = append(clean, one)
	}
	return strings.Join(clean, ","), nil
}

// checkSource returns the canonical form of an address or a prefix. It refuses each form that sshd would read
// differently: sshd rejects the complete list if a prefix has host bits, compares IPv4 addresses only in their IPv4
// form and knows no zones.
func checkSource(s string) (string, error) {
	prefix, err := netip.ParsePrefix(s)
	addr := prefix.Addr()
	if !strings.Contains(s, "/") {
		addr, err = netip.ParseAddr(s)
	}
	switch {
	case err != nil:
		return "", bailey.Invalid.New(fmt.Sprintf("the source address %.80q is neither an address nor a CIDR prefix", s),
			"Write an address such as 192.0.2.7 or a prefix such as 192.0.2.0/24.")
	case addr.Zone() != "":
		return "", bailey.Invalid.New(fmt.Sprintf("the source address %.80q has a zone", s),
			"Remove the part from % on.")
	case addr.Is4In6():
		return "", bailey.Invalid.New(fmt.Sprintf("the source address %.80q is an IPv4 address in IPv6 form", s),
			"Write it in IPv4 form, for example "+addr.Unmap().String()+".")
	case !prefix.IsValid() && addr.IsUnspecified(), prefix.IsValid() && prefix.Bits() == 0:
		return "", bailey.Invalid.New(fmt.Sprintf("the source address %.80q does not restrict the certificate", s),
			"Name the address of the gateway, or no source address.")
	case prefix.IsValid() && prefix.Masked() != prefix:
		return "", bailey.Invalid.New(fmt.Sprintf("the source address %.80q has bits outside its prefix", s),
			"Write "+prefix.Masked().String()+", or the address without a prefix length.")
	case prefix.IsValid():
		return prefix.String(), nil
	}
	return addr.String(), nil
}
