package farlog

/*
#include <stdlib.h>
#include "farlog/farlog.h"
#include "farlog/network.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// TokenLen is the length of a grant's token in bytes.
const TokenLen = 16

// GrantRole is what a grant lets its holder do.
type GrantRole uint32

// The roles of a grant.
const (
	GrantWriter GrantRole = 0
	GrantDrain  GrantRole = 1
	GrantReader GrantRole = 3
)

// TargetGrant lets one far client into a ring.
type TargetGrant struct {
	Token   [TokenLen]byte // drawn at random by who grants
	Role    GrantRole
	Epoch   uint32    // of a writer
	Expires time.Time // admission ends then; zero = never
	// its client has one of these addresses, as the target sees the connection's other end; none = any
	From []netip.Prefix
}

// PersistenceDomain is what survives a power cut, in the words of the kernel's attribute of an nvdimm region.
type PersistenceDomain uint32

// The persistence domains.
const (
	DomainUnknown          PersistenceDomain = 0
	DomainMemoryController PersistenceDomain = 1 // ADR
	DomainCPUCache         PersistenceDomain = 2 // eADR
)

// ReadFlush is why a READ behind a WRITE makes it persistent.
type ReadFlush uint32

// The reasons.
const (
	ReadFlushNone    ReadFlush = 0
	ReadFlushDDIOOff ReadFlush = 1
	ReadFlushEADR    ReadFlush = 2
	ReadFlushBAR     ReadFlush = 3
)

// AttestedByLen is the longest name in an Attestation, in bytes: all of it has to fit a far client's contract.
const AttestedByLen = 24

// Attestation is what the operator of a target's host says of a region because no program can find it out.
type Attestation struct {
	ReadFlush ReadFlush
	Domain    PersistenceDomain // DomainUnknown: the kernel's word counts
	By        string            // who: 1 to AttestedByLen bytes
	Date      string            // "2026-11-21"
	// IsAnyRead: a READ of any of its bytes flushes all WRITEs before it, not only one of those written last. With a
	// ReadFlush.
	IsAnyRead bool
	// CommitProvider is the libfabric provider whose FI_COMMIT_COMPLETE comes when the WRITEs before it are flushed; ""
	// = not attested.
	CommitProvider string
}

var (
	readFlushNames = []string{
		ReadFlushNone: "", ReadFlushDDIOOff: "ddio-off", ReadFlushEADR: "eadr",
		ReadFlushBAR: "bar",
	}
	domainNames = []string{
		DomainUnknown: "", DomainMemoryController: "memory_controller",
		DomainCPUCache: "cpu_cache",
	}
)

// NewAttestation takes the words that String gives: how is "" or "ddio-off", "eadr", "bar"; domain is "" or
// "memory_controller", "cpu_cache". False: no such words.
func NewAttestation(how, domain, by, date string) (Attestation, bool) {
	read, where := slices.Index(readFlushNames, how), slices.Index(domainNames, domain)
	return Attestation{ReadFlush: ReadFlush(read), Domain: PersistenceDomain(where), By: by, Date: date}, read >= 0 &&
		where >= 0
}

// String is as contracts have it: "ddio-off, memory_controller by attestation of NAME, DATE"; with IsAnyRead "ddio-off
// by any READ, ...". With a CommitProvider "ddio-off, ofi-commit of tcp, ...", where a contract has that of the two by
// which its ring is reached.
func (a Attestation) String() string {
	var words []string
	if how := readFlushNames[a.ReadFlush]; how != "" && a.IsAnyRead {
		words = append(words, how+" by any READ")
	} else if how != "" {
		words = append(words, how)
	}
	if a.CommitProvider != "" {
		words = append(words, "ofi-commit of "+a.CommitProvider)
	}
	if domain := domainNames[a.Domain]; domain != "" {
		words = append(words, domain)
	}
	return fmt.Sprintf("%s by attestation of %s, %s", strings.Join(words, ", "), a.By, a.Date)
}

// Word is what a URI on this host says by attest=WORD; "" where the kernel's own word is enough.
func (a Attestation) Word() string {
	if a.ReadFlush == ReadFlushBAR {
		return readFlushNames[ReadFlushBAR]
	}
	return domainNames[a.Domain]
}

// TargetCounters are the numbers of one ring of a target.
type TargetCounters struct {
	raw C.struct_farlog_target_counters
}

// Target lets far clients into rings of this host. Its methods may be called by any goroutine.
type Target struct {
	c *C.farlog_target
}

// OpenTarget listens at "ofi:tcp://host:port" or "verbs://host:port".
//
// Implements: int farlog_target_open(const char *, farlog_target **, struct farlog_error *)
func OpenTarget(uri string) (*Target, error) {
	target := new(Target)
	return opened(target, coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_target_open(text, &target.c, failure)
	}))
}

// URI is where the target listens, with the port it was given.
//
// Implements: const char *farlog_target_uri(const farlog_target *)
func (t *Target) URI() string { return C.GoString(C.farlog_target_uri(t.c)) }

// Attest adds what is attested of a region to what is probed of it, for rings that are served from then on. What
// contradicts the probe is refused, with the key, its value and what was expected.
//
// Implements: int farlog_target_attest(farlog_target *, const char *, const struct farlog_attestation *, struct
// farlog_error *)
func (t *Target) Attest(region string, attestation Attestation) error {
	c := C.struct_farlog_attestation{
		read_flush: C.uint32_t(attestation.ReadFlush),
		domain:     C.uint32_t(attestation.Domain),
	}
	if attestation.IsAnyRead {
		c.is_any_read = 1
	}
	c.by, c.date = C.CString(attestation.By), C.CString(attestation.Date)
	defer C.free(unsafe.Pointer(c.by))
	defer C.free(unsafe.Pointer(c.date))
	if attestation.CommitProvider != "" {
		c.commit_provider = C.CString(attestation.CommitProvider)
		defer C.free(unsafe.Pointer(c.commit_provider))
	}
	return coldCall(region, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_target_attest(t.c, text, &c, failure)
	})
}

// Serve lets granted clients reach the ring in region as URI()/name. Rings of different tenants are in different
// protection domains.
//
// Implements: int farlog_target_serve(farlog_target *, const char *, const char *, const char *, struct farlog_error *)
func (t *Target) Serve(name, region, tenant string) error {
	cName, cTenant := C.CString(name), C.CString(tenant)
	defer C.free(unsafe.Pointer(cName))
	defer C.free(unsafe.Pointer(cTenant))
	return coldCall(region, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_target_serve(t.c, cName, text, cTenant, failure)
	})
}

// Grant tells the target of a grant; of one that it has already the addresses and the time limit are taken. A writer is
// let in once none of a lower epoch is: fence it first.
//
// Implements: int farlog_target_grant_from(farlog_target *, const char *, const struct farlog_grant *, const struct
// farlog_network *, size_t, struct farlog_error *)
func (t *Target) Grant(name string, grant TargetGrant) error {
	c := C.struct_farlog_grant{role: C.uint32_t(grant.Role), epoch: C.uint32_t(grant.Epoch)}
	for i, b := range grant.Token {
		c.token[i] = C.uint8_t(b)
	}
	if !grant.Expires.IsZero() {
		c.expires_ns = C.uint64_t(grant.Expires.UnixNano())
	}
	networks := make([]C.struct_farlog_network, max(1, len(grant.From)))
	for i, prefix := range grant.From {
		bits := prefix.Bits()
		if prefix.Addr().Is4() {
			bits += 96
		}
		networks[i].bit_count = C.uint32_t(bits)
		for j, b := range prefix.Addr().As16() {
			networks[i].address[j] = C.uint8_t(b)
		}
	}
	return coldCall(name, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_target_grant_from(t.c, text, &c, &networks[0], C.size_t(len(grant.From)), failure)
	})
}

// Fence makes writers of epochs below epochMin unable to write. A nil error is the confirmation; tailLSN is where the
// log ends.
//
// Implements: int farlog_target_fence(farlog_target *, const char *, uint32_t, uint64_t *, struct farlog_error *)
func (t *Target) Fence(name string, epochMin uint32) (tailLSN uint64, err error) {
	var tail C.uint64_t
	err = coldCall(name, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_target_fence(t.c, text, C.uint32_t(epochMin), &tail, failure)
	})
	return uint64(tail), err
}

// Forget ends a ring: its connections are torn down, its grants forgotten.
//
// Implements: int farlog_target_forget(farlog_target *, const char *, struct farlog_error *)
func (t *Target) Forget(name string) error {
	return coldCall(name, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_target_forget(t.c, text, failure)
	})
}

// Counters of one ring.
//
// Implements: int farlog_target_counters_read(farlog_target *, const char *, struct farlog_target_counters *)
func (t *Target) Counters(name string) (*TargetCounters, error) {
	counters := new(TargetCounters)
	err := coldCall(name, func(text *C.char, _ *C.struct_farlog_error) C.int {
		return C.farlog_target_counters_read(t.c, text, &counters.raw)
	})
	return counters, err
}

// Close tears down all connections and stops listening.
//
// Implements: void farlog_target_close(farlog_target *)
func (t *Target) Close() {
	C.farlog_target_close(t.c)
	t.c = nil
}
