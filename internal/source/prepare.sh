# Prepares a source host, in POSIX shell. The caller appends one of the functions at the end. Each can be repeated; each
# records what it adds before it adds it, so that roll_back and remove_all remove exactly that.
set -eu
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C

account=bailey-readonly
shell=/usr/local/bin/bailey-readonly-shell
comment='Bailey commands that only read'
mark=account # of the account in the list of what was added
state=/var/lib/bailey-readonly
config=/etc/ssh/sshd_config.d/bailey-readonly.conf
begin='# begin of bailey-readonly, written by bailey source prepare'
end='# end of bailey-readonly'

fail() { echo "$*" >&2; exit 1; }

check_rights() {
  [ "$(id -u)" = 0 ] || fail "root rights are needed: log in as root, or allow sudo without a password"
  [ -f /etc/ssh/sshd_config ] || fail "/etc/ssh/sshd_config is missing: OpenSSH's server is needed"
  command -v sshd >/dev/null || fail "sshd is not in $PATH"
}

# added tells whether earlier steps added something, for example: added "file /x".
added() { [ -f "$state/added" ] && grep -Fqx "$1" "$state/added"; }

# record notes something that is about to be added, for the removal and for an undo of this run.
record() {
  [ -d "$state" ] || mkdir -m 0755 "$state"
  added "$1" || echo "$1" >>"$state/added"
  echo "$1" >>"$state/run"
}

forget() {
  grep -Fvx "$1" "$state/added" >"$state/added.new" || true
  mv "$state/added.new" "$state/added"
}

