package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"bailey"
)

// A Recipe describes an image of a distribution. It is made by programs of the distribution as [Recipe.Commands] says.
type Recipe struct {
	OS      string `json:"os"` // a name in [Systems]
	Release string `json:"release"`
	Arch    string `json:"arch"` // "amd64" or "arm64"
	// Mirror is the only address of packages; if it is empty, those of the distribution are used, with security
	// updates.
	Mirror   string   `json:"mirror"`
	Packages []string `json:"packages"` // in addition to those of the system; NAME or NAME=VERSION
	// Sources are lines of sources.list(5). If there are any, only they and Mirror are used. Packages need a key that
	// apt
	// of this host trusts.
	Sources []string `json:"sources,omitempty"`
}

// A System is what is known about a distribution.
type System struct {
	Name    string
	Release string   // that is built if none is named
	Tested  bool     // images of it are built and booted in tests
	mirror  string   // used if none is named; mmdebstrap knows that of Debian, and those of its updates
	parts   string   // components of the archive
	base    []string // packages of every image
	kernel  string   // package that depends on the newest kernel
}

// Systems returns the distributions from which images can be built.
func Systems() []System {
	return []System{
		{Name: "debian", Release: "bookworm", Tested: true, parts: "main", kernel: "linux-image-cloud-",
			base: []string{"systemd-sysv", "udev", "kmod", "dbus", "openssh-server", "iproute2", "procps",
				"ca-certificates", "python3-minimal"}},
		{Name: "ubuntu", Release: "noble", mirror: "http://archive.ubuntu.com/ubuntu", parts: "main universe",
			kernel: "linux-image-virtual",
			base: []string{"systemd-sysv", "udev", "kmod", "dbus", "openssh-server", "iproute2", "procps",
				"ca-certificates", "python3-minimal"}},
		{Name: "alpine", Release: "v3.22", mirror: "https://dl-cdn.alpinelinux.org/alpine", kernel: "linux-virt",
			base: []string{"alpine-base", "openrc", "openssh-server", "iproute2", "ca-certificates"}},
	}
}

func findSystem(name string) (System, error) {
	i := slices.IndexFunc(Systems(), func(s System) bool { return s.Name == name })
	if i < 0 {
		return System{}, bailey.Invalid.Errorf("use debian, ubuntu or alpine, or import an image",
			"images of %.80q cannot be built", name)
	}
	return Systems()[i], nil
}

