package config

import (
	"strconv"
	"strings"
)

const (
	regionBlock = 4096
	// regionLeast is a directory, and behind it one ring of a block.
	regionLeast = 0x28000 + 0x3000 + regionBlock
)

// RegionURI checks the URI of a region that holds many rings: mem:/path or nvme:/path, with flush= and the size= that
// it is made with where it is not there yet. An error is of type *Error. Whether what lies there is a region is not
// looked at.
func RegionURI(uri string) error {
	path, options, hasOptions := strings.Cut(uri, "?")
	if !strings.HasPrefix(path, "mem:/") && !strings.HasPrefix(path, "nvme:/") &&
		!strings.HasPrefix(path, "nvme:nqn.") {
		return errorf("%q: expected mem:/path or nvme:/path without a ring", uri)
	}
	if !hasOptions {
		return nil
	}
	for option := range strings.SplitSeq(options, "&") {
		name, value, _ := strings.Cut(option, "=")
		switch {
		case name == "ring":
			return errorf("%q: expected mem:/path or nvme:/path without a ring", uri)
		case name == "attest":
			return errorf("%q: attest=%s: expected it in the file of --attestation, with who says so, when and why",
				uri, value)
		case name != "flush" && name != "size":
			return errorf("%q: unknown option %q: expected flush or size", uri, name)
		case value == "":
			return errorf("%q: option %q has no value", uri, name)
		case name == "size":
			size, err := strconv.ParseUint(value, 10, 63)
			if err != nil || size%regionBlock != 0 || size < regionLeast {
				return errorf("%q: size %q: expected a number of bytes that is a multiple of %d, %d at least", uri,
					value, regionBlock, regionLeast)
			}
		}
	}
	return nil
}
