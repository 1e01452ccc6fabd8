package image

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"bailey"
)

// Commands that read the facts of a source host, as source.run takes them. Each only reads.
const (
	PackagesCommand  = `dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\t${db:Status-Abbrev}\n'`
	ConffilesCommand = `dpkg-query -W -f '${Conffiles}\n'`
	FilesCommand     = `find /etc -xdev -type f -readable -size -128k -printf '%m %U %p\n'`
	SumsCommand      = `find /etc -xdev -type f -readable -size -128k -exec md5sum {} +`
	LinksCommand     = `find /etc -xdev -type l -printf '%p\t%l\n'`
	ReleaseFile      = "/etc/os-release"
)

// Limits of what is taken from a host.
const (
	maxSourceFiles = 400
	maxSourceBytes = 8 << 20
	maxSourceLinks = 4000
)

// Facts are the answers of a source host. They are not trusted: the host may be hostile.
type Facts struct{ Release, Packages, Conffiles, Files, Sums, Links string }

// A SourceFile is a file of the host to be read.
type SourceFile struct {
	Path string
	Mode uint32
	md5  string // on the host
}

// A Left is something of the host that the image does not have, or not as it is there.
type Left struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// A SourcePlan says how to build an image like a source host. After PlanSource, the files of Read must be added with
// AddFile.
type SourcePlan struct {
	Build Build
	Read  []SourceFile
	Left  []Left
	bytes int
}

// PlanSource makes a plan from the facts of a host. The image has the newest versions of its packages in the same
// release, or
// if exact is set, the same versions; and the files and symbolic links below /etc that no package brought, or that
// differ from
// what it brought. Accounts, keys, networks, mounts and boot loaders are left out: they belong to the host.
func PlanSource(host string, f Facts, exact bool, without []string) (*SourcePlan, error) {
	release := osRelease(f.Release)
	p := &SourcePlan{Build: Build{Recipe: Recipe{OS: release["ID"], Release: release["VERSION_CODENAME"]},
		From:  "host " + host,
		Files: map[string]FileText{}, Links: map[string]string{}}}
	if p.Build.Recipe.OS != "debian" && p.Build.Recipe.OS != "ubuntu" || p.Build.Recipe.Release == "" {
		return nil, bailey.Invalid.Errorf("use a host with Debian or Ubuntu",
			"an image like %.80q cannot be built: its system is %.80q, release %.80q",
			host, p.Build.Recipe.OS, p.Build.Recipe.Release)
	}
	if err := p.planPackages(f.Packages, exact, without); err != nil {
		return nil, err
	}
	if err := p.planFiles(f); err != nil {
		return nil, err
	}
	p.planLinks(f.Links)
	return p, p.Build.Recipe.Check()
}

func (p *SourcePlan) leaveOut(name, why string) {
	if len(p.Left) < maxSourceLinks {
		p.Left = append(p.Left, Left{fmt.Sprintf("%.300s", name), why})
	}
}

// ownPackages are beginnings of names of packages that belong to the hardware or the boot of a host.
const ownPackages = "linux-image linux-headers linux-modules linux-base grub shim- firmware- initramfs-tools dracut os-prober cloud-init " +
	"intel-microcode amd64-microcode qemu-guest-agent efibootmgr open-vm-tools raspi-firmware"

func (p *SourcePlan) planPackages(text string, exact bool, without []string) error {
	rows, arch := [][]string{}, ""
	for line := range strings.Lines(text) {
		row := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(row) != 4 {
			continue
		}
		if rows = append(rows, row); row[0] == "dpkg" {
			arch = row[2]
		}
	}
	if arch != "amd64" && arch != "arm64" {
		return bailey.Invalid.Errorf("use a host with amd64 or arm64",
			"the host lists %d packages, and for dpkg the architecture %.40q", len(rows), arch)
	}
	p.Build.Recipe.Arch = arch
	for _, row := range rows {
		name, text := row[0], row[0]
		if exact {
			text += "=" + row[1]
		}
		switch {
		case !strings.HasPrefix(row[3], "ii"):
		case slices.Contains(without, name):
			p.leaveOut("package "+name, "you named it")
		case hasPrefix(name, strings.Fields(ownPackages)):
			p.leaveOut("package "+name, "it belongs to the host's hardware or boot")
		case row[2] != arch && row[2] != "all":
			p.leaveOut("package "+name, "it is for another architecture")
		case !packagePattern().MatchString(text):
			p.leaveOut("package "+name, "it has an impossible name or version")
		default:
			p.Build.Recipe.Packages = append(p.Build.Recipe.Packages, text)
		}
	}
	return nil
}

