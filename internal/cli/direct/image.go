package direct

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/image"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// imageVerb is the group of commands for images of machines. They work in their own process: building takes minutes.
func (a *commands) imageVerb() *cobra.Command {
	var dir string
	group := cli.GroupVerb("image", "Build, import and list images of sandboxes", "", a.imageBuildVerb(&dir),
		a.imageImportVerb(&dir), a.imageSourceVerb(&dir),
		a.imageListVerb(&dir), a.imageShowVerb(&dir), a.imageVerifyVerb(&dir), a.imageRemoveVerb(&dir))
	group.PersistentFlags().StringVar(&dir, "images", "", "the `directory` of images, $BAILEY_HOME/images by default")
	return group
}

// openImages returns the store of images.
func openImages(dir string) (*image.Store, error) {
	if dir == "" {
		home, err := localapi.FindHome()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(string(home), "images")
	}
	return image.Open(dir)
}

// openMaker returns the maker of images for an operator. Each image is recorded in the ledger before it is added.
func (a *commands) openMaker(ctx context.Context, words, dir string) (*image.Maker, error) {
	op, client, err := a.OperatorClient(words)
	if err != nil {
		return nil, err
	}
	store, err := openImages(dir)
	if err != nil {
		return nil, err
	}
	return &image.Maker{Store: store,
		Agent: func(arch string) (string, error) { return findBeside("bailey-guest", arch) },
		Progress: func(step string) {
			if !a.JSON {
				fmt.Fprintf(a.Stderr, "bailey: %s\n", terminal.Shown(step))
			}
		},
		Record: func(i image.Image) error {
			_, err := apitype.RecordImage.Do(ctx, client, op, apitype.ImageChange{Action: "add", Name: i.Name,
				Digest: i.Digest,
				OS:     i.OS, Release: i.Release, From: i.From})
			return err
		}}, nil
}

func (a *commands) imageBuildVerb(dir *string) *cobra.Command {
	var b image.Build
	var minimal image.MinimalConfig
	var disk string
	cmd := &cobra.Command{
		Use: "build debian|ubuntu|alpine|minimal", Short: "Build an image from the packages of a distribution",
		Long: `Build an image from the packages of a distribution, with systemd and sshd. mmdebstrap fetches and unpacks the packages,
which needs no root and takes minutes; the result is kept for a week. Images of ubuntu (mmdebstrap with Ubuntu's keys) and
alpine (apk-tools 3 with Alpine's keys) are untested.

minimal is a kernel with the agent only, and busybox if --tools names it: it boots in a second and needs no packages.`,
		Example: "  bailey image build debian --package nginx\n  bailey image build minimal --kernel ./vmlinuz --tools ./busybox",
		Args:    cli.OneArg("a distribution, for example: bailey image build debian"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			maker, err := a.openMaker(cmd.Context(), "image build", *dir)
			if err != nil {
				return err
			}
			b.Recipe.OS, b.Name = args[0], cmp.Or(b.Name, args[0])
			if args[0] == image.Minimal {
				return a.buildMinimal(cmd.Context(), maker, b, minimal)
			}
			if minimal.Kernel != "" || minimal.Tools != "" {
				return bailey.Invalid.New("only a minimal image has --kernel and --tools", "leave them out")
			}
			if b.DiskBytes, err = parseSize(disk); err != nil {
				return err
			}
			i, err := maker.Build(cmd.Context(), b)
			return a.printAdded(i, err)
		},
	}
	f := cmd.Flags()
	addNames(f.StringVar, &b.Name, &b.Recipe.Arch)
	f.StringVar(&b.Recipe.Release, "release", "", "the `release`, for example bookworm")
	f.StringVar(&b.Recipe.Mirror, "mirror", "", "the only `address` of packages, instead of those of the distribution")
	f.StringArrayVar(&b.Recipe.Packages, "package", nil, "one more `package`, NAME or NAME=VERSION; may be repeated")
	f.StringVar(&disk, "disk", "", "the `size` of the disk, 8G by default")
	f.BoolVar(&b.Fresh, "fresh", false, "fetch the packages again")
	f.StringVar(&minimal.Kernel, "kernel", "", "minimal: the `file` of a kernel with virtio built in")
	f.StringVar(&minimal.Tools, "tools", "", "minimal: the `file` of a busybox that is statically linked")
	cmd.ValidArgs = []string{"debian", "ubuntu", "alpine", image.Minimal}
	return a.OperatorVerb(cmd)
}

