package hostile

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// allAttacks lists all attacks: first those that run a program, then those that leak, then those that only the cage can
// stop.
func allAttacks() []attack {
	all := append(programAttacks(), signatureAttacks()...)
	all = append(all, fetchAttacks()...)
	all = append(all, submoduleAttacks()...)
	all = append(all, leakAttacks()...)
	return append(all, cageAttacks()...)
}

// setKey returns an attack that sets one key to the result of value, such as the path of the program.
func setKey(key string, value func(*builder) string) func(*builder) {
	return func(b *builder) { b.setConfig(key, value(b)) }
}

func evilProgram(b *builder) string { return b.evil }
func evilShell(b *builder) string   { return b.markerCommand() + ";:" }

func statusArgs() []string { return []string{"status"} }
func diffArgs() []string   { return []string{"diff"} }
func logArgs() []string    { return []string{"log"} }
func showArgs() []string   { return []string{"show", "HEAD"} }

func programAttacks() []attack {
	return []attack{
		{key: "core.fsmonitor", control: statusArgs(), build: setKey("core.fsmonitor", evilProgram)},
		{key: "include.path", control: statusArgs(), build: func(b *builder) {
			b.writeFile("outside.config", "[core]\n\tfsmonitor = "+b.evil+"\n")
			b.setConfig("include.path", "../../outside.config")
		}},
		{key: "includeIf", control: statusArgs(), build: func(b *builder) {
			b.writeFile("outside.config", "[core]\n\tfsmonitor = "+b.evil+"\n")
			b.setConfig("includeIf.gitdir:/**.path", "../../outside.config")
		}},
		{key: "extensions.worktreeConfig", control: statusArgs(), build: func(b *builder) {
			b.setConfig("extensions.worktreeConfig", "true")
			b.writeFile("repo/.git/config.worktree", "[core]\n\tfsmonitor = "+b.evil+"\n")
		}},
		{key: "core.hooksPath", control: statusArgs(), build: func(b *builder) {
			b.writeProgram(".git/elsewhere/post-index-change", "")
			b.setConfig("core.hooksPath", ".git/elsewhere")
			b.makeIndexStale()
		}},
		{key: "hooks/post-index-change", control: statusArgs(), build: func(b *builder) {
			b.writeProgram(".git/hooks/post-index-change", "")
			b.makeIndexStale()
		}},
		{key: "diff hooks/post-index-change", control: diffArgs(), build: func(b *builder) {
			b.writeProgram(".git/hooks/post-index-change", "")
			b.makeIndexStale()
		}},
		{key: "core.pager", control: logArgs(), tty: true, build: setKey("core.pager", evilShell)},
		{key: "pager.status", control: statusArgs(), tty: true, build: setKey("pager.status", evilShell)},
		{key: "pager.log", control: logArgs(), tty: true, build: setKey("pager.log", evilShell)},
		{key: "pager.diff", control: diffArgs(), tty: true, build: setKey("pager.diff", evilShell)},
		{key: "pager.show", control: showArgs(), tty: true, build: setKey("pager.show", evilShell)},
		{key: "pager.branch", control: []string{"branch", "--list"}, tty: true,
			build: setKey("pager.branch", evilShell)},
		{key: "diff.external", control: diffArgs(), build: setKey("diff.external", evilProgram)},
		{key: "diff.*.command", control: diffArgs(), build: func(b *builder) {
			b.writeFile("repo/.git/info/attributes", "* diff=evil\n")
			b.setConfig("diff.evil.command", b.evil)
		}},
		{key: "diff.*.textconv", control: diffArgs(), build: buildTextconv},
		{key: "log diff.*.textconv", control: []string{"log", "-p"}, build: buildTextconv},
		{key: "show diff.*.textconv", control: showArgs(), build: buildTextconv},
		{key: "core.attributesFile", control: statusArgs(), build: func(b *builder) {
			b.writeFile("outside.attributes", "* filter=evil\n")
			b.setConfig("core.attributesFile", filepath.Join(b.root, "outside.attributes"))
			b.setConfig("filter.evil.clean", b.evil)
			b.makeIndexStale()
		}},
		{key: "bare repository inside the tree", control: statusArgs(), build: func(b *builder) {
			b.look = filepath.Join(b.repo, "nested")
			b.runGitIn(b.repo, "", "clone", "--quiet", "--bare", ".", "nested")
			b.writeFile("repo/nested/config",
				"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "+b.evil+"\n")
			b.runGitIn(b.repo, "", "--git-dir=nested", "--work-tree=.", "-c", "core.fsmonitor=false", "reset",
				"--quiet")
		}},
	}
}

func buildTextconv(b *builder) {
	b.writeFile("repo/.git/info/attributes", "* diff=evil\n")
	b.setConfig("diff.evil.textconv", b.evil)
}

