package audit

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// ErrNotFound is returned when no record of the stream concerns the order.
var ErrNotFound = errors.New("no such order")

// Source gives the records of a stream from its first to its last. Each call begins again: FindOrder reads twice. An
// error ends the sequence.
type Source func() iter.Seq2[Entry, error]

// FindOrder returns the life of the order that has key as one of its ClOrdIDs, or as its OrderID.
//
// The first pass learns which ids follow from which (a request names the id before its own) and keeps these pairs, the
// second decodes the messages that hold one of the order's ids. Payloads that are not FIX are passed over.
func FindOrder(source Source, key string) (*Order, error) {
	if key == "" {
		return nil, fmt.Errorf("find order %q: %w: expected a ClOrdID or an OrderID", key, ErrNotFound)
	}
	ids, err := chainOf(source, key)
	if err != nil {
		return nil, fmt.Errorf("find order %q: %w", key, err)
	}
	life := newLifecycle()
	needles := make([][]byte, 0, len(ids))
	for id := range ids {
		needles = append(needles, fieldBytes(fix.ClOrdID, id))
	}
	var message fix.Message
	for entry, err := range source() {
		if err != nil {
			return nil, fmt.Errorf("find order %q: %w", key, err)
		}
		if !containsAny(entry.Payload, needles) || fix.Parse(entry.Payload, &message) != nil {
			continue
		}
		decode(entry, &message, func(e *event) {
			if _, isOurs := ids[e.clOrdID]; isOurs {
				life.apply(e)
			}
		})
	}
	if len(life.order.Steps) == 0 {
		return nil, fmt.Errorf("find order %q: %w", key, ErrNotFound)
	}
	return life.finish(), nil
}

// chainOf returns the ids of the order: key, and all that are linked to it by OrigClOrdID, forwards and backwards.
func chainOf(source Source, key string) (map[string]struct{}, error) {
	neighbours := map[string][]string{}
	ids := map[string]struct{}{key: {}}
	link, order := []byte("\x0141="), fieldBytes(fix.OrderID, key)
	var message fix.Message
	for entry, err := range source() {
		if err != nil {
			return nil, err
		}
		hasLink, hasOrder := bytes.Contains(entry.Payload, link), bytes.Contains(entry.Payload, order)
		if !hasLink && !hasOrder || fix.Parse(entry.Payload, &message) != nil {
			continue
		}
		id, before := message.Get(fix.ClOrdID), message.Get(fix.OrigClOrdID)
		if hasOrder && id != nil {
			ids[string(id)] = struct{}{}
		}
		if id != nil && before != nil && !isLinked(neighbours, id, before) {
			neighbours[string(id)] = append(neighbours[string(id)], string(before))
			neighbours[string(before)] = append(neighbours[string(before)], string(id))
		}
	}
	queue := make([]string, 0, len(ids))
	for id := range ids {
		queue = append(queue, id)
	}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		for _, next := range neighbours[id] {
			if _, isKnown := ids[next]; !isKnown {
				ids[next] = struct{}{}
				queue = append(queue, next)
			}
		}
	}
	return ids, nil
}

func isLinked(neighbours map[string][]string, id, before []byte) bool {
	return slices.Contains(neighbours[string(id)], string(before))
}

func containsAny(payload []byte, needles [][]byte) bool {
	return slices.ContainsFunc(needles, func(needle []byte) bool { return bytes.Contains(payload, needle) })
}

// fieldBytes is a field as it stands inside a message.
func fieldBytes(tag int, value string) []byte {
	return fmt.Appendf(nil, "\x01%d=%s\x01", tag, value)
}
