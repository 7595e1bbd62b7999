package main

import (
	"strings"
	"testing"
)

func TestSought_FindsWhatMustNotBeSaid(t *testing.T) {
	tokens := tokensIn(
		`{"rings":[{"token":"AQIDBAUGBwgJCgsMDQ4P/w=="},{"name":"token","token":"00112233445566778899aabbccddeeff"}]}`,
	)
	if len(tokens) != 2 {
		t.Fatalf("tokens %x, want two", tokens)
	}
	s := &sought{tokens: tokens, keys: map[uint32]bool{0x1a2b: true}}
	for _, said := range []string{
		"level=INFO token=0102030405060708090a0b0c0d0e0fff", "AQIDBAUGBwgJCgsMDQ4P/w==",
		"grant [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 255]", "00112233445566778899aabbccddeeff",
		"rkey=0x1a2b", "keys {0x00001A2B}", "-----BEGIN PRIVATE KEY-----",
	} {
		if err := s.saidBy("target", "one\n"+said+"\nthree"); err == nil ||
			!strings.Contains(err.Error(), "target said") {
			t.Errorf("%q: %v, want that target said it", said, err)
		}
	}
	if err := s.saidBy("target", "opened 0x1a2bc at 0x1a2, lsn 6699"); err != nil {
		t.Error(err)
	}
}