// makeIndexStale makes the index look stale before every query, so that git refreshes and writes it.
func (b *builder) makeIndexStale() {
	b.writeFile("repo/stale", "stale\n")
	b.runGit("add", "stale")
	b.runGit("commit", "--quiet", "--message=stale", "stale")
	at := time.Unix(1_000_000_000, 0)
	b.arm = func() {
		at = at.Add(time.Hour)
		b.failOnError(os.Chtimes(filepath.Join(b.repo, "stale"), at, at))
		os.Remove(b.marker)
	}
	b.arm()
}

func signatureAttacks() []attack {
	pgp := "-----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
	x509 := "-----BEGIN SIGNED MESSAGE-----\n x\n -----END SIGNED MESSAGE-----"
	ssh := "-----BEGIN SSH SIGNATURE-----\n x\n -----END SSH SIGNATURE-----"
	signed := func(signature, key string) func(*builder) {
		return func(b *builder) {
			b.addSignedCommit(signature)
			b.setConfig("log.showSignature", "true")
			b.setConfig(key, b.evil)
			b.setConfig("gpg.ssh.allowedSignersFile", "/dev/null")
		}
	}
	return []attack{
		{key: "gpg.program", control: logArgs(), build: signed(pgp, "gpg.program")},
		{key: "show gpg.program", control: showArgs(), build: signed(pgp, "gpg.program")},
		{key: "gpg.openpgp.program", control: logArgs(), build: signed(pgp, "gpg.openpgp.program")},
		{key: "gpg.x509.program", control: logArgs(), build: signed(x509, "gpg.x509.program")},
		{key: "gpg.ssh.program", control: logArgs(), build: signed(ssh, "gpg.ssh.program")},
		{key: "format.pretty", control: logArgs(), build: func(b *builder) {
			b.addSignedCommit(pgp)
			b.setConfig("format.pretty", "%G? %s")
			b.setConfig("gpg.program", b.evil)
		}},
	}
}

// addSignedCommit adds a commit with the given signature.
func (b *builder) addSignedCommit(signature string) {
	head := b.runGit("cat-file", "commit", "HEAD")
	headers, message, _ := strings.Cut(head, "\n\n")
	id := b.runGitIn(b.repo, headers+"\ngpgsig "+signature+"\n\n"+message+"\n", "hash-object", "-t", "commit", "-w",
		"--stdin")
	b.runGit("update-ref", "HEAD", id)
}

// fetchAttacks returns attacks through a promisor remote: when git shows a missing object, it fetches the object.
func fetchAttacks() []attack {
	missing := func(build func(*builder)) func(*builder) {
		return func(b *builder) {
			blob := b.runGit("rev-parse", "HEAD:file")
			b.failOnError(os.Remove(filepath.Join(b.repo, ".git", "objects", blob[:2], blob[2:])))
			b.setConfig("core.repositoryFormatVersion", "1")
			b.setConfig("extensions.partialClone", "origin")
			b.setConfig("remote.origin.promisor", "true")
			build(b)
		}
	}
	remote := func(url, key string, value func(*builder) string) func(*builder) {
		return missing(func(b *builder) {
			b.setConfig("remote.origin.url", url)
			b.setConfig(key, value(b))
		})
	}
	return []attack{
		{key: "core.sshCommand", control: showArgs(),
			build: remote("ssh://host.invalid/x", "core.sshCommand", evilProgram)},
		{key: "core.gitProxy", control: showArgs(),
			build: remote("git://host.invalid/x", "core.gitProxy", evilProgram)},
		{key: "remote.*.uploadpack", control: showArgs(), build: remote(".", "remote.origin.uploadpack", evilProgram)},
		{key: "protocol.ext.allow", control: showArgs(), build: missing(func(b *builder) {
			b.setConfig("protocol.ext.allow", "always")
			b.setConfig("remote.origin.url", "ext::"+b.evil)
		})},
		{key: "diff of a missing object", control: []string{"diff", "HEAD"},
			build: remote("ssh://host.invalid/x", "core.sshCommand", evilProgram)},
		{key: "core.alternateRefsCommand", control: showArgs(), build: missing(func(b *builder) {
			b.makeDir(filepath.Join(b.root, "other"))
			b.runGitIn(filepath.Join(b.root, "other"), "", "init", "--quiet")
			b.writeFile("repo/.git/objects/info/alternates", filepath.Join(b.root, "other", ".git", "objects")+"\n")
			b.runGitIn(b.root, "", "clone", "--quiet", "--bare", "other", "upstream")
			b.setConfig("remote.origin.url", filepath.Join(b.root, "upstream"))
			b.setConfig("core.alternateRefsCommand", b.evil)
		})},
		{key: "credential.helper", control: showArgs(),
			build: missing(func(b *builder) { b.requirePassword("credential.helper", "!"+b.evil) })},
		{key: "core.askPass", control: showArgs(),
			build: missing(func(b *builder) { b.requirePassword("core.askPass", b.evil) })},
	}
}

// requirePassword sets key and makes origin a server that requires a password.
func (b *builder) requirePassword(key, value string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	b.t.Cleanup(server.Close)
	b.setConfig("remote.origin.url", server.URL)
	b.setConfig(key, value)
}