make_dir() {
  [ -d "$1" ] && return
  case $1 in */*) make_dir "${1%/*}" ;; esac
  record "dir $1"
  mkdir -m 0755 "$1"
}

key_of() { echo "$1" | tr / %; }

# arriving holds standard input until it is known to be complete and needed.
arriving=$(mktemp)
trap 'rm -f "$arriving"' EXIT

# install_file puts standard input into a file, if it differs.
install_file() {
  cat >"$arriving"
  install_arrived "$1" "$2"
}

# install_arrived FILE MODE [GROUP]
install_arrived() {
  make_dir "${1%/*}"
  if [ -f "$1" ] && cmp -s "$1" "$arriving" && [ "$(stat -c %a:%G "$1")" = "$2:${3:-root}" ]; then
    echo unchanged
    return
  fi
  if [ -e "$1" ]; then
    added "file $1" || fail "$1 exists, and Bailey did not write it: move it away"
    [ -d "$state/old" ] || mkdir -m 0700 "$state/old"
    [ -f "$state/old/$(key_of "$1")" ] || cp -p "$1" "$state/old/$(key_of "$1")"
    echo "replaced $1" >>"$state/run"
  else
    record "file $1"
  fi
  cp "$arriving" "$1.bailey-new"
  chown "root:${3:-root}" "$1.bailey-new"
  chmod "$2" "$1.bailey-new"
  mv "$1.bailey-new" "$1"
  echo changed
}

install_shell() {
  cat >"$arriving"
  sum=$(sha256sum "$arriving")
  [ "${sum%% *}" = "$1" ] || fail "the transfer of the shell was not complete"
  install_arrived "$shell" 755
}

commands=/etc/bailey-readonly/commands.json

install_commands() {
  cat >"$arriving"
  sum=$(sha256sum "$arriving")
  [ "${sum%% *}" = "$1" ] || fail "the transfer of the commands was not complete"
  install_arrived "$commands" 644
}

has_commands() { if [ -f "$commands" ] && added "file $commands"; then echo yes; else echo no; fi; }

# remove_commands removes a file of an earlier preparation. Its directory stays until remove_all.
remove_commands() {
  if [ "$(has_commands)" = no ]; then
    echo unchanged
    return
  fi
  [ -d "$state/old" ] || mkdir -m 0700 "$state/old"
  [ -f "$state/old/$(key_of "$commands")" ] || cp -p "$commands" "$state/old/$(key_of "$commands")"
  echo "replaced $commands" >>"$state/run"
  rm -f "$commands"
  echo changed
}

has_account() { grep -q "^$account:" /etc/passwd; }

# edit_file changes a file with sed, and keeps its owner and mode.
edit_file() {
  [ -f "$1" ] || return 0
  cp -p "$1" "$1.bailey-new"
  sed "$2" "$1" >"$1.bailey-new"
  mv "$1.bailey-new" "$1"
}

# write_account adds the account where no tool for accounts exists, for example in a small BusyBox.
write_account() {
  for f in /etc/group /etc/shadow; do edit_file $f "/^$account:/d"; done # of an attempt that was killed
  id=999
  while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group; do id=$((id - 1)); done
  [ "$id" -ge 100 ] || fail "there is no free id below 1000 for the account"
  edit_file /etc/group "\$a $account:x:$id:"
  edit_file /etc/shadow "\$a $account:*:::::::"
  edit_file /etc/passwd "\$a $account:x:$id:$id:$comment:/:$shell"
}

# write_member adds the account to a group, or with "out" removes it.
write_member() {
  if [ "${2:-}" = out ]; then
    edit_file /etc/group "/^$1:/{s/\([:,]\)$account,/\1/;s/[,]$account\$//;s/:$account\$/:/;}"
  else
    edit_file /etc/group "/^$1:/{s/[^:]\$/&,/;s/\$/$account/;}"
  fi
}

# forbidden names groups whose members have the rights of root, or nearly.
forbidden='root docker lxd lxc incus incus-admin libvirt disk kmem sudo wheel shadow kvm podman'

check_groups() {
  for g in $(id -Gn "$account"); do
    for f in $forbidden; do
      [ "$g" != "$f" ] || fail "the account $account is in the group $g, which has rights like root: remove it"
    done
  done
}

add_account() {
  result=unchanged
  if has_account; then
    added "$mark" || fail "an account $account exists, and Bailey did not create it: remove or rename it"
  else
    if grep -q "^$account:" /etc/group && ! added "$mark"; then
      fail "a group $account exists, and Bailey did not create it: remove or rename it"
    fi
    record "$mark"
    if command -v useradd >/dev/null; then
      useradd --system --user-group --no-create-home --home-dir / --shell "$shell" --comment "$comment" "$account"
    elif ! command -v adduser >/dev/null; then
      write_account
    else
      addgroup -S "$account"
      adduser -S -D -H -h / -s "$shell" -G "$account" -g "$comment" "$account"
    fi
    result=changed
  fi
  # sshd refuses accounts whose password begins with "!"; "*" is no password either.
  case $(grep "^$account:" /etc/shadow) in
    "$account:\\*:"*) ;;
    *) sed -i "s/^$account:[^:]*:/$account:*:/" /etc/shadow ;;
  esac
  for g in "$@"; do
    grep -q "^$g:" /etc/group || { echo "the group $g does not exist here" >&2; continue; }
    case " $(id -Gn "$account") " in *" $g "*) continue ;; esac
    record "group $g"
    if command -v usermod >/dev/null; then
      usermod -a -G "$g" "$account"
    elif command -v addgroup >/dev/null; then
      addgroup "$account" "$g"
    else
      write_member "$g"
    fi
    result=changed
  done
  check_groups
  echo $result
}

install_keys() { install_file /etc/ssh/bailey_ca.pub 644; }

install_principals() { echo "$account" | install_file "/etc/ssh/authorized_principals/$account" 644; }

settings() {
  echo "Match User $account"
  cat <<'EOF'
  TrustedUserCAKeys /etc/ssh/bailey_ca.pub
  AuthorizedPrincipalsFile /etc/ssh/authorized_principals/%u
  AuthorizedKeysFile none
  AuthenticationMethods publickey
  PasswordAuthentication no
  KbdInteractiveAuthentication no
  DisableForwarding yes
  AllowTcpForwarding no
  AllowStreamLocalForwarding no
  AllowAgentForwarding no
  X11Forwarding no
  PermitTunnel no
  GatewayPorts no
  PermitListen none
  PermitOpen none
  PermitTTY no
  PermitUserRC no
  AcceptEnv none
EOF
}

install_config() {
  if grep -Eiq '^[[:space:]]*include[[:space:]]+(/etc/ssh/)?sshd_config\.d/\*\.conf' /etc/ssh/sshd_config; then
    { settings; echo 'Match all'; } | install_file "$config" 644
    return
  fi
  # An older configuration without a directory: a block at its end, where a Match block ends the file.
  if grep -Fqx "$begin" /etc/ssh/sshd_config; then
    echo unchanged
    return
  fi
  record "block /etc/ssh/sshd_config"
  { cat /etc/ssh/sshd_config; echo "$begin"; settings; echo "$end"; } >/etc/ssh/sshd_config.bailey-new
  chmod "$(stat -c %a /etc/ssh/sshd_config)" /etc/ssh/sshd_config.bailey-new
  mv /etc/ssh/sshd_config.bailey-new /etc/ssh/sshd_config
  echo changed
}

# check_config verifies what applies to the account: an earlier line of another file could have set it.
check_config() {
  sshd -t || fail "sshd -t refuses the configuration"
  effective=$(sshd -T -C "user=$account,host=localhost,addr=127.0.0.1")
  for want in "trustedusercakeys /etc/ssh/bailey_ca.pub" "authorizedprincipalsfile /etc/ssh/authorized_principals/%u" \
    "authorizedkeysfile none" "disableforwarding yes" "allowtcpforwarding no" "allowstreamlocalforwarding no" \
    "allowagentforwarding no" "x11forwarding no" "permittunnel no" "gatewayports no" "permittty no" "permituserrc no"; do
    echo "$effective" | grep -Fqx "$want" || fail "for $account, sshd does not apply \"$want\": an earlier line of its configuration sets another value"
  done
}

# use_apply makes the functions before this one work for the second account, which applies approved playbooks. Its
# program is the login shell, belongs to root with the right to become root, and only the account may start it.
use_apply() {
  account=bailey-apply
  shell=/usr/local/bin/bailey-apply
  comment='Bailey playbooks that a person approved'
  mark='apply account'
  config=/etc/ssh/sshd_config.d/bailey-apply.conf
}

add_apply_account() { use_apply; add_account; }

install_apply() {
  use_apply
  cat >"$arriving"
  sum=$(sha256sum "$arriving")
  [ "${sum%% *}" = "$1" ] || fail "the transfer of the program was not complete"
  install_arrived "$shell" 4750 "$account"
}

install_apply_host() { echo "$1" | install_file /etc/bailey-apply/host 644; }

install_apply_principals() { use_apply; install_principals; }

install_apply_config() {
  use_apply
  grep -Eiq '^[[:space:]]*include[[:space:]]+(/etc/ssh/)?sshd_config\.d/\*\.conf' /etc/ssh/sshd_config ||
    fail "/etc/ssh/sshd_config does not include /etc/ssh/sshd_config.d/*.conf: add that line first"
  install_config
}

has_apply() { if added "apply account"; then echo yes; else echo no; fi; }

reload() {
  if [ -d /run/systemd/system ]; then
    systemctl reload ssh 2>/dev/null || systemctl reload sshd 2>/dev/null || systemctl is-active --quiet ssh.socket ||
      fail "systemctl reload ssh failed"
  elif command -v rc-service >/dev/null; then
    rc-service sshd reload
  else
    for pid in /run/sshd.pid /var/run/sshd.pid; do
      if [ -f "$pid" ]; then
        kill -HUP "$(cat "$pid")"
        return
      fi
    done
    fail "the process of sshd is not known: there is neither systemd, OpenRC nor /run/sshd.pid"
  fi
}

reload_sshd() {
  check_config
  if added "apply account"; then (use_apply; check_config); fi
  if [ ! -f "$state/run" ] || ! grep -q . "$state/run"; then
    echo unchanged
    return
  fi
  reload
  echo changed
}

commit_changes() {
  rm -rf "$state/run" "$state/old"
}

# end_processes ends what runs as the account, such as kept connections: account tools refuse to remove it otherwise.
end_processes() {
  uid=$(id -u "$account")
  for round in 1 2 3 4 5 6 7 8 9 10; do
    left=
    for p in /proc/[0-9]*; do
      case $(sed -n 's/^Uid:[[:space:]]*//p' "$p/status" 2>/dev/null) in
        "$uid	"*) left="$left ${p#/proc/}" ;;
      esac
    done
    [ -n "$left" ] || return 0
    kill -KILL $left 2>/dev/null || true
    [ "$round" = 1 ] || sleep 1
  done
}

