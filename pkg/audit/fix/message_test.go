package fix

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// withFrame puts BodyLength and CheckSum around a body written with | for SOH.
func withFrame(body string) []byte {
	body = strings.ReplaceAll(body, "|", "\x01")
	raw := "8=FIX.4.4\x019=" + itoa(len(body)) + "\x01" + body
	return []byte(raw + "10=" + formatSum(Sum([]byte(raw))) + "\x01")
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// A message that QuickFIX/J sent, from the recording.
const recorded = "8=FIX.4.4|9=218|35=D|34=2|49=DESK7|52=20261121-04:42:53.395660|56=XVEN|1=ACC14|11=D7-000001|" +
	"15=USD|21=1|38=200|40=2|44=253.77|54=2|55=PGR|59=3|60=20261121-04:42:53.394365|100=XNAS|453=2|448=FUND14|447=D|" +
	"452=3|448=TRADER2|447=D|452=12|10=070|"

func TestParse_RecordedMessage(t *testing.T) {
	var message Message
	if err := Parse([]byte(strings.ReplaceAll(recorded, "|", "\x01")), &message); err != nil {
		t.Fatal(err)
	}
	if problems := message.Check(); len(problems) > 0 {
		t.Errorf("problems %v, expected none", problems)
	}
	if len(message.Fields) != 27 {
		t.Errorf("%d fields, expected 27", len(message.Fields))
	}
	for tag, want := range map[int]string{
		ClOrdID: "D7-000001", MsgType: "D", Price: "253.77", 448: "FUND14",
		9999: "",
	} {
		if got := string(message.Get(tag)); got != want {
			t.Errorf("tag %d is %q, expected %q", tag, got, want)
		}
	}
}

func TestParse_Malformed(t *testing.T) {
	for _, test := range []struct{ name, raw, want string }{
		{"empty", "", "ends without a CheckSum"},
		{"not FIX", "hello", "expected a tag"},
		{"wrong version", "8=XML|9=5|35=0|10=000|", "expected FIX"},
		{"type before length", "8=FIX.4.4|35=0|9=5|10=000|", "expected 9 (BodyLength)"},
		{"no type", "8=FIX.4.4|9=5|34=1|10=000|", "expected 35 (MsgType)"},
		{"second length", "8=FIX.4.4|9=5|35=0|9=5|10=000|", "a second BodyLength"},
		{"second begin", "8=FIX.4.4|9=5|35=0|8=FIX.4.4|10=000|", "only at the start"},
		{"bytes after the end", "8=FIX.4.4|9=5|35=0|10=000|34=1|", "5 bytes follow the CheckSum"},
		{"no check sum", "8=FIX.4.4|9=5|35=0|34=1|", "ends without a CheckSum"},
		{"no last SOH", "8=FIX.4.4|9=5|35=0|10=000", "does not end with SOH"},
		{"tag zero", "8=FIX.4.4|9=5|35=0|0=1|10=000|", "expected a tag"},
		{"tag beyond all", "8=FIX.4.4|9=5|35=0|99999999999=1|10=000|", "expected a tag"},
		{"no equals sign", "8=FIX.4.4|9=5|35=0|34|10=000|", "expected a tag"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Parse([]byte(strings.ReplaceAll(test.raw, "|", "\x01")), &Message{})
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, expected an error with %q", err, test.want)
			}
		})
	}
}

func TestParse_UnknownAndEmptyTagsAreFields(t *testing.T) {
	var message Message
	if err := Parse(withFrame("35=U7|34=1|20123=x=y|58=|"), &message); err != nil {
		t.Fatal(err)
	}
	if got := string(message.Get(20123)); got != "x=y" {
		t.Errorf("tag 20123 is %q, expected x=y", got)
	}
	if got := message.Get(Text); got == nil || len(got) != 0 {
		t.Errorf("tag 58 is %q, expected empty", got)
	}
}

// Raw data may hold SOH and even what looks like fields; its length says where it ends.
func TestParse_DataFieldHoldsSOH(t *testing.T) {
	var message Message
	if err := Parse(withFrame("35=B|95=9|96=ab|10=0|c|34=7|"), &message); err != nil {
		t.Fatal(err)
	}
	if got := string(message.Get(96)); got != "ab\x0110=0\x01c" {
		t.Errorf("RawData is %q", got)
	}
	if got := string(message.Get(MsgSeqNum)); got != "7" {
		t.Errorf("MsgSeqNum is %q, expected 7", got)
	}
}