func hasPrefix(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// hostFiles are beginnings of paths that belong to one host.
const hostFiles = `/etc/machine-id /etc/hostname /etc/hosts /etc/resolv.conf /etc/fstab /etc/crypttab /etc/mtab /etc/passwd /etc/group
/etc/shadow /etc/gshadow /etc/subuid /etc/subgid /etc/.pwd.lock /etc/ssh/ssh_host_ /etc/ssh/bailey /etc/ssl/private /etc/ssl/certs /etc/apt/
/etc/network/ /etc/netplan/ /etc/systemd/network/ /etc/NetworkManager/ /etc/ld.so.cache /etc/alternatives/ /etc/grub.d/ /etc/default/grub
/etc/initramfs-tools/ /etc/kernel/ /etc/udev/rules.d/70- /etc/os-release /etc/debian_version /etc/adjtime /etc/localtime /etc/rc0.d /etc/rc1.d
/etc/rc2.d /etc/rc3.d /etc/rc4.d /etc/rc5.d /etc/rc6.d /etc/rcS.d /etc/systemd/system/getty.target.wants/ /etc/cloud/ /etc/lvm/ /etc/bailey`

func isHostPath(name string) bool {
	return path.Clean(name) == name && strings.HasPrefix(name, "/etc/") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd })
}

// planFiles selects the files to be read: those that differ from the conffiles of packages.
func (p *SourcePlan) planFiles(f Facts) error {
	brought, sums := map[string]string{}, map[string]string{}
	for line := range strings.Lines(f.Conffiles) {
		if word := strings.Fields(line); len(word) >= 2 {
			brought[word[0]] = word[1]
		}
	}
	for line := range strings.Lines(f.Sums) {
		if sum, name, ok := strings.Cut(strings.TrimRight(line, "\n"), "  "); ok {
			sums[name] = sum
		}
	}
	for line := range strings.Lines(f.Files) {
		mode, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		owner, name, ok := strings.Cut(rest, " ")
		bits, err := strconv.ParseUint(mode, 8, 12)
		switch {
		case !ok || err != nil || !isHostPath(name) || hasPrefix(name, strings.Fields(hostFiles)) ||
			brought[name] == sums[name] && sums[name] != "":
			continue
		case sums[name] == "":
			p.leaveOut(name, "its digest is not known")
		case bits&0o7000 != 0:
			p.leaveOut(name, "it runs with the rights of another user")
		default:
			if owner != "0" {
				p.leaveOut(name, "it belongs to root in the image, not to the user "+fmt.Sprintf("%.20q", owner))
			}
			p.Read = append(p.Read, SourceFile{name, uint32(bits), sums[name]})
		}
	}
	if len(p.Read) > maxSourceFiles {
		return bailey.Invalid.Errorf("build an image, and copy what you need with bailey sandbox cp",
			"the host has %d files below /etc of its own, more than %d", len(p.Read), maxSourceFiles)
	}
	return nil
}

// planLinks takes the symbolic links of the host: they enable services and sites.
func (p *SourcePlan) planLinks(text string) {
	for line := range strings.Lines(text) {
		name, target, ok := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		if !ok || !isHostPath(name) || hasPrefix(name, strings.Fields(hostFiles)) || target == "" ||
			len(target) > 1000 ||
			len(p.Build.Links) > maxSourceLinks || strings.ContainsFunc(target,
			func(r rune) bool { return r < ' ' || r == 0xfffd }) {
			continue
		}
		p.Build.Links[name] = target
	}
}

// redacted is in a text from which secrets were removed.
const redacted = "[REDACTED_"

// AddFile adds a file of Read with the text that was read. The text came through the gate, which removes secrets, so
// it is
// compared with the digest that the host gave.
func (p *SourcePlan) AddFile(f SourceFile, text string, truncated bool) {
	sum := md5.Sum([]byte(text))
	p.bytes += len(text)
	switch {
	case truncated || p.bytes > maxSourceBytes:
		p.leaveOut(f.Path, "it is too large")
		return
	case hex.EncodeToString(sum[:]) == f.md5:
	case strings.Contains(text, redacted):
		p.leaveOut(f.Path, "secrets in it were replaced by "+redacted+"…]")
	default:
		p.leaveOut(f.Path, "it is not a text, or it changed while it was read")
		return
	}
	p.Build.Files[f.Path] = FileText{Text: text, Mode: f.Mode}
}
