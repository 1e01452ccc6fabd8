package sandboxdiff

// Ansible returns a playbook that makes the changes on the hosts that it is run for. It uses built-in modules alone.
func (d *Difference) Ansible() []byte { return nil }

// Shell returns a POSIX shell script, for root, that makes the changes. It can be run twice.
func (d *Difference) Shell() []byte { return nil }
