package gitsign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// Address is the address in the cage, whose network is its own loopback, at which the gateway takes texts to sign.
// Names of hosts have addresses in 127.77.0.0/16 there. A Unix socket would need a cage that may use those of the
// host, too.
const Address = "127.78.0.1:7463"

// The arguments with which git starts a program that signs: gpg with the text at standard input, and ssh-keygen with
// the text in a file, next to which it expects the signature (gpg-interface.c of git).
var (
	gpgArgs = []string{"--status-fd=2", "-bsau"}
	sshArgs = []string{"-Y", "sign", "-n", "git", "-f"}
)

// IsRequest reports whether this process was started by git, in place of gpg or ssh-keygen, to sign. args are without
// the name of the program. No command of bailey begins like this.
func IsRequest(args []string) bool {
	return len(args) == len(gpgArgs)+1 && slices.Equal(args[:len(gpgArgs)], gpgArgs) ||
		len(args) > len(sshArgs)+1 && slices.Equal(args[:len(sshArgs)], sshArgs)
}

// Request runs in the cage. It sends the text to the gateway and hands the signature to git. It returns the exit code.
// The key that git names is ignored: the gateway knows which one it is.
func Request(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if err := request(args, stdin, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bailey: the gateway did not sign: %v\n", err)
		return 1
	}
	return 0
}

func request(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	file := ""
	if args[0] == sshArgs[0] {
		file = args[len(args)-1]
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		stdin = f
	}
	text, err := io.ReadAll(io.LimitReader(stdin, MaxObject+1))
	if err != nil {
		return err
	}
	signature, err := askGateway(Address, text)
	if err != nil {
		return err
	}
	if file != "" {
		return os.WriteFile(file+".sig", signature, 0o600)
	}
	if _, err = stdout.Write(signature); err == nil {
		_, err = io.WriteString(stderr, "\n[GNUPG:] SIG_CREATED D\n") // git requires this line of the status
	}
	return err
}

// The first line of an answer. After granted the signature follows, and after refused the reason.
const granted, refused = "signed\n", "refused\n"

// maxAnswer limits an answer of the gateway, in bytes.
const maxAnswer = 64 << 10

func askGateway(address string, text []byte) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err = conn.Write(text); err != nil {
		return nil, err
	}
	if err = conn.(*net.TCPConn).CloseWrite(); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err != nil {
		return nil, err
	}
	if signature, ok := bytes.CutPrefix(answer, []byte(granted)); ok {
		return signature, nil
	}
	if reason, ok := strings.CutPrefix(string(answer), refused); ok {
		return nil, errors.New(reason)
	}
	return nil, errors.New("it ended the connection")
}
