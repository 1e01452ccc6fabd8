package hostile

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// attacks lists all attacks: first those that run a program, then those that leak, then those that only the cage can
// stop.
func attacks() []attack {
	all := append(running(), signatures()...)
	all = append(all, fetching()...)
	all = append(all, submodules()...)
	all = append(all, leaking()...)
	return append(all, caged()...)
}

// set returns an attack that sets one key to the result of value, such as the path of the program.
func set(key string, value func(*builder) string) func(*builder) {
	return func(b *builder) { b.config(key, value(b)) }
}

func program(b *builder) string { return b.evil }
func shell(b *builder) string   { return b.command() + ";:" }

func status() []string { return []string{"status"} }
func diff() []string   { return []string{"diff"} }
func log() []string    { return []string{"log"} }
func show() []string   { return []string{"show", "HEAD"} }

func running() []attack {
	return []attack{
		{key: "core.fsmonitor", control: status(), build: set("core.fsmonitor", program)},
		{key: "include.path", control: status(), build: func(b *builder) {
			b.write("outside.config", "[core]\n\tfsmonitor = "+b.evil+"\n")
			b.config("include.path", "../../outside.config")
		}},
		{key: "includeIf", control: status(), build: func(b *builder) {
			b.write("outside.config", "[core]\n\tfsmonitor = "+b.evil+"\n")
			b.config("includeIf.gitdir:/**.path", "../../outside.config")
		}},
		{key: "extensions.worktreeConfig", control: status(), build: func(b *builder) {
			b.config("extensions.worktreeConfig", "true")
			b.write("repo/.git/config.worktree", "[core]\n\tfsmonitor = "+b.evil+"\n")
		}},
		{key: "core.hooksPath", control: status(), build: func(b *builder) {
			b.program(".git/elsewhere/post-index-change", "")
			b.config("core.hooksPath", ".git/elsewhere")
			b.touch()
		}},
		{key: "hooks/post-index-change", control: status(), build: func(b *builder) {
			b.program(".git/hooks/post-index-change", "")
			b.touch()
		}},
		{key: "diff hooks/post-index-change", control: diff(), build: func(b *builder) {
			b.program(".git/hooks/post-index-change", "")
			b.touch()
		}},
		{key: "core.pager", control: log(), tty: true, build: set("core.pager", shell)},
		{key: "pager.status", control: status(), tty: true, build: set("pager.status", shell)},
		{key: "pager.log", control: log(), tty: true, build: set("pager.log", shell)},
		{key: "pager.diff", control: diff(), tty: true, build: set("pager.diff", shell)},
		{key: "pager.show", control: show(), tty: true, build: set("pager.show", shell)},
		{key: "pager.branch", control: []string{"branch", "--list"}, tty: true, build: set("pager.branch", shell)},
		{key: "diff.external", control: diff(), build: set("diff.external", program)},
		{key: "diff.*.command", control: diff(), build: func(b *builder) {
			b.write("repo/.git/info/attributes", "* diff=evil\n")
			b.config("diff.evil.command", b.evil)
		}},
		{key: "diff.*.textconv", control: diff(), build: textconv},
		{key: "log diff.*.textconv", control: []string{"log", "-p"}, build: textconv},
		{key: "show diff.*.textconv", control: show(), build: textconv},
		{key: "core.attributesFile", control: status(), build: func(b *builder) {
			b.write("outside.attributes", "* filter=evil\n")
			b.config("core.attributesFile", filepath.Join(b.root, "outside.attributes"))
			b.config("filter.evil.clean", b.evil)
			b.touch()
		}},
		{key: "bare repository inside the tree", control: status(), build: func(b *builder) {
			b.look = filepath.Join(b.repo, "nested")
			b.in(b.repo, "", "clone", "--quiet", "--bare", ".", "nested")
			b.write("repo/nested/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "+b.evil+"\n")
			b.in(b.repo, "", "--git-dir=nested", "--work-tree=.", "-c", "core.fsmonitor=false", "reset", "--quiet")
		}},
	}
}

func textconv(b *builder) {
	b.write("repo/.git/info/attributes", "* diff=evil\n")
	b.config("diff.evil.textconv", b.evil)
}

// touch makes the index look stale before every query, so that git refreshes and writes it.
func (b *builder) touch() {
	b.write("repo/stale", "stale\n")
	b.git("add", "stale")
	b.git("commit", "--quiet", "--message=stale", "stale")
	at := time.Unix(1_000_000_000, 0)
	b.arm = func() {
		at = at.Add(time.Hour)
		b.check(os.Chtimes(filepath.Join(b.repo, "stale"), at, at))
		os.Remove(b.marker)
	}
	b.arm()
}

