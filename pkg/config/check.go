package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Address checks host:port. The host may be empty or a name; nothing is looked up.
func Address(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("expected host:port, such as 127.0.0.1:7070")
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number > 65535 {
		return fmt.Errorf("expected a port from 0 to 65535 after the colon")
	}
	return nil
}

// Addresses checks one host:port, or several with commas between them.
func Addresses(text string) error {
	for _, one := range strings.Split(text, ",") {
		if err := Address(one); err != nil {
			return err
		}
	}
	return nil
}

// AddressOrOff checks host:port, or "off" for a listener that is not wanted.
func AddressOrOff(text string) error {
	if text == "off" {
		return nil
	}
	if err := Address(text); err != nil {
		return fmt.Errorf("%w, or off", err)
	}
	return nil
}

// LoopbackOrOff checks host:port of a listener without certificates, which only this host may reach, or "off".
func LoopbackOrOff(text string) error {
	if err := AddressOrOff(text); err != nil || text == "off" {
		return err
	}
	host, _, _ := net.SplitHostPort(text) // it is one
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf(
			"expected an address of loopback, such as 127.0.0.1:9469: no certificates guard it; a proxy " +
				"on this host may serve it to others",
		)
	}
	return nil
}

// NotEmpty checks that a setting without a default was given.
func NotEmpty(text string) error {
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("expected a value")
	}
	return nil
}

// OneOf checks against a fixed list.
func OneOf(choices ...string) func(string) error {
	return func(text string) error {
		if slices.Contains(choices, text) {
			return nil
		}
		return fmt.Errorf("expected one of %s", strings.Join(choices, ", "))
	}
}

// EachOf checks every element of a list against a fixed list; at least one is needed.
func EachOf(choices ...string) func([]string) error {
	return func(list []string) error {
		if len(list) == 0 {
			return fmt.Errorf("expected at least one of %s", strings.Join(choices, ", "))
		}
		for _, text := range list {
			if !slices.Contains(choices, text) {
				return fmt.Errorf("%q: expected any of %s", text, strings.Join(choices, ", "))
			}
		}
		return nil
	}
}

// Range checks least <= value <= most. format makes the bounds readable in the error.
func Range[T cmp.Ordered](least, most T, format func(T) string) func(T) error {
	return func(value T) error {
		if value < least || value > most {
			return fmt.Errorf("expected %s to %s", format(least), format(most))
		}
		return nil
	}
}