func TestCheck_TellsWhatIsWrong(t *testing.T) {
	good := withFrame("35=0|34=1|112=TEST|")
	for _, test := range []struct {
		name, old, new string
		want           []string
	}{
		{"nothing", "", "", nil},
		{"value changed", "TEST", "TESU", []string{"check sum says"}},
		{"byte lost", "TEST", "TES", []string{"body length says", "check sum says"}},
		{"length not a number", "9=19", "9=xx", []string{"body length says \"xx\"", "check sum says"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var message Message
			if err := Parse([]byte(strings.Replace(string(good), test.old, test.new, 1)), &message); err != nil {
				t.Fatal(err)
			}
			problems := message.Check()
			if len(problems) != len(test.want) {
				t.Fatalf("problems %q, expected %q", problems, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(problems[i], want) {
					t.Errorf("problem %q, expected %q", problems[i], want)
				}
			}
		})
	}
}

func TestParseDecimal(t *testing.T) {
	for _, test := range []struct {
		text string
		want string // "" = refused
	}{
		{"0", "0"},
		{"100", "100"},
		{"00023", "23"},
		{"12.34", "12.34"},
		{"-0.5", "-0.5"},
		{"1.", "1"},
		{".25", "0.25"},
		{"220.196508", "220.196508"},
		{"1.00000000000", "1"},
		{"300000000", "300000000"},
		{"92233720368", "92233720368"},
		{"", ""},
		{"-", ""},
		{".", ""},
		{"1e5", ""},
		{"1,5", ""},
		{"1.2.3", ""},
		{"--1", ""},
		{"0.123456789", ""},
		{"99999999999999999999", ""},
		{"+1", ""},
	} {
		got, err := ParseDecimal([]byte(test.text))
		if (err != nil) != (test.want == "") || err == nil && got.String() != test.want {
			t.Errorf("%q gives %v, %v; expected %q", test.text, got, err, test.want)
		}
	}
}

func TestTimestamp_ReadsBackWhatTheClockWrites(t *testing.T) {
	var clock Clock
	for _, at := range []string{
		"2026-11-21T04:42:53.395660123Z", "2026-11-21T04:42:53.000000001Z",
		"1970-01-01T00:00:00Z",
		"2024-02-29T23:59:59.999999999Z", "2026-11-21T04:42:53Z",
	} {
		want, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		for length, unit := range map[int]time.Duration{
			17: time.Second, 21: time.Millisecond, 24: time.Microsecond,
			27: 1,
		} {
			text := clock.Append(nil, want.UnixNano(), length)
			got, err := ParseTimestamp(text)
			if err != nil || got != want.Truncate(unit).UnixNano() {
				t.Errorf("%s with %d bytes is %q, read as %d, %v", at, length, text, got, err)
			}
		}
	}
	for _, bad := range []string{"", "20261121", "20261121-04:42:53.1", "20261321-04:42:53", "20261121 04:42:53"} {
		if _, err := ParseTimestamp([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a timestamp", bad)
		}
	}
}

func TestKeyAndClass(t *testing.T) {
	for _, test := range []struct {
		body, key string
		class     uint16
	}{
		{"35=D|11=A1|", "A1", ClassOrder},
		{"35=E|66=L1|11=A1|", "L1", ClassOrder},
		{"35=8|37=O1|11=A1|41=A0|", "A1", ClassExecution},
		{"35=9|11=A1|", "A1", ClassReject},
		{"35=G|41=A0|11=A1|", "A1", ClassRequest},
		{"35=0|", "", ClassSession},
		{"35=AE|", "", ClassOther},
	} {
		key, class := KeyAndClass(withFrame(test.body))
		if string(key) != test.key || class != test.class {
			t.Errorf("%s: key %q class %d, expected %q and %d", test.body, key, class, test.key, test.class)
		}
	}
	if key, class := KeyAndClass([]byte("not FIX")); key != nil || class != ClassOther {
		t.Errorf("not FIX: key %q class %d", key, class)
	}
}

// Whatever the bytes: no panic, no field outside the message, and a message that parses is made of exactly its fields.
func FuzzParse(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(recorded, "|", "\x01")))
	f.Add(withFrame("35=B|95=9|96=ab|10=0|c|34=7|"))
	f.Add(withFrame("35=0|"))
	f.Add([]byte("8=FIX.4.4\x019=\x0135=\x0110=\x01"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var message Message
		if err := Parse(raw, &message); err != nil {
			if !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %q is not a line about a malformed message", err)
			}
			return
		}
		message.Check()
		KeyAndClass(raw)
		length, first := 0, 0
		for _, field := range message.Fields {
			for ; raw[first] != '='; first++ { // leading zeros of a tag are not kept
				length++
			}
			length += 1 + len(field.Value) + 1
			first = length
		}
		if length != len(raw) {
			t.Fatalf("fields make %d bytes of %d", length, len(raw))
		}
	})
}
