package readonly

import (
	"strings"
)

// miscRules are the commands that belong to no other family.
func miscRules() []Rule {
	return []Rule{
		{Name: "echo", Stops: "operands that act", Operands: Words, Inert: true, free: true},
		{
			Name: "printf", Stops: "-v of the builtin, which assigns", Operands: Words, Least: 1, Inert: true,
			Hint: "Write printf FORMAT WORDS",
		},
		{Name: "true", Stops: "operands that act", Inert: true},
		{Name: "false", Stops: "operands that act", Inert: true},
		{
			Name: "seq", Stops: "operands that act", Operands: Words, Most: 3, Inert: true,
			Flags: "w0123456789", Values: "fs",
			Long: "format= separator= equal-width",
		},
		{Name: "sleep", Stops: "operands that act", Operands: Words, Least: 1, Most: 1, Inert: true},
		{
			Name: "test", Stops: "-v and arithmetic, which evaluate their operand", Operands: checked, free: true,
			check: checkTest,
		},
		{
			Name: "type", shell: true, Stops: "operands that act", Operands: Words, Least: 1, Inert: true,
			Flags: "afpPt",
		},
		{
			Name: "command", shell: true, Stops: "running its operands", Operands: Words, Least: 1, Ordered: true,
			Flags: "vV", check: checkCommand, Hint: "Write command -v NAME",
		},
		{
			Name: "which", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "as",
			Long:  "all skip-dot skip-tilde show-dot show-tilde tty-only",
		},
		{Name: "whereis", Stops: "operands that act", Operands: Words, Inert: true, Flags: "bmsulg"},
	}
}

// refusedCommands are the reasons for commands that are refused by name, with the nearest command that is accepted.
var refusedCommands = []struct{ names, reason, hint string }{
	{"sudo su doas runuser pkexec", "runs a command as another user", "Run the command without it."},
	{"sh bash dash zsh ksh csh tcsh ash fish busybox toybox", "is a shell", "Write the commands themselves."},
	{"python python2 python3 perl ruby node php lua tclsh", "is an interpreter",
		"Use awk, sed, grep, cut, sort or jq."},
	{"vi vim nano emacs ed ex less more man pico view", "is interactive",
		"Use head, tail, sed -n '1,80p' FILE or grep."},
	{"rm mv cp dd chmod chown chgrp ln touch mkdir rmdir truncate install tee shred unlink split csplit patch",
		"writes files",
		"The output of a command is returned without a file."},
	{"kill killall pkill shutdown reboot halt poweroff init telinit", "ends processes or the system",
		"Use ps, pgrep or systemctl status."},
	{"useradd userdel usermod groupadd groupdel groupmod passwd chpasswd adduser deluser", "changes accounts",
		"Use id, getent passwd or groups."},
	{"mkfs mount umount fdisk parted losetup swapoff fsck", "changes disks or mounts",
		"Use findmnt, lsblk, blkid or df."},
	{"wget scp rsync ftp sftp ssh nc ncat telnet socat", "connects to other hosts",
		"curl -s http://127.0.0.1:PORT/ reaches services of this host."},
	{"make gcc g++ cc go cargo npm", "builds programs", "Build in a sandbox."},
	{"iptables ip6tables nft ufw firewall-cmd tc", "changes the network", "Use ss, ip address show or ip route show."},
	{"apt-get aptitude dnf yum zypper snap apt-key gem", "changes packages",
		"Use apt list, apt show, dpkg -l or rpm -qa."},
	{"service", "changes services", "Use systemctl status NAME."},
	{"watch", "runs a command of a shell", "Run the command once."},
	{"nice nohup ionice stdbuf setsid script strace ltrace gdb chroot nsenter unshare flock parallel",
		"runs its operands", "Run the command directly."},
	{"eval exec source . export declare set unset alias trap read history hash enable builtin umask let",
		"changes the shell", "Write the commands themselves."},
	{"docker podman kubectl crictl mysql psql redis-cli mongo", "can change what it shows",
		"Use the capability for it, if one is configured."},
	{"tar zip unzip gzip gunzip zgrep xz bzip2", "writes files or runs programs", "Use zcat FILE | grep TEXT."},
}

// refusedByName returns the reason for a command that is known to act, or nil.
func refusedByName(name string) *refusal {
	for _, r := range refusedCommands {
		for n := range strings.FieldsSeq(r.names) {
			if n == name {
				return newRefusal(r.hint, "%s %s", name, r.reason)
			}
		}
	}
	return nil
}

// identityRules are the commands that show users and sessions.
func identityRules() []Rule {
	return []Rule{
		{Name: "whoami", Stops: "operands that act", Inert: true},
		{Name: "logname", Stops: "operands that act", Inert: true},
		{Name: "tty", Stops: "operands that act", Inert: true, Flags: "s", Long: "silent quiet"},
		{
			Name: "id", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "agGnruzZ",
			Long:  "context group groups name real user zero",
		},
		{Name: "groups", Stops: "operands that act", Operands: Words, Inert: true},
		{Name: "users", Stops: "operands that act", Operands: Names, Inert: true},
		{
			Name: "who", Stops: "operands that act", Operands: Words, Most: 2, Inert: true,
			Flags: "abdHlmpqrstTuw",
			Long: "all boot dead heading ips login lookup process count runlevel short time mesg message writable " +
				"users",
		},
		{
			Name: "w", Stops: "operands that act", Operands: Words, Most: 1, Inert: true,
			Flags: "husfoipcV",
			Long:  "no-header no-current short from old-style ip-addr pids container terminal",
		},
		{
			Name: "last", Stops: "reading devices", Operands: Words,
			Flags: "aFiRwxdhV0123456789T", Values: "nfstpE", Reads: "f file",
			Long: "hostlast dns file= fulltimes ip limit= nohostname since= until= present= system fullnames " +
				"time-format= tab-separated",
		},
		{
			Name: "lastb", Stops: "reading devices", Operands: Words,
			Flags: "aFiRwxdhV0123456789", Values: "nfstp", Reads: "f file",
			Long: "hostlast dns file= fulltimes ip limit= nohostname since= until= present= system fullnames " +
				"time-format=",
		},
		{
			Name: "lastlog", Stops: "-C and -S, which change the record",
			Flags: "h", Values: "ubt",
			Long: "user= before= time=",
			Acts: []Act{{"-C --clear -S --set -R --root", "changes the record"}},
		},
		{
			Name: "env", Stops: "operands, which are variables and a program to run",
			Flags: "0",
			Long:  "null", Hint: "Write env without operands, or put LC_ALL=C directly before the command.",
			Acts: []Act{
				{"-S --split-string -i --ignore-environment -u --unset -C --chdir -a --argv0 --block-signal " +
					"--default-signal --ignore-signal --list-signal-handling -v --debug",
					"belongs to running a program"},
			},
		},
		{Name: "printenv", Stops: "operands that act", Operands: Words, Inert: true, Flags: "0", Long: "null"},
		{
			Name: "locale", Stops: "operands that act", Operands: Words, Inert: true,
			Flags: "amkcv",
			Long:  "all-locales charmaps keyword-name category-name verbose",
		},
		{
			Name: "crontab", Stops: "all uses but -l",
			Flags: "l", Values: "u", check: checkCrontab, Hint: "Write crontab -l",
			Acts: []Act{{"-r -e -i", "changes the table"}},
		},
	}
}

// checkCrontab requires -l, since crontab without options reads a new table.
func checkCrontab(c *call) *refusal {
	if !c.hasOption("l") {
		return newRefusal("Write crontab -l", "crontab without -l installs a new table")
	}
	return nil
}
