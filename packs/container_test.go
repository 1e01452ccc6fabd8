package packs_test

import (
	"strings"
	"testing"

	"mvdan.cc/sh/v3/shell"

	"bailey/pack"
)

// TestHost checks the command lines of the capabilities that act on this machine without asking a daemon through the
// gate.
func TestHost(t *testing.T) {
	var ids []string
	for _, m := range of(t, []string{"docker", "podman", "systemctl", "journalctl"}) {
		if m.API() == nil {
			ids = append(ids, string(m.ID))
		}
	}
	calls(t, "testdata/host.txt", ids)
}

// hostLines are command lines of tools that act on this machine, each with the capability that it means and its class.
// A - is a line that means none.
const hostLines = `
docker.ps readOnly docker container ls -aq --filter label=tier=web --filter status=running
docker.ps readOnly docker ps --no-trunc --format '{{json .}}'
docker.images readOnly docker images -q --filter dangling=true
docker.images readOnly docker image ls shop/cart
docker.inspect-any readOnly docker inspect --format '{{.NetworkSettings.IPAddress}}' cart till
docker.inspect-any readOnly docker inspect --type volume carts
docker.inspect readOnly docker container inspect -f '{{.State.ExitCode}}' cart
docker.logs readOnly docker logs -f --since=5m cart
docker.logs readOnly docker container logs --tail 20 --details cart
docker.stats readOnly docker stats --no-stream cart till
docker.stats readOnly docker stats --no-stream --all
- - docker stats
- - docker top cart -o pid,cmd
docker.port readOnly docker port cart 8443/tcp
docker.events readOnly docker events --since 2h --until 1h --filter type=container
docker.df readOnly docker system df --format json
docker.wait readOnly docker wait cart
docker.client-version readOnly docker --version
docker.start mutating docker start cart till
docker.stop mutating docker stop --time 3 cart
docker.restart mutating docker container restart cart
docker.kill mutating docker kill -s USR1 cart
docker.pull mutating docker pull -q --platform linux/arm64 registry.shop.example:5000/cart:7
docker.push mutating docker push registry.shop.example:5000/cart:7
docker.tag mutating docker image tag cart:7 registry.shop.example:5000/cart:latest
docker.commit mutating docker commit -m 'try this' cart shop/cart:try
docker.rm destructive docker container rm --force --volumes cart
docker.rmi destructive docker rmi shop/cart:6 shop/cart:7
docker.volume-rm destructive docker volume rm -f carts
docker.network-rm destructive docker network rm shop
docker.system-prune destructive docker system prune --all --force
docker.volume-prune destructive docker volume prune -af
docker.builder-prune destructive docker builder prune --filter until=72h -f
docker.run mutating docker run --rm --name once -e MODE=test -w /src --network shop shop/cart:7 make check -j4
docker.run mutating docker run -d --restart unless-stopped -p 127.0.0.1:6379:6379 -v caches:/data:rw redis:7-alpine
docker.run mutating docker run shop/cart:7 --privileged -v /:/host --network host
docker.run mutating docker run --rm --env-file conf/test.env --memory 512m --cpus 1.5 shop/cart:7
docker.run-host destructive docker run --rm -v /srv/shop:/srv shop/cart:7 ls /srv
docker.run-host destructive docker run --rm -v ./src:/src shop/cart:7
docker.run-host destructive docker run -v ../secret:/src shop/cart:7
docker.run-host destructive docker run -v caches:/data:rw,rshared shop/cart:7
docker.run-host destructive docker run --mount=type=bind,source=/,target=/h shop/cart:7
docker.run-host destructive docker run --rm --privileged shop/cart:7
docker.run-host destructive docker run --pid=host --rm shop/cart:7
docker.run-host destructive docker run --network host shop/cart:7
docker.run-host destructive docker run --net=container:till shop/cart:7
docker.run-host destructive docker run --cap-add ALL --rm shop/cart:7
docker.run-host destructive docker run --security-opt apparmor=unconfined shop/cart:7
docker.run-host destructive docker run --device=/dev/sda shop/cart:7
docker.run-host destructive docker run --rm -v /var/run/docker.sock:/var/run/docker.sock shop/cart:7
- - docker run -it --rm shop/cart:7 sh
- - docker run -ti shop/cart:7
- - docker run --interactive shop/cart:7
- - docker run --network '"name=host"' shop/cart:7
- - docker run --network name=host,alias=x shop/cart:7
- - docker run --env-file /root/.netrc shop/cart:7
- - docker run --env-file=../prod.env shop/cart:7
- - docker run --cidfile x shop/cart:7
- - docker run --use-api-socket shop/cart:7
- - docker run --log-driver=syslog shop/cart:7
docker.exec mutating docker exec -u app -e A=b cart bin/console cache:clear --env=prod
- - docker exec -it cart bash
- - docker exec -ti cart bash
- - docker exec --tty cart bash
- - docker exec --privileged cart id
docker.build mutating docker build -t shop/cart:7 -f build/Dockerfile --build-arg REV=abc --target test services/cart
docker.build mutating docker build --pull --no-cache .
- - docker build -f ../Dockerfile .
- - docker build --secret id=k,src=/root/.ssh/id_ed25519 .
- - docker build --ssh default .
- - docker build --network host .
- - docker build --allow=security.insecure .
- - docker build --build-context all=/ .
- - docker build --output type=local,dest=/etc .
- - docker build https://git.shop.example/cart.git
- - docker build git@git.shop.example:cart.git
- - docker build -
docker.buildx-build mutating docker buildx build --platform linux/amd64,linux/arm64 --push -t registry.shop.example/cart:7 .
- - docker buildx build --cache-from type=local,src=/root .
- - docker buildx build --cache-to type=local,dest=/root .
docker.cp-out mutating docker cp cart:/var/log/cart.log logs/
docker.cp-in mutating docker cp conf/cart.toml cart:/etc/cart.toml
- - docker cp cart:/x /etc/x
- - docker cp /root/.ssh cart:/x
- - docker cp ../x cart:/x
docker.save mutating docker save -o out/cart.tar shop/cart:7
- - docker save -o /tmp/cart.tar shop/cart:7
docker.volume-create additive docker volume create --label app=shop carts
- - docker volume create -o type=none -o device=/ -o o=bind carts
docker.network-create additive docker network create --subnet 10.9.0.0/24 shop
- - docker network create -d ipvlan -o parent=eth0 shop
- - docker -H tcp://shop.example:2375 ps
- - docker --host=tcp://shop.example:2375 ps
- - docker --config x ps
- - docker login registry.shop.example
- - docker attach cart
docker.compose-up mutating docker compose -p shop --profile dev up -d --build --wait cart
docker.compose-up mutating docker compose up
docker.compose-up-remove destructive docker compose up -d --remove-orphans cart
docker.compose-up-remove destructive docker compose up -V
docker.compose-up-remove destructive docker compose up -d --scale cart=0
docker.search readOnly docker search shop/cart
docker.search readOnly docker search docker.io/shop/cart
docker.search readOnly docker search node.js
- - docker search shop.example/cart
- - docker search localhost/cart
podman.search readOnly podman search --limit 3 quay.io/shop/cart
podman.search readOnly podman search cart
- - podman search shop.example/cart
- - podman search shop.example:5000/cart
podman.run mutating podman run --rm -e MODE=a*b -e HOME cart
- - podman run --rm -e '*' cart
- - podman run --rm --env 'SHOP*' cart
- - podman exec -e '*' cart env
docker.compose-down destructive docker compose down
docker.compose-down destructive docker compose -f a.yml -f b/c.yml down --volumes --rmi local
docker.compose-logs readOnly docker compose logs --no-color --tail 30 -f cart till
docker.compose-ps readOnly docker compose ps --format json
docker.compose-config readOnly docker compose --env-file test.env config --services
docker.compose-restart mutating docker compose restart -t 2 cart
docker.compose-build mutating docker compose build --pull cart
docker.compose-run mutating docker compose run --rm -e CI=1 cart pytest -x --pdbcls=a tests
docker.compose-run mutating docker compose run --rm cart
docker.compose-exec mutating docker compose exec -T db psql -U shop -f -
docker.compose-exec mutating docker compose exec db psql -U shop -c 'select 1'
docker.compose-exec mutating docker compose exec cart bash -c 'ls; id'
docker.compose-exec mutating docker compose exec cart python tool.py --all
docker.compose-exec mutating docker compose exec cart env
- - docker compose exec cart bash
- - docker compose exec -u root cart /bin/sh
- - docker compose exec db mysql -u shop -p
- - docker compose exec cart python
- - docker compose exec cart python -i tool.py
- - docker compose exec cart python manage.py shell
- - docker compose exec cart bin/rails console
- - docker compose exec cart su -c psql postgres
- - docker compose run --rm cart sh
- - docker compose run --entrypoint sh cart
- - docker compose run -v /:/host cart ls
- - docker compose run --cap-add ALL cart ls
- - docker compose -f /srv/other.yml up
- - docker compose -f ../other.yml ps
- - docker compose -f https://shop.example/compose.git config
- - docker compose -f oci://shop.example/app up
- - docker compose --project-directory / up
- - docker compose config -o /etc/x
podman.ps readOnly podman ps -a --sort names --format '{{.Names}}'
podman.images readOnly podman image ls --noheading
podman.inspect-any readOnly podman inspect cart
podman.logs readOnly podman logs -f --tail 5 cart
podman.pods readOnly podman pod ls --ctr-names
podman.generate readOnly podman kube generate cart
podman.image-exists readOnly podman image exists cart:7
podman.stop mutating podman stop -t 3 cart till
podman.start mutating podman start cart
podman.pull mutating podman pull --quiet registry.shop.example/cart:7
podman.push mutating podman push cart:7 docker://registry.shop.example/cart:7
- - podman push cart:7 dir:/etc/x
- - podman push cart:7 oci-archive:/tmp/x
- - podman push --authfile /root/auth.json cart:7
- - podman pull --creds me:pw cart:7
podman.rm destructive podman rm -fv cart
podman.rmi destructive podman rmi -a
podman.system-prune destructive podman system prune -af --volumes
podman.pod-rm destructive podman pod rm --force shop
podman.run mutating podman run --rm --userns=keep-id -e A=b -v carts:/data:Z shop/cart:7 bin/cart --check
podman.run-host destructive podman run --rm -v ./src:/src:Z shop/cart:7
podman.run-host destructive podman run --userns=host shop/cart:7
podman.run-host destructive podman run --network=ns:/proc/1/ns/net shop/cart:7
podman.run-host destructive podman run --replace --name cart shop/cart:7
podman.run-host destructive podman run --privileged shop/cart:7
- - podman run -it shop/cart:7
- - podman run --hooks-dir /tmp/x shop/cart:7
- - podman run --rootfs /
podman.exec mutating podman exec cart nginx -s reload
podman.healthcheck-run mutating podman healthcheck run cart
podman.build mutating podman build -t cart:7 -f Containerfile --build-arg A=b services/cart
- - podman build -v /:/host .
- - podman build --hooks-dir x .
- - podman build -f /etc/x .
podman.kube-play mutating podman play kube deploy/shop.yaml
podman.kube-down destructive podman kube play --down deploy/shop.yaml
- - podman --url ssh://shop.example/run/podman.sock ps
- - podman --connection prod ps
- - podman --root /x ps
- - podman unshare id
- - podman login registry.shop.example
systemctl.status readOnly systemctl --no-pager status cart.service till
systemctl.status readOnly systemctl status -n 50 -l cart
systemctl.is-active readOnly systemctl is-active --quiet cart
systemctl.list-units readOnly systemctl list-units --type=timer --state=active --no-legend
systemctl.list-units readOnly systemctl --failed --plain
systemctl.list-unit-files readOnly systemctl list-unit-files 'cart*'
systemctl.show readOnly systemctl show cart --property=NRestarts --value
systemctl.cat readOnly systemctl cat cart@7.service
systemctl.restart mutating systemctl restart cart@7.service till
systemctl.restart mutating systemctl --user restart cart.socket
systemctl.enable mutating systemctl enable --now cart.timer
systemctl.daemon-reload mutating systemctl daemon-reload
systemctl.kill mutating systemctl kill --signal=HUP cart
- - systemctl start reboot.target
- - systemctl start poweroff.target cart
- - systemctl kill --signal=RTMIN+4 init.scope
- - systemctl stop system.slice
- - systemctl stop user@1000
- - systemctl stop user@1000.service
- - systemctl restart systemd-halt.service
- - systemctl start systemd-kexec
- - systemctl stop '*'
- - systemctl stop 'cart@*'
- - systemctl enable /tmp/cart.service
- - systemctl enable ./cart.service
- - systemctl enable --force cart
- - systemctl --job-mode=isolate start cart
- - systemctl mask cart
- - systemctl isolate multi-user.target
- - systemctl set-default graphical.target
- - systemctl reboot
- - systemctl poweroff
- - systemctl kexec
- - systemctl edit cart
- - systemctl --host shop.example status cart
- - systemctl -H shop.example status cart
- - systemctl -M cart status
- - systemctl --root=/srv list-unit-files
- - systemctl --image=x list-unit-files
- - systemctl start --root=/srv cart
journalctl.read readOnly journalctl -fu cart.service -o cat
journalctl.read readOnly journalctl -u cart -u till --since '2 hours ago' --no-pager
journalctl.read readOnly journalctl -b -2 -k -p err..alert
journalctl.read readOnly journalctl -b 0 -n 10
journalctl.read readOnly journalctl _SYSTEMD_UNIT=cart.service _PID=7 + _COMM=till
journalctl.read readOnly journalctl -g 'timed out' -S -1h -r -q
journalctl.vacuum destructive journalctl --rotate --vacuum-files=3
journalctl.vacuum destructive journalctl --vacuum-size 200M
journalctl.maintain destructive journalctl --sync
- - journalctl --directory=/srv/journal
- - journalctl -D /srv/journal
- - journalctl --file /etc/shadow
- - journalctl --root=/srv
- - journalctl --cursor-file=x -n1
- - journalctl -M cart
- - journalctl --setup-keys
- - journalctl -u cart --vacuum-time=1d
`

