// Package remote connects to hosts over SSH and runs commands there. It resolves names with the person's own ssh
// configuration, checks each host key, keeps connections open, and never sends a command twice.
package remote

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"bailey"
)

// Route is the way to a host, as the person's ssh configuration describes it.
type Route struct {
	Name       string // as the person writes it
	Host       string // name or address to connect to
	Port       int
	User       string
	Jumps      []string // names of the hosts in between, in the order of the connection
	Alias      string   // name of the host in known_hosts, if it differs from Host
	KnownHosts []string // files
	Identities []string // private key files
	Agent      string   // socket of the agent, or ""
	Config     string   // configuration file that also describes the hosts in between; "" is the person's own
}

// maxJumps bounds the hosts in between.
const maxJumps = 8

// Resolver finds the routes to hosts.
type Resolver struct {
	// Config is the ssh configuration file, or "" for the person's own and that of the system.
	Config string
}

// Route returns the route to a host. It runs ssh -G, which contacts no host.
func (r Resolver) Route(ctx context.Context, name string) (Route, error) {
	if err := checkName(name); err != nil {
		return Route{}, err
	}
	args := []string{"-G", "--", name}
	if r.Config != "" {
		args = append([]string{"-F", r.Config}, args...)
	}
	cmd := exec.CommandContext(ctx, "ssh", args...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return Route{}, bailey.Unavailable.Wrap(
				err,
				"ssh is not installed",
				"install OpenSSH's client, for example openssh-client",
			)
		}
		return Route{}, bailey.Invalid.Wrapf(err, "correct the ssh configuration: "+firstLine(log.String()),
			"ssh -G %s failed", name)
	}
	route, err := parseRoute(name, string(out))
	route.Config = r.Config
	return route, err
}

// checkName refuses names that ssh could read as an option, and names with other than printable ASCII characters.
func checkName(name string) error {
	if name == "" || len(name) > 255 || name[0] == '-' ||
		strings.ContainsFunc(
			name,
			func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("'\"`$\\;&|<>(){}*?!,/", r) },
		) {
		return bailey.Invalid.Errorf("use the name that you give to ssh, for example web1 or admin@web1.example.com",
			"%.80q is not the name of a host", name)
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// parseRoute reads the output of ssh -G.
func parseRoute(name, text string) (Route, error) {
	r := Route{Name: name, Agent: os.Getenv("SSH_AUTH_SOCK")}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch key {
		case "hostname":
			r.Host = value
		case "port":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 65535 {
				return Route{}, bailey.Invalid.Errorf(
					"correct Port in the ssh configuration",
					"the port %q of %s is not a number",
					value,
					name,
				)
			}
			r.Port = n
		case "user":
			r.User = value
		case "hostkeyalias":
			r.Alias = value
		case "proxyjump":
			if value != "none" {
				r.Jumps = strings.Split(value, ",")
			}
		case "proxycommand":
			if value != "none" {
				return Route{}, bailey.Invalid.Errorf("use ProxyJump in the ssh configuration instead",
					"%s is reached with ProxyCommand, which Bailey does not run", name)
			}
		case "userknownhostsfile", "globalknownhostsfile":
			for _, file := range strings.Fields(value) {
				r.KnownHosts = append(r.KnownHosts, expandHome(file))
			}
		case "identityfile":
			r.Identities = append(r.Identities, expandHome(value))
		case "identityagent":
			switch {
			case value == "none":
				r.Agent = ""
			case value == "SSH_AUTH_SOCK":
			case strings.HasPrefix(value, "$"):
				r.Agent = os.Getenv(value[1:])
			default:
				r.Agent = expandHome(value)
			}
		}
	}
	switch {
	case lines.Err() != nil || r.Host == "" || r.User == "" || r.Port == 0:
		return Route{}, bailey.Invalid.Errorf(
			"run ssh -G "+name+" and correct the ssh configuration",
			"ssh -G %s names no host",
			name,
		)
	case len(r.Jumps) > maxJumps:
		return Route{}, bailey.Invalid.Errorf(
			"use fewer hosts in ProxyJump",
			"%s is reached over more than %d hosts",
			name,
			maxJumps,
		)
	}
	return r, nil
}

// expandHome replaces a leading ~ by the home directory, as ssh does.
func expandHome(file string) string {
	rest, ok := strings.CutPrefix(file, "~/")
	if !ok {
		return file
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return file
	}
	return filepath.Join(home, rest)
}