func signatures() []attack {
	pgp := "-----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
	x509 := "-----BEGIN SIGNED MESSAGE-----\n x\n -----END SIGNED MESSAGE-----"
	ssh := "-----BEGIN SSH SIGNATURE-----\n x\n -----END SSH SIGNATURE-----"
	signed := func(signature, key string) func(*builder) {
		return func(b *builder) {
			b.sign(signature)
			b.config("log.showSignature", "true")
			b.config(key, b.evil)
			b.config("gpg.ssh.allowedSignersFile", "/dev/null")
		}
	}
	return []attack{
		{key: "gpg.program", control: log(), build: signed(pgp, "gpg.program")},
		{key: "show gpg.program", control: show(), build: signed(pgp, "gpg.program")},
		{key: "gpg.openpgp.program", control: log(), build: signed(pgp, "gpg.openpgp.program")},
		{key: "gpg.x509.program", control: log(), build: signed(x509, "gpg.x509.program")},
		{key: "gpg.ssh.program", control: log(), build: signed(ssh, "gpg.ssh.program")},
		{key: "format.pretty", control: log(), build: func(b *builder) {
			b.sign(pgp)
			b.config("format.pretty", "%G? %s")
			b.config("gpg.program", b.evil)
		}},
	}
}

// sign adds a commit with the given signature.
func (b *builder) sign(signature string) {
	head := b.git("cat-file", "commit", "HEAD")
	headers, message, _ := strings.Cut(head, "\n\n")
	id := b.in(b.repo, headers+"\ngpgsig "+signature+"\n\n"+message+"\n", "hash-object", "-t", "commit", "-w", "--stdin")
	b.git("update-ref", "HEAD", id)
}

// fetching returns attacks through a promisor remote: when git shows a missing object, it fetches the object.
func fetching() []attack {
	missing := func(build func(*builder)) func(*builder) {
		return func(b *builder) {
			blob := b.git("rev-parse", "HEAD:file")
			b.check(os.Remove(filepath.Join(b.repo, ".git", "objects", blob[:2], blob[2:])))
			b.config("core.repositoryFormatVersion", "1")
			b.config("extensions.partialClone", "origin")
			b.config("remote.origin.promisor", "true")
			build(b)
		}
	}
	remote := func(url, key string, value func(*builder) string) func(*builder) {
		return missing(func(b *builder) {
			b.config("remote.origin.url", url)
			b.config(key, value(b))
		})
	}
	return []attack{
		{key: "core.sshCommand", control: show(), build: remote("ssh://host.invalid/x", "core.sshCommand", program)},
		{key: "core.gitProxy", control: show(), build: remote("git://host.invalid/x", "core.gitProxy", program)},
		{key: "remote.*.uploadpack", control: show(), build: remote(".", "remote.origin.uploadpack", program)},
		{key: "protocol.ext.allow", control: show(), build: missing(func(b *builder) {
			b.config("protocol.ext.allow", "always")
			b.config("remote.origin.url", "ext::"+b.evil)
		})},
		{key: "diff of a missing object", control: []string{"diff", "HEAD"}, build: remote("ssh://host.invalid/x", "core.sshCommand", program)},
		{key: "core.alternateRefsCommand", control: show(), build: missing(func(b *builder) {
			b.mkdir(filepath.Join(b.root, "other"))
			b.in(filepath.Join(b.root, "other"), "", "init", "--quiet")
			b.write("repo/.git/objects/info/alternates", filepath.Join(b.root, "other", ".git", "objects")+"\n")
			b.in(b.root, "", "clone", "--quiet", "--bare", "other", "upstream")
			b.config("remote.origin.url", filepath.Join(b.root, "upstream"))
			b.config("core.alternateRefsCommand", b.evil)
		})},
		{key: "credential.helper", control: show(), build: missing(func(b *builder) { b.asking("credential.helper", "!"+b.evil) })},
		{key: "core.askPass", control: show(), build: missing(func(b *builder) { b.asking("core.askPass", b.evil) })},
	}
}

// asking sets key and makes origin a server that requires a password.
func (b *builder) asking(key, value string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	b.t.Cleanup(server.Close)
	b.config("remote.origin.url", server.URL)
	b.config(key, value)
}
