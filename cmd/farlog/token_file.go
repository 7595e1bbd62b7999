//go:build cgo

package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/farlog/farlog/pkg/farlog"
)

// tokenFile is a grant of a ring on another host, for a writer that has no control plane. It is good for one opening.
type tokenFile struct {
	Ring         string `json:"ring"`
	RingUUID     string `json:"ring_uuid"`
	Epoch        uint32 `json:"epoch"`
	Token        string `json:"token"`
	RecordLenMax uint32 `json:"record_len_max,omitempty"`

	// Members are the several rings in their order, in place of ring_uuid and token.
	Members []tokenFileMember `json:"members,omitempty"`
}

type tokenFileMember struct {
	RingUUID string `json:"ring_uuid"`
	Token    string `json:"token"`
}

// writeTokenFile makes a file that only its owner can read.
func writeTokenFile(path string, place writerPlace) error {
	content := tokenFile{Ring: place.uri, Epoch: place.options.Epoch, RecordLenMax: place.recordLenMax}
	for _, member := range place.options.Members {
		content.Members = append(content.Members, tokenFileMember{
			RingUUID: hex.EncodeToString(member.RingUUID[:]),
			Token:    hex.EncodeToString(member.Token[:]),
		})
	}
	if len(content.Members) == 0 {
		content.RingUUID, content.Token = hex.EncodeToString(place.options.RingUUID[:]),
			hex.EncodeToString(place.options.Token[:])
	}
	raw, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("token file %q is there already: remove it, or give another name", path)
	}
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	_, err = file.Write(append(raw, '\n'))
	return errors.Join(err, file.Close())
}

// readToken reads the grant. What is wrong with the file is told without what is in it.
func (p *writerPlace) readToken(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("token file %q can be read by others than its owner: chmod 600 %s", path, path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	var content tokenFile
	if json.Unmarshal(raw, &content) != nil {
		return fmt.Errorf("token file %q: expected what farlog stream grant writes: JSON with ring, epoch and token",
			path)
	}
	if len(content.Members) == 0 {
		content.Members = []tokenFileMember{{RingUUID: content.RingUUID, Token: content.Token}}
	}
	var members []farlog.Member
	for _, one := range content.Members {
		token, err := hex.DecodeString(one.Token)
		if err != nil || len(token) != farlog.TokenLen || content.Epoch == 0 {
			return fmt.Errorf("token file %q: expected an epoch from 1 and a token of %d hexadecimal digits", path,
				2*farlog.TokenLen)
		}
		uuid, err := hex.DecodeString(one.RingUUID)
		if err != nil || len(uuid) != 16 {
			return fmt.Errorf("token file %q: expected a ring_uuid of 32 hexadecimal digits: by it the writer knows "+
				"that it is at its ring", path)
		}
		members = append(members, farlog.Member{RingUUID: [16]byte(uuid), Token: [farlog.TokenLen]byte(token)})
	}
	if _, uris := farlog.MemberURIs(p.uri); len(uris) != len(members) {
		return fmt.Errorf("token file %q is for %d rings, --ring names %d: expected the URI that farlog stream grant "+
			"printed", path, len(members), len(uris))
	}
	p.setMembers(members)
	p.options.Epoch, p.recordLenMax = content.Epoch, content.RecordLenMax
	return nil
}
