package readonly

import (
	"slices"
	"strings"
)

// ipObject is an object of ip(8). ip takes any prefix of an object and of a verb, and the first match in its own table
// wins. So each accepted prefix is listed here with the shortest accepted length, and the full words replace it.
type ipObject struct {
	name  string
	short string            // shortest accepted prefix of the name
	verbs map[string]string // accepted verbs: full name and shortest accepted prefix
}

// ipObjects are the objects of which reading verbs are accepted, in the order in which ip looks them up. xfrm is
// missing because it prints keys.
var ipObjects = []ipObject{
	{"address", "a", map[string]string{"show": "s", "list": "l", "lst": "ls"}},
	{"addrlabel", "addrl", map[string]string{"list": "l", "lst": "ls"}},
	{"maddress", "m", map[string]string{"show": "s", "list": "l", "lst": "ls"}},
	{"route", "r", map[string]string{"list": "l", "lst": "ls", "show": "s", "get": "g"}},
	{"rule", "ru", map[string]string{"list": "l", "lst": "ls", "show": "s"}},
	{"neighbor", "n", map[string]string{"show": "s", "list": "l", "lst": "ls", "get": "g"}},
	{"neighbour", "neighbou", map[string]string{"show": "s", "list": "l", "lst": "ls", "get": "g"}},
	{"ntable", "nt", map[string]string{"show": "s", "list": "l", "lst": "ls"}},
	{"link", "l", map[string]string{"show": "sh", "list": "l", "lst": "ls"}},
	{"tunnel", "t", map[string]string{"show": "s", "list": "l", "lst": "ls"}},
	{"tuntap", "tunt", map[string]string{"show": "show", "list": "list"}},
	{"token", "to", map[string]string{"list": "l", "lst": "ls", "get": "g"}},
	{"tcp_metrics", "tc", map[string]string{"show": "s"}},
	{"monitor", "mo",
		map[string]string{"all": "all", "link": "link", "address": "address", "route": "route", "neigh": "neigh",
			"rule": "rule"}},
	{"mroute", "mr", map[string]string{"show": "s", "list": "l", "lst": "ls"}},
	{"netns", "netn",
		map[string]string{"list": "l", "lst": "ls", "show": "sh",
			"list-id": "list-i", "identify": "identify", "pids": "pids"}},
	{"netconf", "netc", map[string]string{"show": "s"}},
	{"vrf", "vrf", map[string]string{"show": "show"}},
	{"nexthop", "nexthop", map[string]string{"list": "l", "lst": "ls", "show": "s", "get": "g"}},
}

// ipOptions are the accepted options. -batch reads commands from a file, -netns enters a namespace, and -all and -force
// widen other verbs.
var ipOptions = strings.Fields("V Version h human human-readable iec s st stat stats statistic statistics d det " +
	"details " +
	"r resolve 4 6 B D M 0 I o oneline t timestamp ts tshort br brief j json p pretty c color c=auto c=never " +
	"c=always " +
	"color=auto color=never color=always N Numeric help")

var ipFamilies = []string{"inet", "inet6", "bridge", "mpls", "link"}

// checkIP checks options, object and verb of ip.
func checkIP(c *call) *refusal {
	if r := c.makeLiteralFrom(1); r != nil {
		return r
	}
	i, r := c.ipOptions()
	if r != nil || i >= len(c.args) {
		return r
	}
	object, r := c.resolveObject(c.args[i].value)
	if r != nil {
		return r
	}
	if c.args[i].value = object.name; object.name == "neighbour" {
		c.args[i].value = "neighbor"
	}
	if i++; i >= len(c.args) {
		return nil
	}
	verb := ""
	for full, short := range object.verbs {
		if v := c.args[i].value; strings.HasPrefix(full, v) && strings.HasPrefix(v, short) {
			verb = full
		}
	}
	if verb == "" {
		return newRefusal(c.rule.Hint, "the verb %q of ip %s is not in the read-only set", c.args[i].value, object.name)
	}
	c.args[i].value = verb
	for _, w := range c.args[i+1:] {
		if w.data || strings.HasPrefix(w.value, "-") || object.name == "monitor" {
			return newRefusal(c.rule.Hint, "the argument %q of ip %s is not accepted", w.value, object.name)
		}
	}
	return nil
}

// ipOptions checks the options and returns the index of the object.
func (c *call) ipOptions() (int, *refusal) {
	i := 1
	for ; i < len(c.args) && strings.HasPrefix(c.args[i].value, "-"); i++ {
		name := strings.TrimPrefix(strings.TrimPrefix(c.args[i].value, "-"), "-")
		switch {
		case name == "f" || name == "family":
			if i++; i >= len(c.args) || !slices.Contains(ipFamilies, c.args[i].value) {
				return i, newRefusal(c.rule.Hint, "the option -family of ip needs inet, inet6, bridge, mpls or link")
			}
		case !slices.Contains(ipOptions, name):
			for _, a := range c.rule.Acts {
				for full := range strings.FieldsSeq(a.Options) {
					if strings.HasPrefix(full, "-"+name) {
						return i, c.rule.refuseActing(c.args[i].value, &a)
					}
				}
			}
			return i, c.rule.refuseUnknown(c.args[i].value)
		}
	}
	return i, nil
}

func (c *call) resolveObject(v string) (*ipObject, *refusal) {
	var found *ipObject
	for i := range ipObjects {
		o := &ipObjects[i]
		if v != "" && strings.HasPrefix(o.name, v) && strings.HasPrefix(v, o.short) && (found == nil || o.name == v) {
			found = o
		}
	}
	if found == nil {
		return nil, newRefusal(c.rule.Hint, "the object %q of ip is not in the read-only set", v)
	}
	return found, nil
}