var (
	releasePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,40}$`) })
	packagePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{0,100}(:(amd64|arm64|i386))?(=[A-Za-z0-9][A-Za-z0-9.+:~-]{0,100})?$`)
	})
	mirrorPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(https?://[A-Za-z0-9.:-]{1,255}|(file|copy)://)/[A-Za-z0-9._~/+-]{0,255}$`)
	})
	sourcePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^deb [ -~]{1,500}$`) })
)

const maxPackages = 20_000

// Check returns an error of kind Invalid unless the recipe can be made, and fills in the defaults. The programs get
// its texts
// as arguments, so each has a pattern of its own.
func (r *Recipe) Check() error {
	system, err := findSystem(r.OS)
	if err != nil {
		return err
	}
	if r.Release == "" {
		r.Release = system.Release
	}
	if r.Mirror == "" && len(r.Sources) == 0 {
		r.Mirror = system.mirror
	}
	switch {
	case r.Arch != "amd64" && r.Arch != "arm64":
		return bailey.Invalid.Errorf("use amd64 or arm64", "an image cannot have the architecture %.80q", r.Arch)
	case !releasePattern().MatchString(r.Release):
		return bailey.Invalid.Errorf("use a name such as "+system.Release, "%s has no release %.80q", r.OS, r.Release)
	case r.Mirror != "" && !mirrorPattern().MatchString(r.Mirror+"/"):
		return bailey.Invalid.Errorf("use an address such as http://deb.debian.org/debian",
			"packages cannot come from %.200q", r.Mirror)
	case len(r.Packages) > maxPackages:
		return bailey.Invalid.Errorf("name fewer", "an image cannot have %d packages", len(r.Packages))
	}
	for _, p := range r.Packages {
		if !packagePattern().MatchString(p) {
			return bailey.Invalid.Errorf("use NAME or NAME=VERSION", "a package cannot have the name %.100q", p)
		}
	}
	for _, s := range r.Sources {
		if !sourcePattern().MatchString(s) || strings.Contains(s, "trusted") {
			return bailey.Invalid.Errorf("use a line of sources.list, without options that switch off checks",
				"packages cannot come from %.200q", s)
		}
	}
	return nil
}

// Digest identifies what the commands make, for the cache.
func (r Recipe) Digest() string {
	text, _ := json.Marshal(r.Commands("OUT")) // lists of texts
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Commands are the command lines that write the root of the image as a tar archive, with the kernel in /boot and its
// modules
// in /usr/lib/modules, to the file out. They need no root.
func (r Recipe) Commands(out string) [][]string {
	if r.OS == "alpine" {
		return r.alpineCommands(out)
	}
	system, err := findSystem(r.OS)
	if err != nil {
		return nil
	}
	packages := slices.Concat(system.base, r.Packages)
	slices.Sort(packages)
	kernel := system.kernel
	if strings.HasSuffix(kernel, "-") {
		kernel += r.Arch
	}
	argv := []string{"mmdebstrap", "--variant=minbase", "--format=tar", "--architectures=" + r.Arch,
		"--components=" + strings.ReplaceAll(system.parts, " ", ","),
		"--include=" + strings.Join(slices.Compact(packages), ","),
		"--aptopt=Acquire::Languages { \"none\"; }", "--aptopt=Acquire::Retries \"3\"", "--aptopt=APT::Install-Recommends \"false\"",
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
		"--customize-hook=" + strings.ReplaceAll(kernelHook, "KERNEL", kernel), "--customize-hook=" + guestHook,
		r.Release, out}
	if r.Mirror != "" {
		argv = append(argv, "deb "+r.Mirror+" "+r.Release+" "+system.parts)
	}
	return [][]string{append(argv, r.Sources...)}
}

// kernelHook unpacks the newest kernel into the root. It is not installed, because its package would make an initramfs.
// Modules of Ubuntu are in a package of their own.
const kernelHook = `set -eu
root=$1
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
work=$root/bailey-kernel
mkdir "$work" && cd "$work"
image=$(apt-cache depends KERNEL | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
version=${image#linux-image-}
if apt-cache show "linux-modules-$version" >/dev/null 2>&1; then modules=linux-modules-$version; else modules=; fi
apt-get -qq -o APT::Sandbox::User=root download "$image" $modules
for deb in *.deb; do dpkg-deb -x "$deb" files; done
cp files/boot/vmlinuz-* "$root/boot/"
mkdir -p "$root/usr/lib/modules"
for dir in files/lib/modules/* files/usr/lib/modules/*; do
  if [ -d "$dir" ]; then cp -a "$dir" "$root/usr/lib/modules/"; fi
done
cd / && rm -rf "$work"
for dir in "$root"/usr/lib/modules/*; do chroot "$root" depmod "$(basename "$dir")"; done
`

// guestHook prepares the root for many machines: nothing that identifies one stays, and sshd makes its own keys.
const guestHook = `set -eu
root=$1
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/resolv.conf" "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
echo sandbox >"$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
mkdir -p "$root/etc/systemd/system/ssh.service.d"
printf '[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\nExecStartPre=/usr/sbin/sshd -t\n' \
  >"$root/etc/systemd/system/ssh.service.d/10-bailey.conf"
printf '[Match]\nName=e*\n[Network]\nDHCP=yes\n' >"$root/etc/systemd/network/90-bailey.network"
systemctl --root="$root" --quiet enable systemd-networkd.service
systemctl --root="$root" --quiet mask systemd-networkd-wait-online.service systemd-firstboot.service
`

// alpineCommands install with apk into a directory, which needs no root if all files belong to root.
func (r Recipe) alpineCommands(out string) [][]string {
	system, err := findSystem(r.OS)
	if err != nil {
		return nil
	}
	dir := out + ".root"
	packages := slices.Concat(system.base, []string{system.kernel}, r.Packages)
	slices.Sort(packages)
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[r.Arch]
	argv := []string{"apk", "--arch", arch, "--root", dir, "--keys-dir", "/usr/share/apk/keys/" + arch,
		"--initdb", "--usermode", "--no-cache",
		"--repository", r.Mirror + "/" + r.Release + "/main", "--repository", r.Mirror + "/" + r.Release + "/community", "add"}
	return [][]string{append(argv, slices.Compact(packages)...),
		{"tar", "--create", "--file", out, "--owner=0", "--group=0", "--numeric-owner", "--directory", dir, "."}}
}