// TestHostLines checks the capability and the class of command lines that act on this machine.
func TestHostLines(t *testing.T) {
	for line := range strings.Lines(hostLines) {
		want, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		class, text, _ := strings.Cut(rest, " ")
		if text == "" {
			continue
		}
		words, err := shell.Fields(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range pack.Meanings(catalog(t).All(), words) {
			for _, input := range m.Inputs {
				if _, err := m.Check(input, true); err == nil {
					got = append(got, string(m.ID)+" "+string(m.SideEffect))
				}
			}
		}
		if all := strings.Join(got, ", "); all != want+" "+class && (want != "-" || all != "") {
			t.Errorf("%s means %q, want %s %s", text, all, want, class)
		}
	}
}

// TestHostLinesKeepTheirOptions checks that a call has the options of its line, and no word is in another place where
// that matters.
func TestHostLinesKeepTheirOptions(t *testing.T) {
	for line, want := range map[string]string{
		"docker run --rm -p 80:80 a/b -p x --rm -- y":    "container run --rm -p80:80 a/b -p x --rm -- y",
		"docker run --network=host --rm a/b ls -l":       "container run --rm --network=host a/b ls -l",
		"docker exec -w /x web ls -w 5":                  "container exec -w/x web ls -w 5",
		"docker compose -p s exec -T web sh -c id -x":    "compose -ps exec -T web sh -c id -x",
		"docker logs web":                                "--host unix:///run/bailey/docker.sock container logs web",
		"docker history a/b":                             "--host unix:///run/bailey/docker.sock image history a/b",
		"podman run --rm x y --rm":                       "--remote run --rm x y --rm",
		"systemctl --user -l status web":                 "status --user -l web",
		"journalctl -b -1 -u web -n 5 A=b":               "-b -1 -uweb -n5 A=b",
		"docker build -t a -f x/Dockerfile --pull build": "build -ta -fx/Dockerfile --pull /w/build",
	} {
		words, _ := shell.Fields(line, nil)
		found := pack.Meanings(catalog(t).All(), words)
		if len(found) != 1 || len(found[0].Inputs) != 1 {
			t.Errorf("%s: %d meanings", line, len(found))
			continue
		}
		input, paths := found[0].Inputs[0], map[string]string{}
		for _, in := range found[0].PathInputs() {
			if v, ok := input[in.Name].(string); ok {
				paths[in.Name] = "/w/" + v
			}
		}
		if got := strings.Join(job(t, found[0].ID, input, paths).Args, " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
