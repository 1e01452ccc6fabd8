// Command bailey-apply runs one approved playbook on a source host.
package main

import "bailey/internal/hostapply"

func main() { hostapply.Main() }
