// Command bailey-guest is the agent in a sandbox: pid 1 of its initramfs, or a service.
package main

import "bailey/internal/guestagent"

func main() { guestagent.Main() }
