//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/farlog/farlog/pkg/farlog"
)

// held is who this program is to the targets of a stream.
type held struct {
	epoch   uint32
	token   *[farlog.TokenLen]byte
	members []farlog.Member
}

// readTokens takes one token, none, or those of several members.
func readTokens(text string) (held, error) {
	words := strings.Split(text, ",")
	if len(words) == 1 {
		token, err := parseToken(text)
		return held{token: token}, err
	}
	var own held
	for _, word := range words {
		token, err := parseToken(strings.Trim(word, "-"))
		if err != nil {
			return own, err
		}
		var member farlog.Member
		if token != nil {
			member.Token = *token
		}
		own.members = append(own.members, member)
	}
	return own, nil
}

// readGrant takes what farlog stream grant has written of a stream with several members.
func readGrant(path string) (uri string, own held, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", own, err
	}
	var grant struct {
		Ring    string
		Epoch   uint32
		Members []struct{ Token string }
	}
	if err := json.Unmarshal(raw, &grant); err != nil {
		return "", own, fmt.Errorf("grant %s: %w", path, err)
	}
	var tokens []string
	for _, member := range grant.Members {
		tokens = append(tokens, member.Token)
	}
	own, err = readTokens(strings.Join(tokens, ","))
	own.epoch = grant.Epoch
	return grant.Ring, own, err
}

// waiting has the members of a stream that are reached by verbs wait in a way.
func waiting(uri, wait string) string {
	if wait == "" {
		return uri
	}
	words := strings.Split(uri, " ")
	for i, word := range words {
		if strings.HasPrefix(word, "verbs://") {
			words[i] = word + "?wait=" + wait
		}
	}
	return strings.Join(words, " ")
}
