package doctor

import (
	"fmt"
	"strings"
	"testing"
)

// A name and a password that somebody put into an address, as other programs want it, are in nothing that is told,
// whatever else is wrong with the address.
func TestEtcd_NoPasswordIsShown(t *testing.T) {
	for _, endpoint := range []string{
		"ops:hush@127.0.0.1:1", "http://ops:hush@127.0.0.1:1",
		"https://ops:hush@127.0.0.1:1", "https://ops:hu%zzsh@127.0.0.1:1", "http://ops:hush@127.0.0.1:port",
		"http://ops:hu@hush@127.0.0.1:1", "http://ops:hush@[::1", "ops:hush@",
	} {
		findings := Etcd{Endpoints: []string{endpoint}}.Examine(t.Context())
		text := fmt.Sprint(findings)
		if len(findings) != 2 || findings[0].State != Warn || strings.Contains(text, "hush") ||
			strings.Contains(text, "ops") {
			t.Errorf("%s: %s", endpoint, text)
		}
	}
	if shown := withoutPassword("https://ops:hush@etcd1:2379"); shown != "https://***@etcd1:2379" {
		t.Error(shown)
	}
	if shown := withoutPassword("etcd1:2379"); shown != "etcd1:2379" {
		t.Error(shown)
	}
}
