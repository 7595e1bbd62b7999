package drain

import "github.com/farlog/farlog/pkg/farlog"

// unconfirmed tells how much the members of an idle stream hold back behind its head: records that fewer of them have
// than an acknowledgement needs. While one is away it tells nothing: that one may have them too, and then they may have
// been acknowledged.
func unconfirmed(members []farlog.MemberStatus, headLSN uint64) (bytes uint64) {
	for _, member := range members {
		if member.State == farlog.MemberAway {
			return 0
		}
		if member.State == farlog.MemberUp && member.HeldLSN > headLSN {
			bytes = max(bytes, member.HeldLSN-headLSN)
		}
	}
	return bytes
}
