//go:build cgo

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTakeToken_NoRingUUIDIsRefusedByName(t *testing.T) {
	const rest = `"ring":"ofi:tcp://h:1/r","epoch":2,"token":"0123456789abcdef0123456789abcdef"}`
	path := filepath.Join(t.TempDir(), "token")
	for text, refused := range map[string]bool{
		`{` + rest: true, `{"ring_uuid":"",` + rest: true, `{"ring_uuid":"00",` + rest: true,
		`{"ring_uuid":"00112233445566778899aabbccddeeff",` + rest: false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := new(writerPlace).readToken(path)
		if refused != (err != nil && strings.Contains(err.Error(), "expected a ring_uuid")) || !refused && err != nil {
			t.Errorf("%s: refused %v, got %v", text, refused, err)
		}
	}
}
