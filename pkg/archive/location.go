package archive

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// Location is where an archive lies.
type Location struct {
	Endpoint string // https://host or https://host:port; http only to this host itself
	Region   string
	Bucket   string
	Prefix   string // of all keys, without a slash at its end; "" = the whole bucket
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixName = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)
)

// ParseLocation reads s3://BUCKET or s3://BUCKET/PREFIX, and checks the endpoint. Errors: ErrInvalid.
func ParseLocation(text, endpoint, region string) (Location, error) {
	rest, isS3 := strings.CutPrefix(text, "s3://")
	bucket, prefix, hasPrefix := strings.Cut(rest, "/")
	l := Location{Endpoint: endpoint, Region: region, Bucket: bucket, Prefix: strings.TrimSuffix(prefix, "/")}
	switch {
	case !isS3 || !bucketName.MatchString(bucket):
		return l, fmt.Errorf("%w: archive %q: expected s3://BUCKET/PREFIX", ErrInvalid, withoutUser(text))
	case hasPrefix && l.Prefix != "" && !prefixName.MatchString(l.Prefix):
		return l, fmt.Errorf("%w: archive %q: prefix %q: expected letters, digits, '.', '_' and '-' between slashes",
			ErrInvalid, withoutUser(text), withoutUser(l.Prefix))
	case region == "":
		return l, fmt.Errorf("%w: archive %s: no region: expected one such as eu-central-1", ErrInvalid, l)
	}
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" ||
		parsed.Path != "" && parsed.Path != "/" || parsed.User != nil || parsed.RawQuery != "" {
		return l, fmt.Errorf("%w: endpoint %q: expected https://HOST or https://HOST:PORT", ErrInvalid,
			withoutUser(endpoint))
	}
	if host, err := netip.ParseAddr(parsed.Hostname()); parsed.Scheme == "http" && parsed.Hostname() != "localhost" &&
		(err != nil || !host.IsLoopback()) {
		return l, fmt.Errorf("%w: endpoint %q: http is for this host itself alone: expected https://%s", ErrInvalid,
			withoutUser(endpoint), parsed.Host)
	}
	return l, nil
}

// withoutUser hides a password that somebody put into a URL, however it is written: all before the last '@'.
func withoutUser(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	scheme, _, hasScheme := strings.Cut(text[:at], "://")
	if !hasScheme {
		return "***" + text[at:]
	}
	return scheme + "://***" + text[at:]
}

// String is the location as base manifests have it.
func (l Location) String() string {
	return strings.TrimSuffix("s3://"+l.Bucket+"/"+l.Prefix, "/")
}

// key is that of a file of the store.
func (l Location) key(name string) string {
	if l.Prefix == "" {
		return name
	}
	return l.Prefix + "/" + name
}

// name is the way back; ok is false for a key that is not under the prefix.
func (l Location) name(key string) (name string, ok bool) {
	if l.Prefix == "" {
		return key, true
	}
	return strings.CutPrefix(key, l.Prefix+"/")
}
