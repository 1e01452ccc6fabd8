//go:build linux

package packs_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"mvdan.cc/sh/v3/shell"

	"bailey/internal/ktest"
	"bailey/internal/socketproxy"
	"bailey/pack"
)

// daemonAnswers are answers of a daemon by the end of the path, after the version.
var daemonAnswers = []struct{ method, suffix, body string }{
	{"GET", "_ping", "OK"},
	{"GET", "/containers/json", `[{"Id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","Names":["/cart"],"Image":"shop/cart:7","State":"running","Status":"Up","Created":1}]`},
	{"GET", "/images/json", `[{"Id":"sha256:bbbb","RepoTags":["shop/cart:7"],"Created":1,"Size":7}]`},
	{"GET", "/images/search", `[{"name":"cart","description":"x"}]`},
	{"GET", "/history", `[{"Id":"bbbb","CreatedBy":"cmd","Created":1,"Size":7}]`},
	{"GET", "/changes", `[{"Path":"/x","Kind":1}]`},
	{"GET", "/networks", `[{"Name":"shop","Id":"cccc","Driver":"bridge","Scope":"local"}]`},
	{"GET", "/volumes", `{"Volumes":[{"Name":"carts","Driver":"local"}]}`},
	{"GET", "/logs", ""},
	{"GET", "/events", ""},
	{"GET", "/cart/json", `{"Id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","Name":"/cart","Config":{},"State":{"Status":"running"},"HostConfig":{},"NetworkSettings":{"Ports":{"80/tcp":[{"HostIp":"0.0.0.0","HostPort":"8080"}]}}}`},
	{"DELETE", "/images/shop/cart:7", `[{"Untagged":"shop/cart:7"}]`},
}

// TestDaemonRequestsPass checks that a line and the call that it means send the same requests to a daemon and have the
// same output, with the call's requests sent through the gate's proxy. So the routes of a capability suffice for it.
func TestDaemonRequestsPass(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "docker")
	dir := t.TempDir()
	var mu sync.Mutex
	var told []string
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		told = append(told, fmt.Sprintf("%s %s?%s", r.Method, r.URL.Path, r.URL.Query().Encode()))
		mu.Unlock()
		rw.Header().Set("Api-Version", "1.41")
		rw.Header().Set("Ostype", "linux")
		rw.Header().Set("Content-Type", "application/json")
		for _, a := range daemonAnswers {
			if a.method == r.Method && strings.HasSuffix(r.URL.Path, a.suffix) {
				fmt.Fprint(rw, a.body)
				return
			}
		}
		last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case r.Method == "POST" && slices.Contains([]string{"start", "stop", "restart", "kill", "pause", "unpause", "rename"}, last), r.Method == "DELETE":
			rw.WriteHeader(http.StatusNoContent)
		case strings.HasPrefix(last, "none"):
			http.Error(rw, `{"message":"no such thing"}`, http.StatusNotFound)
		case r.Method != "HEAD":
			fmt.Fprint(rw, "{}")
		}
	})}
	daemon := filepath.Join(dir, "d.sock")
	ln, err := net.Listen("unix", daemon)
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	heard := func() []string {
		mu.Lock()
		defer mu.Unlock()
		list := told
		told = nil
		slices.Sort(list)
		return list
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C"}
	for i, line := range strings.Split(strings.TrimSpace(requestLines), "\n") {
		words, err := shell.Fields(line, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := outputOf(t, dir, slices.Concat(env, []string{"DOCKER_HOST=unix://" + daemon}), words[0], words[1:]...)
		asked := heard()
		found := pack.Meanings(catalog(t).All(), words)
		if len(found) != 1 || len(found[0].Inputs) != 1 || found[0].API() == nil {
			t.Errorf("%s: %d meanings, or one that asks no daemon", line, len(found))
			continue
		}
		j := job(t, found[0].ID, found[0].Inputs[0], nil)
		api := *found[0].API()
		api.Path = daemon
		way, err := socketproxy.New(socketproxy.Config{API: api})
		if err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(dir, fmt.Sprint(i, ".sock"))
		cage, err := net.Listen("unix", inside)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- way.Serve(ctx, []net.Listener{cage}) }()
		args := slices.Clone(j.Args)
		args[slices.Index(args, "unix:///run/bailey/docker.sock")] = "unix://" + inside
		got := outputOf(t, dir, slices.Concat(env, j.Env), j.Command, args...)
		cancel()
		<-served
		if again := heard(); got != want || !slices.Equal(again, asked) || len(asked) == 0 {
			t.Errorf("%s:\n%s\nwant\n%s\nrequests %q\nwant %q", line, got, want, again, asked)
		}
		if refused := way.Report().Refusals(); len(refused) > 0 {
			t.Errorf("%s: refused %q", line, refused)
		}
	}
}

const requestLines = `
docker ps -a --no-trunc --filter status=running --format '{{.Names}}'
docker ps -s
docker container ls -lq
docker images --digests
docker images shop/cart -q
docker inspect cart
docker inspect -f '{{.Id}}' cart --size
docker inspect --type image shop/cart:7
docker inspect none1
docker container inspect cart
docker image inspect shop/cart:7
docker image inspect none
docker history --no-trunc shop/cart:7
docker logs --tail 5 -t cart
docker logs -f --since 1h --until 1m cart
docker port cart
docker port cart 80/tcp
docker diff cart
docker search --limit 3 cart
docker events --since 2026-01-01T00:00:00Z --until 2026-01-01T01:00:00Z
docker network ls -q
docker network inspect shop
docker volume ls
docker volume inspect carts
docker info --format '{{.ID}}'
docker version --format '{{.Client.Version}}'
docker start cart
docker stop -t 2 cart
docker stop -s INT cart cart
docker restart cart
docker kill -s HUP cart
docker pause cart
docker unpause cart
docker rename cart till
docker tag shop/cart:7 registry.shop.example:5000/cart:latest
docker pull -q shop/cart:7
docker pull --platform linux/arm64 registry.shop.example:5000/cart:7
docker push registry.shop.example:5000/cart:7
docker commit -m x cart shop/cart:8
docker rm -fv cart
docker rmi -f shop/cart:7
docker network rm shop
docker volume rm -f carts
docker container prune -f --filter until=24h
docker image prune -af
docker volume prune -f
docker network prune -f
docker system prune -af --volumes
docker builder prune -f
docker image prune
`