// addNames adds the flags that all images have.
func addNames(add func(p *string, name, value, usage string), name, arch *string) {
	add(name, "name", "", "the `name` of the image")
	add(arch, "arch", hostArchitecture(), "the `architecture`, amd64 or arm64")
}

// hostArchitecture is the architecture of new images, unless another is named.
func hostArchitecture() string {
	if runtime.GOARCH == "arm64" {
		return "arm64"
	}
	return "amd64"
}

func (a *commands) buildMinimal(ctx context.Context, maker *image.Maker, b image.Build, c image.MinimalConfig) error {
	if c.Kernel == "" {
		return bailey.Invalid.New("a minimal image needs a kernel", "name its file: --kernel ./vmlinuz")
	}
	agent, err := maker.Agent(b.Recipe.Arch)
	if err != nil {
		return err
	}
	c.Name, c.Arch, c.Agent, c.Record = b.Name, b.Recipe.Arch, agent, maker.Record
	c.From = "kernel " + filepath.Base(c.Kernel)
	i, err := maker.Store.AddMinimal(ctx, c)
	return a.printAdded(i, err)
}

// parseSize returns the bytes of a size such as 8G; 0 if it is empty.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number, shift := text, 0
	for i, unit := range []string{"K", "M", "G", "T"} {
		if rest, ok := strings.CutSuffix(text, unit); ok {
			number, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)>>shift {
		return 0, bailey.Invalid.Errorf("use a number with K, M, G or T, for example 8G", "%.40q is not a size", text)
	}
	return n << shift, nil
}

func (a *commands) imageImportVerb(dir *string) *cobra.Command {
	var im image.Import
	var disk, connect string
	var unbooted bool
	cmd := &cobra.Command{
		Use: "import FILE|libvirt://HOST/MACHINE|proxmox://HOST/NUMBER", Short: "Import a disk or a container image",
		Long: `Import a disk (qcow2, raw, vmdk) or a container image (an OCI archive). The format follows from the name of the file, or
from --format; it is never guessed from the content. A disk that is based on another file, or whose data is in another, is
refused. Its root must be ext4, on a partition or on the whole disk.

libvirt://web1/shop imports the disk of a machine on the libvirt host web1, with your own login, and
proxmox://root@pve1/101/scsi0 one of a Proxmox VE host. A running machine continues to run: its disk is copied by a backup
job.

At the end, a machine is started from the image, to see that it boots; if it does not, the image stays for you to look at.

The guest starts with the kernel of an image of this store, or with the file of a kernel that has virtio and ext4 built in.
The init of a container image is its /sbin/init, or the agent.`,
		Example: "  bailey image import web.qcow2 --name web\n  podman save --format oci-archive -o web.tar web && bailey image import web.tar",
		Args:    cli.OneArg("a file, for example: bailey image import web.qcow2"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			maker, err := a.openMaker(cmd.Context(), "image import", *dir)
			if err != nil {
				return err
			}
			base, done, err := setSource(cmd.Context(), maker, &im, args[0], connect)
			if err != nil {
				return err
			}
			defer done()
			im.Name = cmp.Or(im.Name, strings.TrimSuffix(base, filepath.Ext(base)))
			if im.DiskBytes, err = parseSize(disk); err != nil {
				return err
			}
			i, err := maker.Import(cmd.Context(), im)
			if err == nil && !unbooted {
				_, err = a.bootImage(cmd.Context(), "image import", i)
			}
			return a.printAdded(i, err)
		},
	}
	f := cmd.Flags()
	addNames(f.StringVar, &im.Name, &im.Arch)
	f.BoolVar(&unbooted, "no-boot", false, "do not check that a machine starts from the image")
	f.StringVar(&connect, "connect", "", "the `address` of libvirt on its host, qemu:///system by default")
	f.StringVar(&im.Format, "format", "", "the `format`: raw, qcow2, vmdk or oci")
	f.StringVar(&im.Kernel, "kernel", "",
		"the `image` whose kernel is used, or the file of a kernel, with a / in its path")
	f.StringVar(&im.Init, "init", "", "the `path` of the init of a disk, /sbin/init by default")
	f.StringVar(&disk, "disk", "", "the `size` of the disk of a container image, 8G by default")
	return a.OperatorVerb(cmd)
}