remove_account() {
  has_account || return 0
  end_processes
  if command -v userdel >/dev/null; then
    userdel "$account" >/dev/null
  elif command -v deluser >/dev/null; then
    deluser "$account"
  else
    for f in /etc/passwd /etc/shadow /etc/group; do edit_file $f "/^$account:/d"; done
  fi
  if grep -q "^$account:" /etc/group; then
    if command -v groupdel >/dev/null; then groupdel "$account"; else delgroup "$account"; fi
  fi
}

# undo removes one recorded thing.
undo() {
  case $1 in
    "file "*) rm -f "${1#file }" "${1#file }.bailey-new" ;;
    "dir "*) rmdir "${1#dir }" 2>/dev/null || true ;;
    account) remove_account ;;
    "apply account") (use_apply; remove_account; rm -rf /var/lib/bailey-apply) ;;
    "group "*)
      has_account || return 0
      case " $(id -Gn "$account") " in *" ${1#group } "*) ;; *) return 0 ;; esac
      if command -v gpasswd >/dev/null; then
        gpasswd -d "$account" "${1#group }" >/dev/null
      elif command -v delgroup >/dev/null; then
        delgroup "$account" "${1#group }"
      else
        write_member "${1#group }" out
      fi ;;
    "block "*)
      sed "/^$begin\$/,/^$end\$/d" /etc/ssh/sshd_config >/etc/ssh/sshd_config.bailey-new
      chmod "$(stat -c %a /etc/ssh/sshd_config)" /etc/ssh/sshd_config.bailey-new
      mv /etc/ssh/sshd_config.bailey-new /etc/ssh/sshd_config ;;
    "replaced "*)
      file=${1#replaced } old="$state/old/$(key_of "${1#replaced }")"
      if [ -f "$old" ]; then mv "$old" "$file"; fi ;;
  esac
}

# undo_list undoes the lines of a file, the last first.
undo_list() {
  sed -n '1!G;h;$p' "$1" >"$1.reversed"
  while IFS= read -r line; do undo "$line"; done <"$1.reversed"
  rm -f "$1.reversed"
}

roll_back() {
  [ -f "$state/run" ] || { echo "nothing was changed"; return; }
  undo_list "$state/run"
  while IFS= read -r line; do
    case $line in replaced*) ;; *) forget "$line" ;; esac
  done <"$state/run"
  commit_changes
  [ -s "$state/added" ] || rm -rf "$state"
  sshd -t && reload
  echo "undone"
}

remove_all() {
  [ -f "$state/added" ] || { echo unchanged; return; }
  undo_list "$state/added"
  rm -rf "$state"
  sshd -t && reload
  echo changed
}
