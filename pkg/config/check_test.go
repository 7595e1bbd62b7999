package config

import "testing"

func TestLoopbackOrOff(t *testing.T) {
	for text, want := range map[string]bool{
		"off": true, "127.0.0.1:9469": true, "localhost:0": true, "[::1]:9469": true, "127.9.9.9:1": true,
		"0.0.0.0:9469": false, ":9469": false, "[::]:9469": false, "10.0.0.1:9469": false, "store1:9469": false,
		"127.0.0.1": false, "": false,
	} {
		if err := LoopbackOrOff(text); (err == nil) != want {
			t.Errorf("%q: %v, expected that it is accepted: %t", text, err, want)
		}
	}
}