// printAdded prints an image that was added.
func (a *commands) printAdded(i image.Image, err error) error {
	if err != nil {
		return err
	}
	return a.PrintLine(i, "%s is ready: %s %s for %s, digest %.12s. Try: bailey sandbox create --image %[1]s\n", i.Name,
		terminal.Shown(i.OS), terminal.Shown(i.Release), i.Arch, i.Digest)
}

func (a *commands) imageListVerb(dir *string) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the images of sandboxes", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			store, err := openImages(*dir)
			if err != nil {
				return err
			}
			list, err := store.List()
			if err != nil {
				return err
			}
			return cli.PrintAnswer(a.App, list, func(w io.Writer, list []image.Image) {
				if len(list) == 0 {
					fmt.Fprintln(w, "there are no images: bailey image build debian makes one")
					return
				}
				cli.PrintTable(w, "IMAGE\tSYSTEM\tARCH\tSIZE\tBUILT\tDIGEST", list, func(i image.Image) []any {
					if i.Problem != "" {
						return []any{i.Name, "damaged", "", "", "", terminal.Shown(i.Problem)}
					}
					return []any{i.Name, terminal.Shown(strings.TrimSpace(i.OS + " " + i.Release)), i.Arch,
						fmt.Sprintf("%d MB", i.Size>>20),
						i.Built.Local().Format(time.DateOnly), i.Digest[:12]}
				})
			})
		}}
}

func (a *commands) imageShowVerb(dir *string) *cobra.Command {
	return &cobra.Command{Use: "show NAME", Short: "Show an image, and compare its files with their digests",
		Args: cli.OneArg("an image, for example: bailey image show debian"), ValidArgsFunction: completeImages(dir),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := openImages(*dir)
			if err != nil {
				return err
			}
			i, err := store.Get(args[0])
			if err != nil {
				return err
			}
			return cli.PrintAnswer(a.App, i, func(w io.Writer, i image.Image) {
				fmt.Fprintf(w,
					"image    %s\nsystem   %s\narch     %s\ndigest   %s\nmemory   at least %d MB\ndisk     %d MB\nsize     %d MB\nbuilt    %s\nfrom     %s\n",
					i.Name, terminal.Shown(strings.TrimSpace(i.OS+" "+i.Release)), i.Arch, i.Digest, i.MemoryMB, i.DiskBytes>>20, i.Size>>20,
					i.Built.Local().Format(time.DateTime), terminal.Shown(i.From))
			})
		}}
}

func (a *commands) imageRemoveVerb(dir *string) *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "remove NAME", Short: "Remove an image that no sandbox uses", Args: cli.OneArg("an image, for example: bailey image remove debian"),
		ValidArgsFunction: completeImages(dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, client, err := a.OperatorClient("image remove")
			if err != nil {
				return err
			}
			store, err := openImages(*dir)
			if err != nil {
				return err
			}
			change := apitype.ImageChange{Action: "remove", Name: args[0]}
			if i, err := store.Get(args[0]); err == nil {
				change.Digest, change.OS, change.Release = i.Digest, i.OS, i.Release
			}
			if err := a.Confirm(cmd.Context(), fmt.Sprintf("Remove the image %.80q?", args[0])); err != nil {
				return err
			}
			err = store.Remove(args[0], func() error {
				_, err := apitype.RecordImage.Do(cmd.Context(), client, op, change)
				return err
			})
			if err != nil {
				return err
			}
			return a.PrintLine(change, "removed %s\n", args[0])
		},
	})
}

// completeImages completes names of images.
func completeImages(dir *string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		store, err := openImages(*dir)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, _ := store.List()
		for _, i := range list {
			names = append(names, i.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
