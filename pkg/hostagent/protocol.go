package hostagent

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Verbs of the protocol.
const (
	verbWriter  = "writer"
	verbReader  = "reader"
	verbMembers = "members"
	verbRoute   = "route"
	verbDevice  = "device"
)

const (
	greeting      = "farlog-agent"
	version       = "1"
	packetLenMax  = 4096
	takeoverYes   = "yes"
	okLine        = "ok\n"
	valueLenMax   = 1023
	refusalLenMax = 400 // of a text: it stands in an error of the C library, which has room for 503
)

// refusal is an answer that is no grant: the name of one of the C library's results, and a line.
type refusal struct{ result, text string }

// Error implements error.
func (r *refusal) Error() string { return r.text }

func refuse(result, format string, args ...any) error {
	return &refusal{result: result, text: fmt.Sprintf(format, args...)}
}

// request is a packet, taken apart.
type request struct {
	verb   string
	values map[string]string
}

// words are the lines that a verb knows; true: it has to be there.
var words = map[string]map[string]bool{
	verbWriter: {"stream": true, "name": false, "epoch-seen": false, "transport": false, "takeover": false},
	verbReader: {"stream": true, "name": false, "transport": false},
	verbMembers: {
		"stream": true, "epoch": true, "rings": true, "level": false, "policy": false, "deadline-ns": false,
		"transport": false, "closed": false,
	},
	verbRoute:  {"route": true},
	verbDevice: {"path": true, "access": true},
}

// parseRequest refuses what it does not know: a misspelt line that was left out would be another request.
func parseRequest(packet string) (request, error) {
	first, rest, ok := strings.Cut(packet, "\n")
	head := strings.Split(first, " ")
	if !ok || len(head) != 3 || head[0] != greeting {
		return request{}, refuse("INVALID", "%.40q is no request: expected \"%s %s VERB\" and a line for each value",
			first, greeting, version)
	}
	if head[1] != version {
		return request{}, refuse("UNSUPPORTED",
			"protocol version %.20q: this agent speaks %s; both come from the same release of farlog", head[1], version)
	}
	known := words[head[2]]
	if known == nil {
		return request{}, refuse("UNSUPPORTED", "verb %.20q: expected %s, %s, %s, %s or %s", head[2], verbWriter,
			verbReader, verbMembers, verbRoute, verbDevice)
	}
	asked := request{verb: head[2], values: make(map[string]string)}
	for _, line := range strings.Split(strings.TrimSuffix(rest, "\n"), "\n") {
		word, value, _ := strings.Cut(line, " ")
		if _, isKnown := known[word]; !isKnown || value == "" || len(value) > valueLenMax || asked.values[word] != "" {
			return request{}, refuse("INVALID", "line %.60q of a request for a %s: expected one line each of %s", line,
				asked.verb, listOf(known))
		}
		asked.values[word] = value
	}
	for word, isRequired := range known {
		if isRequired && asked.values[word] == "" {
			return request{}, refuse("INVALID", "request for a %s without %s", asked.verb, word)
		}
	}
	return asked, nil
}

func listOf(known map[string]bool) string {
	var list []string
	for word := range known {
		list = append(list, word)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// number is a value, 0 when it was not given.
func (r request) number(word string) (uint32, error) {
	number, err := r.numberTo(word, math.MaxUint32)
	return uint32(number), err
}

func (r request) numberTo(word string, most uint64) (uint64, error) {
	text := r.values[word]
	if text == "" {
		return 0, nil
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil || number > most {
		return 0, refuse("INVALID", "%s %.20q: expected a number up to %d", word, text, most)
	}
	return number, nil
}

// reply is built line by line.
type reply struct {
	strings.Builder
	file       *os.File // goes along with it; nil: none
	isQuestion bool     // answers one, and gives nothing
	isUnread   bool     // whoever asked has gone: it was a note
}

func newReply() *reply {
	r := new(reply)
	r.WriteString(okLine)
	return r
}

func (r *reply) add(word string, value any) {
	fmt.Fprintf(r, "%s %s\n", word, oneLine(fmt.Sprint(value)))
}

// refusalReply tells the client in one line what is wrong.
func refusalReply(refused *refusal) string {
	text := oneLine(refused.text)
	if len(text) > refusalLenMax {
		text = strings.ToValidUTF8(text[:refusalLenMax-3], "") + "..."
	}
	return fmt.Sprintf("error %s\ntext %s\n", refused.result, text)
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
