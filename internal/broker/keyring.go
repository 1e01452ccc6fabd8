package broker

import (
	"context"
	"errors"
	"time"
)

// keyring reads an item of the keyring of the broker's user: the Secret Service on Linux, the Keychain on macOS. It
// needs the session of a person who has unlocked it, so it is for a broker that runs as that person.
type keyring struct {
	irrevocable
	service, account string
}

func makeKeyring(decode func(any) error, _ string) (Adapter, string, error) {
	var said struct {
		Service string `yaml:"service"`
		Account string `yaml:"account"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	for _, s := range []string{said.Service, said.Account} {
		if s == "" || len(s) > maxWord || !isPrintable(s) {
			return nil, "", errors.New("it needs service and account, the attributes of an item")
		}
	}
	k := &keyring{service: said.Service, account: said.Account}
	return k, "keyring " + said.Service + " " + said.Account, nil
}

func (k *keyring) Mint(ctx context.Context, _ time.Duration) (Minted, error) {
	value, err := k.readItem(ctx)
	return Minted{Value: value}, err
}

func (k *keyring) missingItem() error {
	return unavailableError(nil, "store it with secret-tool store --label=… service "+k.service+" account "+k.account+", or security add-generic-password on macOS",
		"the keyring has no item with service %q and account %q", k.service, k.account)
}
