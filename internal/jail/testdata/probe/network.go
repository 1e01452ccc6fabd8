package main

import (
	"bufio"
	"fmt"
	"net"
	"time"
)

// talk sends a line to an address and prints the answer.
func talk(a []string) {
	c, err := net.DialTimeout(a[0], a[1], 2*time.Second)
	if err != nil {
		say(err)
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintln(c, "a word")
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line)
	say(err)
}

// datagram sends a datagram to an address, for which connect needs no answer, and waits for the result.
func datagram(a []string) {
	c, err := net.Dial("udp", a[0])
	if err == nil {
		_, err = c.Write([]byte("out of the cage"))
	}
	if err == nil {
		c.SetReadDeadline(time.Now().Add(time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	say(err)
}
